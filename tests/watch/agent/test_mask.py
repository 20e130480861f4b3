"""Secrets in command lines never leave the watched machine; the rules: dflash_events.secrets."""

from __future__ import annotations

from dflash_watch.agent.mask import command_text


def test_a_long_command_is_cut_and_stays_one_line():
    text = command_text(["python", "-c", "a\nb" * 500])
    assert len(text) == 400
    assert "\n" not in text


def test_the_words_are_masked_one_by_one_and_beside_each_other():
    assert command_text(["train.py", "--token", "two words"]) == "train.py --token ***"
    assert command_text(["sshpass", "-p", "pw", "ssh", "box"]) == "sshpass -p *** ssh box"
