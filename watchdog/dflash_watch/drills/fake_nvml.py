"""Eight H200s where there are none: a real `libnvidia-ml.so.1`, driven by a file.

    nvml = FakeNvml.build(folder)
    nvml.gpu(0, util=99, power_mw=690_000, sm=96, tensor=93, dram=17, used=70 << 30)
    nvml.process(0, pid=os.getpid(), num_bytes=9 << 30)
    nvml.lose(3); nvml.hang("nvmlDeviceGetSamples", gpu=2)
    subprocess.run(..., env=nvml.environment())          # the normal search path
    Agent(config={"gpu_library": str(nvml.library)})      # where the environment does not travel

Every call looks at the file again, so a change shows in programs that run already. The file is
`state.txt` beside the library itself, also when that was reached through a link: a folder that is
mounted into a container works there, with a link to the library in `/usr/lib/x86_64-linux-gnu`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
NAME = "libnvidia-ml.so.1"
COMPILE = ("gcc", "-O1", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden")


class FakeNvml:
    """One fake driver in one folder; each change is written at once, and whole.

    Args:
        folder: holds the library, or will.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = folder / NAME
        self.state = folder / "state.txt"
        self._lines: dict[tuple[object, ...], str] = {}

    @classmethod
    def build(cls, folder: Path) -> FakeNvml:
        """Compile the library into a folder.

        Raises:
            FileNotFoundError: no gcc here.
            subprocess.CalledProcessError: it does not compile.
        """
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / NAME
        subprocess.run(
            [*COMPILE, "-o", str(library), str(SOURCE), "-ldl"],
            check=True,
            capture_output=True,
            text=True,
        )
        return cls(folder)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """An environment in which the loader finds this library first."""
        path = base.get("LD_LIBRARY_PATH", "")
        return {**base, "LD_LIBRARY_PATH": str(self.folder) + (":" + path if path else "")}

    def reset(self) -> None:
        """Eight idle GPUs again."""
        self._lines.clear()
        self._write()

    def gpus(self, count: int) -> None:
        """How many there are."""
        self._set(("gpus",), f"gpus {count}")

    def gpu(self, index: int, **values: float) -> None:
        """Values of one GPU.

        Keys: `util` (percent), `burst_ms` (on and off for so long), `power_mw`, `limit_mw`,
        `temp_c`, `sm_mhz`, `reasons`, `ecc`, `links` (NVLinks that are up, -1: none at all), `used`
        and `total` (bytes), `gpm` (0: not supported), `mig` (1: cut into instances),
        `sm`, `tensor`, `dram` (percent, through GPM).
        """
        for key, value in values.items():
            self._lines["gpu", index, key] = f"gpu {index} {key} {value}"
        self._write()

    def process(self, index: int, pid: int, num_bytes: int) -> None:
        """A process that holds memory there."""
        self._set(("process", index, pid), f"gpu {index} process {pid} {num_bytes}")

    def lose(self, index: int) -> None:
        """It falls off the bus: every call says 15 (GPU is lost)."""
        self.gpu(index, lost=1)

    def xid(self, index: int, number: int) -> None:
        """An event of the driver, seen by those who have registered for it before."""
        serial = sum(key[0] == "xid" for key in self._lines) + 1
        self._set(("xid", serial), f"xid {serial} {index} {number}")

    def init_error(self, code: int) -> None:
        """What nvmlInit returns: 9 not loaded, 18 version mismatch, 999 unknown, 0 well."""
        self._set(("init",), f"init {code}")

    def refuse(self, call: str, code: int, gpu: int = -1) -> None:
        """A call returns this code, on one GPU or (-1) on all; 0 takes it back."""
        self._set(("rule", call, gpu), f"refuse {call} {code} {gpu}")

    def hang(self, call: str, gpu: int = -1) -> None:
        """A call never returns."""
        self._set(("rule", call, gpu), f"hang {call} {gpu}")

    def hold(self, call: str, gpu: int = -1) -> None:
        """A call stays in the kernel, in state D, for ten minutes."""
        self._set(("rule", call, gpu), f"hold {call} {gpu}")

    def heal(self, call: str, gpu: int = -1) -> None:
        """The call works again, for processes that are not stuck in it."""
        self._lines.pop(("rule", call, gpu), None)
        self._write()

    def _set(self, key: tuple[object, ...], line: str) -> None:
        self._lines[key] = line
        self._write()

    def _write(self) -> None:
        part = self.state.with_suffix(".part")
        part.write_text("".join(line + "\n" for line in self._lines.values()))
        part.replace(self.state)
