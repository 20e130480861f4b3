"""Which GPU plays which role: by the person's word, else by run.json."""

from __future__ import annotations

import re

from dflash_watch.model import RunOptions
from dflash_watch.window import Window
from dflash_watch.window.gpus import GpuTrack


def gpu_roles(window: Window, options: RunOptions) -> dict[int, str]:
    """GPU index -> `target` or `drafter`; empty when nobody said."""
    said = {index: role for role, indices in options.roles.items() for index in indices}
    if said:
        return dict(sorted(said.items()))
    by_uuid = {track.sample.uuid: index for index, track in window.gpus.tracks.items()}
    roles = {}
    for worker in window.manifest.get("workers") or ():
        role, uuid = worker.get("role"), worker.get("gpu_uuid")
        if role not in {"target", "drafter"}:
            continue
        found = re.fullmatch(r"cuda:(\d+)", str(worker.get("device") or ""))
        index = by_uuid.get(uuid) if uuid else None
        if index is None and found is not None:
            index = int(found[1])
        if index is not None:
            roles[index] = str(role)
    return dict(sorted(roles.items()))


def cards_of_run(window: Window, options: RunOptions) -> dict[int, GpuTrack]:
    """The GPUs that the run uses: by their roles, else by its processes; all while nobody can tell.

    On a shared machine the others are somebody else's: what they do says nothing of this run.
    """
    roles, pids = gpu_roles(window, options), window.tracks.pids()
    return {
        index: track
        for index, track in window.gpus.tracks.items()
        if (index in roles if roles else window.gpus.is_used(index, pids))
    }
