"""What may be typed as a value, and the one line that answers a wrong one."""

import contextlib

import pytest
from dflash_watch.commands import values
from dflash_watch.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.2.6", (None, "10.1.2.6", None)),
        ("root@10.1.2.6", ("root", "10.1.2.6", None)),
        ("root@gpu-box:2222", ("root", "gpu-box", 2222)),
        ("gpu_box", (None, "gpu_box", None)),
        ("::1", (None, "::1", None)),
        ("[::1]", (None, "::1", None)),
        ("[::1]:22", (None, "::1", 22)),
        ("me@[fe80::1%eth0]:65535", ("me", "fe80::1%eth0", 65535)),
        ("DOM@user@host", ("DOM@user", "host", None)),
    ],
)
def test_a_host_splits_into_user_name_and_port(text, expected):
    assert values.parse_host(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "@host", "user@", "host:", "host:0", "host:65536", "host:ssh", "[::1]:x", "-oProxy=x",
     "me@-oX", "-l@host", "a b", "host;ls", "host\n", "[::1", "host:2²"],
)  # fmt: skip
def test_what_is_no_host_is_refused_in_one_line(text):
    with pytest.raises(UsageError) as refused:
        values.parse_host(text)
    assert "--host" in str(refused.value)
    assert "write" in str(refused.value) or "brackets" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("target=0-4,drafter=5-7", {"target": (0, 1, 2, 3, 4), "drafter": (5, 6, 7)}),
        ("target=0,2,drafter=1", {"target": (0, 2), "drafter": (1,)}),
        ("drafter=7", {"drafter": (7,)}),
        ("target=0-1, drafter=2-3", {"target": (0, 1), "drafter": (2, 3)}),
        ("target=3,target=1", {"target": (1, 3)}),
    ],
)
def test_roles_name_the_gpus_of_each_role(text, expected):
    assert values.parse_roles(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "nothing given"),
        ("0-4", "has no role"),
        ("targets=0-4", "did you mean target?"),
        ("ship=0", "expected one of"),
        ("target=4-0", "rising range"),
        ("target=a", "rising range"),
        ("target=", "rising range"),
        ("target=0-4,drafter=4-7", "GPU 4 is named twice"),
    ],
)
def test_wrong_roles_are_answered_with_what_would_be_right(text, told):
    with pytest.raises(UsageError, match="--roles") as refused:
        values.parse_roles(text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("text", "rate"), [("14200", 14200), ("14.2k", 14200), ("14.2K", 14200), ("1M", 1e6)]
)
def test_a_rate_may_carry_a_multiple(text, rate):
    assert values.parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "14,2k", "nan", "inf", "1e3"])
def test_a_rate_is_a_number_above_zero(text):
    with pytest.raises(UsageError, match="--expect-tokens-per-s"):
        values.parse_rate(text)


@pytest.mark.parametrize("text", ["nan", "inf", "0", "61", "x", ""])
def test_a_number_out_of_range_is_refused(text):
    with pytest.raises(UsageError, match="--every-s"):
        values.parse_number("--every-s", text, 0.2, 60)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "python", "", "²"])
def test_a_pid_is_a_whole_number_above_zero(text):
    with pytest.raises(UsageError, match="--pid"):
        values.parse_pid(text)


@pytest.mark.parametrize("text", ["(", "", "*x"])
def test_a_pattern_must_compile_and_say_something(text):
    with pytest.raises(UsageError, match="--match"):
        values.parse_pattern(text)


@pytest.mark.parametrize("text", ["", "-x", "a b", "../200", "200;id", "$(id)", "a/b"])
def test_a_container_name_carries_no_shell_and_no_option(text):
    with pytest.raises(UsageError, match="--ct"):
        values.parse_entry("--ct", text)


def test_a_proxmox_container_has_a_number_and_another_way_is_named():
    assert values.parse_entry("--ct", "200") == "200"
    with pytest.raises(UsageError, match="--exec 'lxc-attach -n train --'"):
        values.parse_entry("--ct", "train")
    with pytest.raises(UsageError, match=r"write \[NAMESPACE/\]POD"):
        values.parse_entry("--kubectl", "a/b/c/d")


def test_dashes_alone_make_no_option_alike():
    assert values.did_you_mean("--once", ["--docker", "--host"]) is None
    assert values.did_you_mean("--hots", ["--docker", "--host"]) == "did you mean --host?"


def test_a_pod_may_name_its_namespace():
    assert values.parse_entry("--kubectl", "train/worker-0") == "train/worker-0"


@pytest.mark.parametrize("text", ["", "  ", "'open"])
def test_a_command_needs_a_word_and_closed_quotes(text):
    with pytest.raises(UsageError, match="--exec"):
        values.parse_command("--exec", text)


@given(st.text(max_size=40))
def test_any_text_gives_a_value_or_one_clear_line(text):
    for parse in (values.parse_host, values.parse_roles, values.parse_rate, values.parse_pid):
        with contextlib.suppress(UsageError):
            parse(text)
