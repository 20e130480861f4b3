"""Symptoms that one look shows, and a live watcher would want to see twice.

Nobody can take a second look at what was pasted, so the person's own words stand in for it: a
state in a listing of a run that is said to be silent. They carry the live detectors' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dflash_watch.engine import Engine
from dflash_watch.frame import Frame
from dflash_watch.model import Evidence as Told
from dflash_watch.model import EvidenceKind, Severity, Source, Symptom
from dflash_watch.pasted.echoes import first_own_error
from dflash_watch.pasted.evidence import Evidence, PastedProcess
from dflash_watch.pasted.figures import held_down, spinning, waits_for_data
from dflash_watch.pasted.outlook import Outlook
from dflash_watch.readers.gpumodel import GpuText
from dflash_watch.units import clipped, count, percent

_MONITOR = re.compile(
    r"(?i)\b(?:\w*exporter|dcgm\w*|nv-hostengine|nvidia-smi|nvtop|nvitop|gpustat|telegraf|collectd"
    r"|prometheus|netdata|zabbix\w*|node[-_]problem\w*|py-spy|dflash-watch)\b"
)
_PIPE = re.compile(r"^(?:\S*/)?(?:tee|less|more|grep|awk|sed|ts|cat|rotatelogs|multilog)\b")
_DRIVER_TOOL = re.compile(
    r"^(?:\S*/)?(?:nvidia-(?:smi|persistenced|modprobe)|rocm-smi|nv-hostengine)\b"
)
_WRAPPER = re.compile(
    r"^(?:nohup: (?:ignoring input|appending output|redirecting stderr)\b.*|\s*)$"
)
"""Lines of what starts a program, not of the program."""
_DRIVER = re.compile(r"(?i)nvidia|uvm|nv_|rm_|amdgpu|kfd|drm")
LOW_SHARE, RATE_OVER_S = 0.85, 60.0
"""Below this share of what was promised a run is slow, as for a live one."""
DEAD = frozenset("ZX")
ENDED_BAD = 2
"""Readings at the end that a live run would be given time to take back."""
LEFT_BYTES = 2**30
"""Memory on a card beyond what an idle driver keeps."""


def sights(evidence: Evidence, frame: Frame) -> Iterator[Symptom]:
    """Symptoms of the pasted look, oldest reasoning first: view, end, states, GPUs."""
    t = frame.t
    monitors = [one for one in evidence.all_processes if _MONITOR.search(one.cmd or "")]
    own = [one for one in evidence.all_processes if one not in monitors]
    for one in monitors:
        if (one.state or "")[:1] == "D" and _is_driver_tool(one):
            yield from _state(one, t)
        elif (one.state or "")[:1] == "D":
            yield _symptom("link-lost", "link", t, f"the monitor itself hangs: {_words(one)}")
    if evidence.gpus is not None:
        yield from _refusals(evidence.gpus, t)
    gone = evidence.observed.process_alive is False
    left = list(_left_over(frame, t)) if gone or not own else []
    yield from left
    for one in own:
        if not _is_child(one, own):
            yield from _state(one, t)
        elif (one.state or "")[:1] in DEAD:
            text = f"worker process {one.pid} is dead, its parent goes on"
            yield _symptom("loader-worker-gone", "run", t, text)


def late_sights(evidence: Evidence, engine: Engine, outlook: Outlook) -> Iterator[Symptom]:
    """Symptoms that need to know whether the run is alive and gets on."""
    t = engine.window.now_t
    done = engine.window.logs.done
    ended = evidence.observed.process_alive is False
    left = any(one.name == "gpu-memory-unowned" for one in outlook.symptoms)
    if ended and not left and (not outlook.is_done or outlook.ends_in_error()):
        yield _symptom("main-process-gone", "run", t, "the process is not there any more")
    raised = first_own_error(engine.window.logs)
    if not ended and outlook.alive is False and raised is not None and raised.rank is None:
        text = clipped(f"the log ends in {raised.exception}: {raised.message}")
        yield _symptom("main-process-gone", "run", t, text, Source.LOG)
    yield from _below_promise(evidence, engine)
    yield from _by_figures(evidence, engine, outlook)
    yield from _unseen_output(evidence, engine, outlook)
    yield from _broken_numbers(engine)
    unbound = [one for one in engine.window.logs.signatures if one.failure == "kernels-missing"]
    if unbound:
        yield _symptom("kernels-unbound", "run", t, clipped(unbound[0].text), Source.LOG)
    if outlook.is_done and outlook.seen_alive and done is not None and not outlook.steps_advance:
        text = f"log says {done.text.strip()[:120]!r}, and the process is still there"
        yield _symptom("exit-overdue", "run", t, text, Source.LOG)
    shown = evidence.log is not None and bool(evidence.log.strip())
    if outlook.steps_advance and shown and not outlook.steps_seen:
        text = "steps go on, and no line of the log counts them"
        yield _symptom("log-without-steps", "run", t, text, Source.LOG)


def _by_figures(evidence: Evidence, engine: Engine, outlook: Outlook) -> Iterator[Symptom]:
    gpus = evidence.gpus.gpus if evidence.gpus is not None else ()
    log, t = engine.window.logs.main(), engine.window.now_t
    if outlook.steps_advance or (outlook.alive and outlook.steps_at_end()):
        yield from waits_for_data(list(log.lines) if log is not None else [], t)
    if outlook.steps_advance:
        yield from held_down(gpus, t)
    elif evidence.observed.silent_s is not None:
        yield from spinning(gpus, t)


def _unseen_output(evidence: Evidence, engine: Engine, outlook: Outlook) -> Iterator[Symptom]:
    """Silence that says nothing: not one line ever came, or the output goes through a pipe."""
    if outlook.alive is not True or evidence.observed.silent_s is None or evidence.all_stacks:
        return
    t = engine.window.now_t
    lines = evidence.log.splitlines() if evidence.log is not None else ["?"]
    blank = all(_WRAPPER.match(line) for line in lines)
    piped = any(_PIPE.match(one.cmd or "") for one in evidence.all_processes)
    if blank or (piped and not engine.window.logs.signatures):
        text = "not one line has come" if blank else "the output goes through a pipe"
        yield _symptom("log-buffered", "run", t, f"{text}: it may wait in a buffer", Source.LOG)


def _broken_numbers(engine: Engine) -> Iterator[Symptom]:
    """Numbers that were good and ended bad: more readings than were pasted nobody can wait for."""
    t = engine.window.now_t
    for one in engine.window.numerics.streaks.values():
        if one.good and one.bad == ENDED_BAD:
            text = f"{one.what.replace('_', ' ')} is {one.value}, the last {one.bad} readings"
            yield _symptom("loss-not-finite", "run", t, text, Source.LOG)


def _below_promise(evidence: Evidence, engine: Engine) -> Iterator[Symptom]:
    """Tokens a second of the log against what the person expects."""
    promised = evidence.context.expected_tokens_per_s if evidence.context is not None else None
    now = engine.window.told.throughput.mean(engine.window.now_t - RATE_OVER_S)
    if promised and now is not None and now < LOW_SHARE * promised:
        text = f"{count(now)} tok/s, {percent(now / promised)} of {count(promised)} expected"
        yield _symptom("throughput-low", "run", engine.window.now_t, text, Source.LOG)


def _is_child(one: PastedProcess, listed: Sequence[PastedProcess]) -> bool:
    """Does a living process of the same listing stand above it, by its number or its parent's?"""
    for other in listed:
        if other is one or other.pid is None or one.pid is None or (other.state or "")[:1] in DEAD:
            continue
        if one.ppid == other.pid or (one.ppid is None and other.pid < one.pid):
            return True
    return False


