"""Failure -> the scenario that names it first as the run's own, and the look-alike that must not.

Tests of `tests/scenarios`, by file, function and parameters. `test_scenarios.py` proves that the
first fails when the engine never names the failure, the second when it always does.
"""

from __future__ import annotations

LAST = "test_last_words.py::test_the_last_words_of_a_run_name_its_failure[{}]"
NOT_LAST = "test_last_words.py::test_the_same_words_of_a_users_own_code_are_not_that_failure[{}]"
ONLY_TALKS = "test_last_words.py::test_a_run_that_only_talks_of_such_things_stays_well"
ALIKE = "test_look_alikes.py::test_{}"
FAULT = "test_faults.py::test_{}"
WAIT = "test_waits.py::test_{}"
NUMBER = "test_numbers.py::test_{}"
GPU = "test_gpu_faults.py::test_{}"
RANKS = "test_collective.py::test_{}"
REPORT = "test_field_reports.py::test_report_{}"
VIEW = "test_views.py::test_{}"
ROOM = WAIT.format("a_full_disk_is_named_while_steps_still_go_on[{}]")
PHASE = WAIT.format("a_phase_that_explains_silence_is_named_and_over_when_steps_go_on[{}]")
QUEUE = ALIKE.format("the_side_of_the_queue_that_waits_is_the_cause_of_low_throughput[{}]")
SHORTAGE = ALIKE.format(
    "the_figures_tell_pieces_from_a_full_card_and_the_hint_in_both_tells_nothing[{}]"
)
KERNEL = ALIKE.format("where_in_the_kernel_a_process_hangs_tells_the_driver_from_a_mount[{}]")
UNBOUND = NUMBER.format("kernels_that_are_not_bound_are_told_on_gpus_and_not_on_a_cpu[{}]")
LATE = NUMBER.format(
    "lateness_of_the_ticker_is_the_locks_only_when_the_machine_does_not_explain_it[{}]"
)

