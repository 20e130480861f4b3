"""A healthy loop that talks as a Hugging Face Trainer: a bar redrawn with \\r, dicts between."""

import argparse
import math
import sys
import time

BLOCKS = " ▏▎▍▌▋▊▉█"


def clock(seconds):
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def draw(done, total, began, out=sys.stderr):
    """One tqdm line, ten cells wide, without a line end."""
    elapsed = time.monotonic() - began
    rate = done / elapsed if done and elapsed else 0.0
    left = clock((total - done) / rate) if rate else "?"
    eighths = int(done / total * 80)
    bar = (BLOCKS[8] * (eighths // 8) + BLOCKS[eighths % 8]).ljust(10)[:10]
    speed = f"{rate:5.2f}it/s" if rate else "?it/s"
    out.write(f"\r{done / total:4.0%}|{bar}| {done}/{total} [{clock(elapsed)}<{left}, {speed}]")
    out.flush()


def evaluate(batches, batch_s):
    """A second bar below the first, as Trainer.evaluate shows it."""
    began = time.monotonic()
    for batch in range(1, batches + 1):
        time.sleep(batch_s)
        draw(batch, batches, began)
    sys.stderr.write("\r" + " " * 70 + "\r")
    print(f"{{'eval_loss': 1.2345, 'eval_runtime': {time.monotonic() - began:.4f}}}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--logging-steps", type=int, default=10)
    parser.add_argument("--eval-steps", type=int, default=0, help="evaluate so often; 0 never")
    parser.add_argument("--eval-batches", type=int, default=20)
    args = parser.parse_args()

    began = time.monotonic()
    draw(0, args.steps, began)
    for step in range(1, args.steps + 1):
        time.sleep(args.step_s)
        draw(step, args.steps, began)
        loss = 0.5 + 6 * math.exp(-step / 80)
        epoch = step / args.steps
        if step % args.logging_steps == 0:
            sys.stderr.write("\n")
            print(
                f"{{'loss': {loss:.4f}, 'grad_norm': {1 + loss:.4f}, "
                f"'learning_rate': {5e-05 * (1 - epoch):.3e}, 'epoch': {epoch:.2f}}}",
                flush=True,
            )
        if args.eval_steps and step % args.eval_steps == 0:
            evaluate(args.eval_batches, args.step_s / 2)
    runtime = time.monotonic() - began
    sys.stderr.write("\n")
    print(
        f"{{'train_runtime': {runtime:.4f}, 'train_samples_per_second': "
        f"{args.steps * 8 / runtime:.3f}, 'train_steps_per_second': {args.steps / runtime:.3f}, "
        f"'train_loss': 1.0, 'epoch': 1.0}}",
        flush=True,
    )


if __name__ == "__main__":
    main()
