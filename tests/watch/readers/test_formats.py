"""Progress as trainers write it: one line each of the formats that people's logs hold."""

from __future__ import annotations

import pytest
from dflash_watch.readers import numbers
from dflash_watch.readers.bars import parse_bar
from dflash_watch.readers.lines import printable


@pytest.mark.parametrize(
    ("line", "step", "total", "rate", "loss"),
    [
        ((' iteration      122/  250000 | consumed samples:       124928 | elapsed time'
            ' per iteration (ms): 86545.2 | learning rate: 9.150E-06 | global batch size:'
            '  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | number'
            ' of skipped iterations:   0 | number of nan iterations:   0 |'),
         122, 250000, None, 2.50422),
        ((' [2025-06-10 12:00:01] iteration        2/      10 | consumed samples:      '
            '     32 | elapsed time per iteration (ms): 1020.1 | throughput per GPU (TFLO'
            'P/s/GPU): 402.1 | learning rate: 1.000000E-04 | global batch size:    16 | l'
            'm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 3.2 |'),
         2, 10, None, 10.0),
        (('[2022-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step=40, '
            'skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]'),
         40, None, None, None),
        (('[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.'
            '48609168106144, MemAllocated=0.26GB, MaxMemAllocated=9.02GB'),
         40, None, None, None),
        (('[2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/g'
            'lobal_step=34, RunningAvgSamplesPerSec=7.86, CurrSamplesPerSec=8.0, MemAlloc'
            'ated=59.65GB, MaxMemAllocated=63.31GB'),
         34, None, None, None),
        ((' samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iterati'
            'on (ms): 4103.1 | learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLO'
            'PS | lm_loss: 1.118665E+01 |'),
         34, 10000, None, 11.18665),
        (('[2023-07-25 21:03:17,269] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 ti'
            'me (ms) | forward: 652.41 | backward: 2164.52 | step: 1172.13'),
         None, None, None, None),
        (('[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.2'
            '4405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52'
            '  mfu: 0.17%'),
         14, None, 7282.0, 3.24405),
        ('iter 100: loss 2.4049, time 929.71ms, mfu 16.59%',
         100, None, None, 2.4049),
        ('step 250: train loss 1.5440, val loss 1.7220',
         250, None, None, 1.544),
        (('step 00021/21400 (0.10%) | loss: 7.2 | lrm: 1.00 | dt: 433.21ms | tok/sec: 1'
            ',210,234 | mfu: 48.2 | total time: 0.12m'),
         21, 21400, 1210234.0, 7.2),
        (('Epoch 34 | iter 3050700 step 610140 | loss train: 2.846, val: 2.861 | iter t'
            'ime: 112.20 ms (step) remaining time: 0:01:54'),
         610140, None, None, 2.846),
        ("{'loss': 6.2645, 'learning_rate': 0.001, 'epoch': 0.02}",
         None, None, None, 6.2645),
        (("{'loss': 1.9, 'grad_norm': 2.3, 'learning_rate': 5e-05, 'num_tokens': 123456"
            ".0, 'mean_token_accuracy': 0.61, 'epoch': 0.5}"),
         None, None, None, 1.9),
        (('  8%|████      | 1999/24128 [1:52:09<20:27:23,  3.33s/it][2021-11-26 03:07:1'
            '6,494] [INFO] [logging.py:69:log_dist] [Rank 0] step=2000, skipped=1995'),
         1999, 24128, None, None),
        (('Epoch 0:   6%|▋   | 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6, v_n'
            'um=95nc, reduced_train_loss=2.590, global_step=3.2e+4]'),
         32040, 500150, None, 2.6),
        (('Epoch 2:  34%|███▍      | 100/297 [00:10<00:20,  9.77it/s, v_num=0, train_lo'
            'ss_step=0.123, train_loss_epoch=0.2]'),
         100, 297, None, 0.123),
        ('Epoch 3/10',
         None, None, None, None),
        (('1875/1875 [==============================] - 4s 2ms/step - loss: 0.2953 - ac'
            'curacy: 0.9150'),
         1875, 1875, None, 0.2953),
        ((' 312/1875 [===>..........................] - ETA: 2s - loss: 0.8093 - accura'
            'cy: 0.7657'),
         312, 1875, None, 0.8093),
        (" \x1b[1m44/469\x1b[0m \x1b[32m" + "\u2501" * 20 + "\x1b[0m 0s 2ms/step - loss: 2.1",
         44, 469, None, 2.1),
        (('{"step": 120, "loss": 2.31, "tokens_per_second": 14200.5, "time": "2026-11-2'
            '9T10:00:00"}'),
         120, None, 14200.5, 2.31),
        (('{"timestamp":"2026-11-29T10:00:00Z","level":"INFO","message":"train","global'
            '_step":77,"train/loss":1.25,"tokens_per_sec":9800}'),
         77, None, 9800.0, 1.25),
        ('[default0]: [default0]: iteration 5/100 | lm loss: 9.2',
         5, 100, None, 9.2),
        ('[rank3]: step 12 loss 2.2',
         12, None, None, 2.2),
        ('INFO:root:Step 1,200 | Loss 0.93 | 12.3k tokens/s',
         1200, None, 12300.0, 0.93),
        ('1|10|Loss: 2.5123: 100%|██████████| 10/10 [00:12<00:00,  1.2s/it]',
         10, 10, None, 2.5123),
        (('2024-05-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 3000 loss=12.'
            '3, ppl=5000, wps=25000.1, ups=3.1, wpb=8000, bsz=300, num_updates=100, lr=1e'
            '-05, gnorm=2.1, train_wall=30, wall=40'),
         100, 3000, 25000.1, 12.3),
        ('Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.305395',
         640, 60000, None, 2.305395),
        (('2026-11-29 10:00:00,000 - mmengine - INFO - Epoch(train)  [1][  50/3000]  lr'
            ': 1.0e-02  eta: 1:00:00  time: 0.5  data_time: 0.1  memory: 5000  loss: 1.2'),
         50, 3000, None, 1.2),
        (('2026/11/29 10:00:00 - mmengine - INFO - Iter(train) [   50/40000]  lr: 9.9e-'
            '03  eta: 5:00:00  time: 0.4  loss: 2.2'),
         50, 40000, None, 2.2),
        (('[11/29 10:00:00 d2.utils.events]:  eta: 1:10:00  iter: 19  total_loss: 2.0  '
            'loss_cls: 0.7  time: 0.5  lr: 0.0009'),
         19, None, None, 2.0),
        (('Epoch: [3]  [  50/5004]  eta: 0:40:00  lr: 0.001  loss: 6.9 (6.95)  time: 0.'
            '4  data: 0.01  max mem: 12345'),
         50, 5004, None, 6.9),
        (('Train: 12 [  50/1251 (  4%)]  Loss: 5.91 (5.91)  Time: 0.398s, 2571.5/s  LR:'
            ' 1e-3'),
         50, 1251, None, 5.91),
        (('      1/100      4.2G      1.2       2.3      1.1        45        640:  10%'
            '|█         | 12/118 [00:05<00:40,  2.6it/s]'),
         12, 118, None, None),
        ('|   Step 500   |   loss 1.5   |',
         500, None, None, 1.5),
        ('global_step: 1000, train_loss: 0.5, lr: 0.1',
         1000, None, None, 0.5),
        ('[Step 5] loss=0.44 tokens/sec/gpu=1234',
         5, None, 1234.0, 0.44),
        ('step:5/1750 train_loss:6.3 train_time:2000ms step_avg:400.0ms',
         5, 1750, None, 6.3),
        ('update 300, reward 2.1',
         300, None, None, None),
        ('Processed 12800 samples, avg loss 2.2',
         None, None, None, 2.2),
        ('num_updates: 55 | wps: 1000',
         55, None, 1000.0, None),
        ('steps=7 tok_per_sec=88000 loss=nan',
         7, None, 88000.0, None),
        ('throughput: 123456 tokens/s',
         None, None, 123456.0, None),
    ],
)  # fmt: skip
def test_a_line_of_a_known_trainer_is_read(
    line: str, step: int | None, total: int | None, rate: float | None, loss: float | None
) -> None:
    text = printable(line)
    bar = parse_bar(text)
    reading = None if bar else numbers.read_counter(text)
    found = bar.n if bar else reading.step if reading else None
    of = bar.total if bar else reading.total if reading else None
    assert (found, of, *numbers.figures(text)) == (step, total, rate, loss)


