"""A plain training loop over a compiled model whose shapes change: long silent compiles.

Knows nothing of this project; prints a line a step. Needs torch and a C++ compiler.
"""

import argparse
import time

import torch
from torch import nn


def build(depth, width):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--shapes", type=int, default=3, help="compiled one after the other")
    parser.add_argument("--step-s", type=float, default=0.2, help="rest between steps")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = build(args.depth, args.width)
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    end_s, step = time.monotonic() + args.seconds, 0
    while time.monotonic() < end_s:
        rows = 8 * (1 + min(int(step / 100), args.shapes - 1))
        loss = compiled(torch.randn(rows, args.width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        print(f"iter {step} loss {loss.item():.4f}", flush=True)
        time.sleep(args.step_s)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
