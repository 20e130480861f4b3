"""Writes the golden screens anew: `python tests/tui/draw_golden.py`, then read the difference."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dflash_tui.screen import text_of

from tui.screens import GOLDEN, GOLDEN_SCREENS, rows_of

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, width, height in GOLDEN_SCREENS:
        text = text_of(rows_of(name, width, height))
        (GOLDEN / f"{name}-{width}x{height}.txt").write_text(text, "utf-8")
