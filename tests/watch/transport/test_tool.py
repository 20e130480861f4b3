"""The operator's own py-spy is found however it was installed, and sent only where it runs."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_watch.transport.tool import built_for_machine, find_tool, read_tool

SOURCES = Path(__file__).parents[3]
ASK = "from dflash_watch.transport.tool import find_tool; print(find_tool())"


def test_the_binary_of_this_environment_is_found_and_is_a_program():
    assert find_tool() is not None
    data = read_tool(platform.machine())
    assert isinstance(data, bytes)
    assert data.startswith(b"\x7fELF")


def test_another_architecture_gets_nothing_and_is_told_both_machines():
    assert read_tool("riscv128") == (
        f"the watcher's py-spy is for {platform.machine()}, that machine is riscv128"
    )


@pytest.mark.parametrize(
    ("head", "machine"),
    [
        (b"\x7fELF\2\1\1" + bytes(11) + b"\x3e\0", "x86_64"),
        (b"\x7fELF\2\1\1" + bytes(11) + b"\xb7\0", "aarch64"),
        (b"\x7fELF\2\2\1" + bytes(11) + b"\0\x16", "s390x"),
        (b"\x7fELF\2\1\1" + bytes(11) + b"\xf3\0", "machine type 243"),
        (b"\xcf\xfa\xed\xfe" + bytes(40), None),
        (b"\x7fELF", None),
    ],
)
def test_the_file_says_which_machine_it_is_for(head, machine):
    assert built_for_machine(head) == machine


def test_a_package_installed_with_target_is_found_beside_its_metadata(tmp_path):
    """As `pip install --target DIR`: metadata in DIR, program in DIR/bin, nothing on PATH."""
    metadata = tmp_path / "py_spy-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: py-spy\nVersion: 9.9\n")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "py-spy"
    shutil.copy(find_tool(), program)
    bare = Path(sys.base_prefix) / "bin" / Path(sys.executable).name
    path = ":".join(str(folder) for folder in (tmp_path, SOURCES / "watchdog", SOURCES / "dflash"))
    answer = subprocess.run(
        [str(bare), "-S", "-s", "-c", ASK],
        env={"PYTHONPATH": path, "PATH": "/nonexistent", "HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer.stdout.strip() == str(program)
