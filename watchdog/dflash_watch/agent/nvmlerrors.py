"""What the driver says, in words that a person can act on."""

from __future__ import annotations

import re
from typing import Optional

import pynvml

from dflash_watch.agent import proc

NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 4, 9, 12
GPU_IS_LOST, MISMATCH, UNKNOWN = 15, 18, 999


CAUSES = {
    LIBRARY_NOT_FOUND: "no-library",
    DRIVER_NOT_LOADED: "not-loaded",
    NO_PERMISSION: "no-permission",
    GPU_IS_LOST: "lost",
    MISMATCH: "mismatch",
    UNKNOWN: "unknown-error",
}


def cause(error: pynvml.NVMLError) -> Optional[str]:
    """The same as a word that a program can go by (docs/frames.md); None for any other code."""
    return CAUSES.get(int(error.value))


def explain(error: pynvml.NVMLError, root: str) -> str:
    """Why there is no GPU view at all."""
    code = int(error.value)
    texts = {
        LIBRARY_NOT_FOUND: "no NVIDIA library (libnvidia-ml.so.1) here: no GPU, or its user space"
        " is not in this container",
        DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded, or its device nodes are not in this"
        " container",
        NO_PERMISSION: "the NVIDIA driver refuses: no permission for the device nodes (device"
        " cgroup or file mode)",
        GPU_IS_LOST: "a GPU is lost (fell off the bus): see Xid lines in the host's kernel log",
        UNKNOWN: "the NVIDIA driver says 'unknown error': access to the devices was"
        " taken away (systemd daemon-reload rewrites device rules of containers); jobs may go on",
    }
    if code == MISMATCH:
        return (
            f"driver/library version mismatch{_both_versions(root)}: the libraries were updated"
            " under the loaded module; running jobs go on, new CUDA programs fail until it is"
            " reloaded"
        )
    return texts.get(code, f"the NVIDIA driver says: {error} ({code})")


def _both_versions(root: str) -> str:
    """Those that are known, in brackets with a blank before; empty when none is."""
    module, library = loaded_version(root), library_version()
    known = [f"kernel module {module}"] if module else []
    known += [f"library {library}"] if library else []
    return f" ({', '.join(known)})" if known else ""


def library_version(maps: str = "/proc/self/maps") -> Optional[str]:
    """Version in the name of the NVML library's file, which this process has loaded."""
    text = proc.read_text(maps, 1 << 20) or ""
    found = re.search(r"/libnvidia-ml\.so\.(\d{3}\.\d+(?:\.\d+)?)", text)
    return found.group(1) if found else None


def loaded_version(root: str) -> Optional[str]:
    """Version of the loaded kernel module."""
    text = proc.read_text(root + "/driver/nvidia/version", 4096) or ""
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    if found:
        return found.group(1)
    version = proc.read_text("/sys/module/nvidia/version", 64)
    return version.strip() if version else None


def field_error(error: pynvml.NVMLError) -> str:
    """Why one field has no value."""
    return {
        pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not supported by this driver",
        NO_PERMISSION: "no permission",
        GPU_IS_LOST: "GPU is lost",
        UNKNOWN: "unknown error",
    }.get(error.value, f"{error} ({error.value})")
