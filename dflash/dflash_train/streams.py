"""Named, repeatable streams of randomness: each draw depends on the seed and on what it is for."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A fresh CPU generator for one purpose, e.g. `generator(seed, "anchors", batch_index)`.

    Equal arguments give equal draws on every machine, whatever was drawn before, so a resumed run
    needs no saved state of it.
    """
    text = "\0".join(str(part) for part in (seed, *names))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