TABLE: dict[str, tuple[str, str]] = {
    "acceptance-gap": (
        NUMBER.format("drafts_that_are_not_accepted_as_estimated_are_a_warning"),
        NUMBER.format("a_young_drafter_one_bad_measure_and_a_small_gap_are_well[measures0]"),
    ),
    "autotuner-race": (LAST.format("autotuner-race"), NOT_LAST.format("autotuner-race")),
    "checkpoint-in-progress": (
        PHASE.format("checkpointing-checkpoint-in-progress"),
        WAIT.format("a_log_that_is_written_while_nothing_else_moves_is_no_save"),
    ),
    "code-changed": (
        "test_code_changed.py::test_a_file_copied_in_later_is_told_with_its_name_and_worries_nobody",
        "test_code_changed.py::test_files_that_are_as_loaded_are_nothing",
    ),
    "collective-never-started": (
        ALIKE.format("ranks_that_never_came_together_are_named"),
        ALIKE.format("a_group_that_waited_for_its_ranks_and_then_trains_is_well"),
    ),
    "collective-timeout": (
        LAST.format("collective-timeout"),
        NOT_LAST.format("collective-timeout"),
    ),
    "collective-wait": (
        RANKS.format("the_guilty_rank_is_named_long_before_the_frameworks_own_timeout[True]"),
        RANKS.format("a_rank_that_still_works_on_the_host_is_not_accused[busy0]"),
    ),
    "compile-in-progress": (
        WAIT.format("a_lock_file_whose_holder_builds_in_the_same_run_is_no_fault"),
        WAIT.format("a_compiler_that_is_parked_compiles_nothing"),
    ),
    "cuda-oom": (
        SHORTAGE.format("76.00-0.10-cuda-oom"),
        SHORTAGE.format("59.00-17.00-cuda-oom-fragmented"),
    ),
    "cuda-oom-fragmented": (
        SHORTAGE.format("59.00-17.00-cuda-oom-fragmented"),
        SHORTAGE.format("76.00-0.10-cuda-oom"),
    ),
    "dataloader-stuck": (
        WAIT.format("a_loader_that_gives_nothing_is_named_with_its_stage[leaf1-to end]"),
        WAIT.format("a_loader_that_is_slow_and_works_is_not_stuck"),
    ),
    "dataloader-worker-died": (
        WAIT.format("a_loader_worker_that_vanished_is_the_cause"),
        WAIT.format("loader_workers_that_end_with_their_epoch_are_no_deaths"),
    ),
    "disk-full": (ROOM.format("room0-disk-full"), ROOM.format("room3-healthy")),
    "drafter-idle": (
        FAULT.format("a_drafter_that_stops_taking_is_named"),
        "test_idle_gpus.py::test_a_card_that_works_and_rests_in_turns_is_between_bursts[10]",
    ),
    "drafter-starved": (
        QUEUE.format("shares0-drafter-starved"),
        QUEUE.format("shares2-None"),
    ),
    "driver-stuck": (
        KERNEL.format("uvm_va_space_down_write-driver-stuck"),
        KERNEL.format("rpc_wait_bit_killable-storage-stuck"),
    ),
    "eval-in-progress": (
        PHASE.format("evaluating-eval-in-progress"),
        WAIT.format("an_evaluation_whose_loader_gives_nothing_is_no_excuse_for_ever"),
    ),
    "exit-hang": (
        FAULT.format("a_run_that_says_it_is_done_and_stays_is_finished_with_exit_hang"),
        "test_healthy.py::test_a_long_goodbye_on_a_busy_machine_is_no_hang",
    ),
    "fd-exhausted": (
        WAIT.format("descriptors_at_their_limit_are_named[1020-fd-exhausted]"),
        WAIT.format("descriptors_at_their_limit_are_named[700-healthy]"),
    ),
    "file-lock-wait": (
        WAIT.format("a_lock_file_that_nobody_gives_back_is_named_before_the_first_step"),
        WAIT.format("a_lock_file_whose_holder_builds_in_the_same_run_is_no_fault"),
    ),
    "fork-after-threads": (
        WAIT.format("a_worker_that_was_forked_with_a_lock_held_is_the_cause_of_the_silent_loader"),
        WAIT.format("a_loader_that_gives_nothing_is_named_with_its_stage[leaf1-to end]"),
    ),
    "fx-trace-race": (LAST.format("fx-trace-race"), NOT_LAST.format("fx-trace-race")),
    "gil-contention": (
        LATE.format("0.3-0.06-None-gil-contention"),
        LATE.format("0.99-0.06-0.05-healthy"),
    ),
    "gil-held": (
        FAULT.format("a_sleeping_call_that_keeps_the_interpreter_lock_in_our_run"),
        FAULT.format("a_stopped_process_is_stalled_and_named"),
    ),
    "gpu-ecc": (
        GPU.format("counters_that_turn_bad_on_a_card_of_the_run_are_critical[changes0-gpu-ecc]"),
        GPU.format("the_same_on_somebody_elses_card_is_not_this_runs[changes0]"),
    ),
    "gpu-lost": (
        GPU.format("a_card_of_the_run_that_is_lost_is_critical_at_once"),
        GPU.format("somebody_elses_card_that_is_lost_is_no_trouble_of_this_run"),
    ),
    "gpu-memory-foreign": (
        NUMBER.format("a_stranger_on_a_card_of_the_run_is_named"),
        NUMBER.format("what_is_the_runs_own_or_cannot_be_told_is_nobodys[listed1]"),
    ),
    "gpu-throttled": (
        NUMBER.format("a_card_that_is_held_down_while_it_works_is_named[32]"),
        NUMBER.format("clocks_that_drop_for_ordinary_reasons_are_left_alone[1300-4-0.99]"),
    ),
    "gpu-view-lost": (
        VIEW.format("a_hung_gpu_call_keeps_the_rows_and_the_verdict"),
        VIEW.format("a_machine_without_gpus_is_not_a_lost_view"),
    ),
    "healthy": (
        "test_healthy.py::test_a_thread_that_ends_as_it_should_is_no_death",
        FAULT.format("a_stopped_process_is_stalled_and_named"),
    ),
    "host-oom": (
        FAULT.format("a_kill_by_the_cgroup_is_told_as_cause"),
        FAULT.format("a_kill_for_memory_long_before_the_end_is_no_cause"),
    ),
    "input-starved": (
        WAIT.format("slow_input_is_the_cause_of_low_throughput"),
        WAIT.format("a_run_that_waits_for_input_and_is_as_fast_as_ever_is_well"),
    ),
    "kernel-fault": (LAST.format("kernel-fault"), NOT_LAST.format("kernel-fault")),
    "kernel-out-of-resources": (LAST.format("kernel-out-of-resources"), ONLY_TALKS),
    "kernel-stuck": (
        ALIKE.format("a_kernel_that_spins_is_named_and_a_long_one_that_computes_is_not[False]"),
        ALIKE.format("a_kernel_that_spins_is_named_and_a_long_one_that_computes_is_not[True]"),
    ),
    "kernels-missing": (UNBOUND.format("gpus-one-line"), UNBOUND.format("cpu-one-line")),
    "loading": (
        WAIT.format("weights_that_are_read_before_the_first_step_are_a_load"),
        WAIT.format("a_lock_file_that_nobody_gives_back_is_named_before_the_first_step"),
    ),
    "log-moved": (
        VIEW.format("a_log_renamed_away_is_running_and_named"),
        VIEW.format("a_block_buffered_log_over_going_steps"),
    ),
    "log-no-newline": (
        VIEW.format("a_progress_bar_alone_is_running_and_named"),
        VIEW.format("a_block_buffered_log_over_going_steps"),
    ),
    "log-not-flushed": (
        VIEW.format("a_block_buffered_log_over_going_steps"),
        VIEW.format("a_log_renamed_away_is_running_and_named"),
    ),
    "logger-blocked": (
        WAIT.format("a_tracker_that_does_not_return_is_named"),
        WAIT.format("the_service_thread_of_a_tracker_is_not_what_the_run_waits_for"),
    ),
    "loss-scale-collapse": (LAST.format("loss-scale-collapse"), ONLY_TALKS),
    "main-process-died": (
        FAULT.format("sigkill_is_a_crash_without_stacks"),
        FAULT.format("a_foreign_process_that_is_simply_gone_is_not_called_a_crash"),
    ),
    "memory-leak": (
        NUMBER.format("device_memory_that_climbs_names_its_gpu"),
        NUMBER.format("lengths_that_each_add_once_are_neither_a_leak_nor_churn"),
    ),
    "memory-uneven": (
        ALIKE.format("a_card_far_from_the_siblings_of_its_role_is_named[gibs0-memory-uneven]"),
        ALIKE.format("a_card_far_from_the_siblings_of_its_role_is_named[gibs1-healthy]"),
    ),
    "memory-volatile": (
        NUMBER.format("churn_alone_is_told_and_worries_nobody"),
        NUMBER.format("lengths_that_each_add_once_are_neither_a_leak_nor_churn"),
    ),
    "nan-loss": (
        NUMBER.format("a_loss_that_is_nan_in_each_report_is_critical_though_steps_go_on"),
        NUMBER.format("single_overflows_and_a_first_window_are_harmless[losses0]"),
    ),
    "network-fault": (LAST.format("network-fault"), ONLY_TALKS),
    "no-run": (
        ALIKE.format("a_run_that_never_was_is_told_from_one_that_is_gone[none]"),
        ALIKE.format("a_run_that_never_was_is_told_from_one_that_is_gone[gone]"),
    ),
    "nvlink-fault": (
        GPU.format(
            "counters_that_turn_bad_on_a_card_of_the_run_are_critical[changes1-nvlink-fault]"
        ),
        GPU.format("the_same_on_somebody_elses_card_is_not_this_runs[changes1]"),
    ),
    "pipeline-deadlock": (
        FAULT.format("a_lock_cycle_names_both_drafters_and_both_owners"),
        FAULT.format("a_drafter_that_stops_taking_is_named"),
    ),
    "process-stopped": (
        FAULT.format("a_stopped_process_is_stalled_and_named"),
        FAULT.format("a_sleeping_call_that_keeps_the_interpreter_lock_in_our_run"),
    ),
    "process-vanished": (
        FAULT.format("a_foreign_process_that_is_simply_gone_is_not_called_a_crash"),
        FAULT.format("a_foreign_process_that_says_done_after_its_last_step_has_finished"),
    ),
    "ps-clock-artefact": (
        WAIT.format("the_uptime_of_a_container_is_told_and_judges_nobody"),
        WAIT.format("a_machine_whose_clocks_agree_has_no_artefact"),
    ),
    "recompile-limit": (
        ALIKE.format("a_function_given_up_by_the_compiler_explains_a_slow_run[given-up]"),
        ALIKE.format("a_function_given_up_by_the_compiler_explains_a_slow_run[one-more]"),
    ),
    "shm-full": (ROOM.format("room2-shm-full"), ROOM.format("room7-healthy")),
    "stacks-unavailable": (
        ALIKE.format("a_silence_that_no_stack_may_explain_says_so[refused]"),
        ALIKE.format("a_silence_that_no_stack_may_explain_says_so[given]"),
    ),
    "storage-stuck": (
        WAIT.format("a_process_in_a_network_file_system_is_named"),
        KERNEL.format("uvm_va_space_down_write-driver-stuck"),
    ),
    "target-blocked": (QUEUE.format("shares1-target-blocked"), QUEUE.format("shares3-None")),
    "target-idle": (
        FAULT.format("a_target_that_stops_giving_is_named"),
        FAULT.format("a_drafter_that_stops_taking_is_named"),
    ),
    "throughput-below-baseline": (
        REPORT.format("4_a_slow_run_is_slow_against_what_was_promised[11000.0-slow]"),
        QUEUE.format("shares0-drafter-starved"),
    ),
    "triton-autotune-oom": (
        FAULT.format("the_log_of_an_autotuner_out_of_memory_then_silence"),
        SHORTAGE.format("76.00-0.10-cuda-oom"),
    ),
    "triton-cache-race": (LAST.format("triton-cache-race"), NOT_LAST.format("triton-cache-race")),
    "unknown": (
        ALIKE.format("a_silence_that_no_stack_may_explain_says_so[given]"),
        ALIKE.format("a_silence_that_no_stack_may_explain_says_so[refused]"),
    ),
    "watch-lost": (
        VIEW.format("frames_that_stay_away_are_blind_without_any_word_of_the_link"),
        VIEW.format("a_hung_gpu_call_keeps_the_rows_and_the_verdict"),
    ),
    "worker-died": (
        FAULT.format("a_worker_that_dies_before_any_limit_is_learned_is_still_missed"),
        "test_healthy.py::test_a_thread_that_ends_as_it_should_is_no_death",
    ),
    "wrong-process": (
        WAIT.format("a_client_is_not_the_run[ssh-ssh box python train.py]"),
        WAIT.format("a_shell_that_waits_for_its_training_is_the_right_process"),
    ),
}

TOLD_BESIDE = {"ps-clock-artefact"}
"""Says something of a tool, nothing of the run: a candidate, never the run's own failure."""