@pytest.mark.parametrize(
    "line",
    [
        "***** Running training *****", "  Num examples = 1,000", "  Num Epochs = 3",
        "  Total optimization steps = 30", "  Gradient Accumulation steps = 1",
        "max_steps=1000, save_steps: 500, eval_steps=200, warmup_steps 10", "train_steps: 5000",
        "epochs: 3", "num_epochs=3 batch_size=8", "Will train for 3 epochs", "n_steps 100",
        "Resuming from checkpoint at step 500", "Loaded checkpoint (step 500)",
        "  Continuing training from global step 1200", "  Continuing training from epoch 3",
        "diffusion steps: 50", "log_every_n_steps=50", "micro_batch_size 4",
    ],
)  # fmt: skip
def test_settings_and_plans_are_no_progress(line: str) -> None:
    assert numbers.read_counter(line) is None


@pytest.mark.parametrize(
    ("line", "epoch", "value"),
    [
        ("{'loss': 1.9, 'epoch': 0.5}", 0.5, 0.5),
        ("epoch: 3 step: 5", 3.0, 5.0),
        ("epoch 1 iter 4 loss 2", 1.0, 1e9 + 4),
        ("Epoch(train)  [2][  50/3000] loss: 1", 2.0, 2e9 + 50),
        ("Epoch 3/10", 3.0, 3.0),
        ("INFO: End of epoch 252 / 500000   Time Taken: 40 sec", 252.0, 252.0),
    ],
)
def test_epochs_are_read_and_order_what_starts_again_with_them(
    line: str, epoch: float, value: float
) -> None:
    reading = numbers.read_counter(line)
    assert reading is not None
    assert (reading.epoch, reading.value) == (epoch, value)


@pytest.mark.parametrize(
    ("line", "per_s"),
    [
        (" 8%|# | 19/241 [0:09<0:27, 3.33s/it]", 1 / 3.33),
        ("Epoch 2: 34%|# | 100/297 [00:10<00:20,  9.77it/s, v_num=0]", 9.77),
        ("100%|##| 9/9 [00:01<00:00, 9.0batch/s]", 9.0),
        ("12it [00:03,  4.0it/s]", 4.0),
        ("0%| | 1/50 [00:00<?, ?it/s]", None),
    ],
)
def test_bars_say_their_speed(line: str, per_s: float | None) -> None:
    bar = parse_bar(line)
    assert bar is not None
    assert bar.per_s == per_s


def test_a_step_of_an_evaluation_has_its_name_before_it() -> None:
    reading = numbers.read_counter("Evaluating: step 5/50")
    assert reading is not None
    assert reading.before.strip() == "Evaluating:"
