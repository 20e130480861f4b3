"""nvidia-smi in the forms that people paste."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.readers.gputable import process_row
from dflash_watch.readers.gputext import parse_gpus

GPUS = Path(__file__).parent / "gpus"
MIB = 1 << 20


def recorded(name: str) -> str:
    return (GPUS / name).read_text("utf-8")


def test_the_table_of_an_old_driver_is_read() -> None:
    seen = parse_gpus(recorded("old-driver.txt"))
    p100, gtx = seen.gpus
    assert (seen.form, seen.driver, seen.cuda) == ("table", "384.111", None)
    assert seen.looks[0].stamp == "Mon Mar  5 09:41:08 2018"
    assert (p100.name, p100.memory_used_bytes, p100.memory_total_bytes) == (
        "Tesla P100-SXM2", 5371 * MIB, 16276 * MIB,
    )  # fmt: skip
    assert (p100.utilization_ratio, p100.power_watts, p100.power_limit_watts) == (0.07, 40, 300)
    assert (p100.temperature_celsius, p100.ecc_uncorrected) == (36, 0)
    assert gtx.ecc_uncorrected is None
    assert gtx.errors == {"ecc_uncorrected": "N/A"}
    assert gtx.processes is not None
    assert [one.pid for one in gtx.processes] == [1402]
    assert seen.unread == ()


def test_a_partitioned_card_has_slices_and_no_utilisation() -> None:
    seen = parse_gpus(recorded("mig.txt"))
    assert [(m.gpu, m.instance, m.device, m.memory_used_bytes) for m in seen.mig] == [
        (1, 3, 0, 14366 * MIB),
        (1, 5, 1, 9826 * MIB),
    ]
    assert seen.gpus[1].utilization_ratio is None
    assert seen.gpus[1].errors["utilization_ratio"] == "N/A"
    assert seen.gpus[0].utilization_ratio == 0.61
    assert seen.processes is not None
    assert [(p.gpu, p.pid, p.name, p.memory_bytes) for p in seen.processes] == [
        (0, 23824, "python", 10725 * MIB),
        (0, 33724, "/opt/trainer/bin/python my job", 12247 * MIB),
        (1, 34965, "python", 14195 * MIB),
        (1, 46505, None, None),
    ]


def test_a_broken_card_keeps_its_row_and_says_what_it_said() -> None:
    seen = parse_gpus(recorded("faults.txt"))
    h100, lost, fan, failed = seen.gpus
    assert [gpu.state for gpu in seen.gpus] == ["ok", "lost", "ok", "failed"]
    assert h100.ecc_uncorrected == 3
    assert lost.memory_used_bytes is None
    assert lost.errors["memory_used_bytes"] == "GPU is lost"
    assert (fan.temperature_celsius, fan.utilization_ratio) == (68, 0.93)
    assert failed.errors["utilization_ratio"] == "ERR!"
    assert [one.kind for one in seen.trouble] == ["lost"]


def test_no_process_shown_is_not_no_table() -> None:
    assert parse_gpus(recorded("faults.txt")).processes == ()
    assert parse_gpus("0, 5 MiB, 5 %\n").processes is None


def test_the_long_report_is_read() -> None:
    seen = parse_gpus(recorded("query.txt"))
    first, second = seen.gpus
    assert (seen.form, seen.driver, seen.cuda) == ("query", "580.159.03", "13.0")
    assert (first.memory_used_bytes, first.utilization_ratio) == (67133 * MIB, 0.05)
    assert (first.power_watts, first.power_limit_watts, first.sm_clock_mhz) == (121.9, 700, 1980)
    assert first.ecc_uncorrected == 0
    assert second.memory_used_bytes == 0
    assert second.utilization_ratio is None
    assert second.errors["utilization_ratio"] == "Unknown Error"


def test_dmon_is_read_look_by_look() -> None:
    seen = parse_gpus(recorded("dmon.txt"))
    assert [[g.power_watts for g in look.gpus] for look in seen.looks] == [[121, 78], [690, 78]]
    assert seen.gpus[0].utilization_ratio == 0.99
    assert seen.gpus[0].memory_used_bytes is None


FIELD = "0, 67133 MiB, 5 %\n1, 97051 MiB, 100 %\n7, 77249 MiB, 0 %\n"


def test_csv_without_header_is_named_by_its_units_and_says_so() -> None:
    seen = parse_gpus(FIELD)
    assert [(g.index, g.memory_used_bytes, g.utilization_ratio) for g in seen.gpus] == [
        (0, 67133 * MIB, 0.05),
        (1, 97051 * MIB, 1.0),
        (7, 77249 * MIB, 0.0),
    ]
    assert seen.guessed == ("index", "memory_used_bytes", "utilization_ratio")


def test_csv_with_a_header_has_its_columns_in_any_order_with_or_without_units() -> None:
    with_units = parse_gpus(
        "utilization.gpu [%], index, power.draw [W], temperature.gpu, pstate\n"
        "100 %, 6, 61.20 W, 52, P0\n"
    )
    bare = parse_gpus("power.draw [W], index, utilization.gpu [%], fan.speed\n61.20, 6, 100, 30\n")
    for seen in (with_units, bare):
        gpu = seen.gpus[0]
        assert (gpu.index, gpu.utilization_ratio, gpu.power_watts) == (6, 1.0, 61.2)
        assert seen.guessed == ()
    assert with_units.gpus[0].temperature_celsius == 52
    assert with_units.unread == ("pstate",)


def test_a_missing_value_of_a_csv_is_missing_and_not_zero() -> None:
    head = "index, memory.used [MiB], utilization.gpu [%]\n"
    rows = "0, [N/A], [Not Supported]\n1, [GPU is lost], [GPU is lost]\n"
    first, second = parse_gpus(head + rows).gpus
    assert (first.memory_used_bytes, first.utilization_ratio) == (None, None)
    assert first.errors == {"memory_used_bytes": "N/A", "utilization_ratio": "Not Supported"}
    assert (first.state, second.state) == ("ok", "lost")


def test_a_loop_of_csv_is_several_looks() -> None:
    row = "2026/11/29 10:00:0{t}.123, {i}, {u} %\n"
    head = "timestamp, index, utilization.gpu [%]\n"
    text = head + "".join(row.format(t=t, i=i, u=t * 10) for t in range(3) for i in range(2))
    seen = parse_gpus(text)
    assert [[g.utilization_ratio for g in look.gpus] for look in seen.looks] == [
        [0.0, 0.0], [0.1, 0.1], [0.2, 0.2],
    ]  # fmt: skip
    assert seen.looks[1].stamp == "2026/11/29 10:00:01.123"


def test_programs_on_the_cards_are_read_from_their_own_query() -> None:
    text = (
        "pid, process_name, used_gpu_memory [MiB]\n4123, python, 5371 MiB\n77, [Not Found], [N/A]\n"
    )
    seen = parse_gpus(text)
    assert seen.processes is not None
    assert [(p.pid, p.name, p.memory_bytes) for p in seen.processes] == [
        (4123, "python", 5371 * MIB),
        (77, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 560",
         "mismatch"),
        ("Unable to determine the device handle for GPU0000:62:00.0: Unknown Error", "lost"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
         "no-driver"),
        ("No devices were found", "none-found"),
        ("bash: nvidia-smi: command not found", "no-tool"),
        ("Failed to initialize NVML: Insufficient Permissions", "refused"),
        ("Failed to initialize NVML: Unknown Error", "refused"),
    ],
)  # fmt: skip
def test_a_message_in_place_of_values_is_named(text: str, kind: str) -> None:
    seen = parse_gpus(text)
    assert [one.kind for one in seen.trouble] == [kind]
    assert seen.gpus == ()
    assert seen.form == "none"


def test_the_card_that_a_message_names_is_kept() -> None:
    text = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot."
    assert parse_gpus(text).trouble[0].bus_id == "0000:0B:00.0"


def test_a_list_of_cards_gives_their_names() -> None:
    seen = parse_gpus("GPU 0: NVIDIA H200 (UUID: GPU-0b3f9c52-6c1d-7f0a-4f43-3b1f5f0d8a11)\n")
    assert (seen.form, seen.gpus[0].name) == ("list", "NVIDIA H200")


def test_text_about_something_else_is_no_gpu() -> None:
    for text in ("", "step 3, loss 2.1\n1, 2\n", "a,b\n0, 1, 2, 3\n", "| a | b | c |\n", "# gpu\n"):
        seen = parse_gpus(text)
        assert (seen.form, seen.gpus) == ("none", ())


def test_a_row_of_the_process_table_alone_is_read() -> None:
    row = process_row("|    0     31794    C   Unknown Error                     5371MiB |")
    assert row is not None
    assert (row.gpu, row.pid, row.name, row.memory_bytes) == (0, 31794, None, 5371 * MIB)
