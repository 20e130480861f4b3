"""What log lines say about when they were written."""

import pytest
from dflash_watch.readers.stamps import between_s, read_stamp


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ("2026-11-29 18:48:33 step=1", "2026-11-29 18:48:45 step=2", 12.0),
        ("[2026-11-29T18:48:33.250] step 1", "[2026-11-29T18:48:33.750] step 2", 0.5),
        ("2026-11-29 23:59:58,900 step 1", "2026-11-30 00:00:01,900 step 2", 3.0),
        ("INFO 2026/11/29 10:00:00 step 1", "INFO 2026/11/29 10:01:40 step 2", 100.0),
        ("11/29/2026 10:00:00 - INFO - step 1", "11/29/2026 10:00:07 - INFO - step 2", 7.0),
        ("18:48:33 step 1", "18:49:33 step 2", 60.0),
        ("[23:59:59] step 1", "[00:00:04] step 2", 5.0),
        ("INFO:18:48:33 step 1", "INFO:18:48:35 step 2", 2.0),
        (" 1%| | 1/100 [00:05<08:15, 5.0s/it]", " 2%| | 2/100 [00:11<08:15, 5.0s/it]", 6.0),
        ("9/100 [1:00:05<08:15]", "10/100 [1:01:05<08:15]", 60.0),
    ],
)
def test_the_time_between_two_lines_is_what_they_state(before, after, seconds):
    assert between_s(read_stamp(before), read_stamp(after)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("step 1 loss 2.0", "step 2 loss 1.9"),
        ("2026-11-29 18:48:33 step 1", "18:48:45 step 2"),
        ("2026-11-29 18:48:33 step 1", "2026-11-29 18:48:20 step 2"),
        ("2026-11-29 08:00:00 step 1", "2026-11-29 18:00:00 step 2"),
        ("step 1 took 00:00:12", "step 2 took 00:00:13"),
        ("2026-13-41 18:48:33 step 1", "2026-13-41 18:48:34 step 2"),
        ("1/100 [00:50<00:05]", "1/100 [00:02<00:05]"),
    ],
)
def test_lines_that_state_nothing_or_lie_in_two_runs_tell_no_time(before, after):
    assert between_s(read_stamp(before), read_stamp(after)) is None