def _state(one: PastedProcess, t: float) -> Iterator[Symptom]:
    state = (one.state or "")[:1]
    if state in {"T", "t"}:
        by = "traced" if state == "t" else "stopped by a signal or left so by a tracer"
        yield _symptom("process-in-stop", "run", t, f"state {state}: {by}")
    elif state in DEAD:
        yield _symptom(
            "main-process-zombie", "run", t, f"state {state}: dead, only its entry is left"
        )
        return
    where = " ".join([one.wchan or "", *one.kernel_stack])
    if state == "R" and _DRIVER.search(where):
        yield _symptom("driver-call-held", "run", t, f"{_words(one)}: held inside the driver")
    elif state == "D":
        yield _symptom("process-in-disk-wait", "run", t, f"{_words(one)}: held inside the kernel")
        held = _DRIVER.search(where) or _is_driver_tool(one)
        name = "driver-call-held" if held else "storage-wait"
        yield _symptom(name, "run", t, f"{_words(one)}: held inside the kernel")


def _is_driver_tool(one: PastedProcess) -> bool:
    """A tool that does nothing but ask the driver, and no kernel frame that says otherwise."""
    return not one.kernel_stack and bool(_DRIVER_TOOL.match(one.cmd or ""))


def _refusals(text: GpuText, t: float) -> Iterator[Symptom]:
    """What the tool said in place of figures."""
    for one in text.trouble[:4]:
        if one.kind == "lost":
            yield _symptom("logged-gpu-lost", "run", t, one.text, Source.GPU)
        elif not text.gpus:
            yield _symptom("gpu-unseen", "host", t, one.text, Source.GPU)


def _left_over(frame: Frame, t: float) -> Iterator[Symptom]:
    """Memory on a card that nobody is listed for, after the run ended."""
    for gpu in frame.gpus or ():
        if gpu.processes == () and (gpu.memory_used_bytes or 0) >= LEFT_BYTES:
            gib = (gpu.memory_used_bytes or 0) / 2**30
            text = f"{gib:.1f} GiB in use on gpu{gpu.index} and no process is listed"
            yield _symptom("gpu-memory-unowned", f"gpu{gpu.index}", t, text, Source.GPU)


def _words(one: PastedProcess) -> str:
    parts = [one.cmd or "process", f"state {one.state}"]
    where = one.wchan or (one.kernel_stack[0] if one.kernel_stack else None)
    return ", ".join([*parts, f"in {where}"] if where else parts)


def _symptom(
    name: str, subject: str, t: float, text: str, source: Source = Source.PROCESS
) -> Symptom:
    own = Told(kind=EvidenceKind.FOR, text=text, source=source)
    return Symptom(
        name=name, subject=subject, severity=Severity.CRITICAL, since_t=t, summary=text,
        source=source, evidence=(own,),
    )  # fmt: skip
