"""A healthy loop that is silent for long while it writes a checkpoint, then goes on."""

import argparse
import os
import time
from pathlib import Path


def write_checkpoint(path, seconds, block_bytes):
    """Write slowly, as to a network file system; the file is replaced in one step at the end."""
    part = path.with_suffix(".part")
    end = time.monotonic() + seconds
    with part.open("wb") as file:
        while time.monotonic() < end:
            file.write(b"w" * block_bytes)
            file.flush()
            os.fsync(file.fileno())
            if file.tell() > 64 * block_bytes:
                file.seek(0)
            time.sleep(0.05)
    part.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--write-s", type=float, default=30.0)
    parser.add_argument("--block-bytes", type=int, default=65536)
    parser.add_argument("--dir", type=Path, required=True)
    args = parser.parse_args()

    args.dir.mkdir(parents=True, exist_ok=True)
    for step in range(1, args.steps + 1):
        time.sleep(args.step_s)
        print(f"step {step}/{args.steps} loss {2 + 1 / step:.4f} tok/s 9000", flush=True)
        if step % args.every == 0:
            path = args.dir / f"step-{step}.bin"
            print(f"Saving model checkpoint to {path}", flush=True)
            write_checkpoint(path, args.write_s, args.block_bytes)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
