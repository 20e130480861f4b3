"""Pictures of the dashboard, without a terminal and without a run.

    python docs/screenshot.py --scene running --size 120x40 --out docs/img/dashboard.png
    tmux capture-pane -e -p | python docs/screenshot.py --ansi - --size 120x40 --out terminal.png
    python docs/screenshot.py --scene stalled --size 80x24 --svg --out stalled.png

The first two draw cell by cell: braille and blocks are shapes, so no font decides where they stand.
With `--svg` the picture is the one that the framework itself exports, drawn by resvg.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import NamedTuple

from dflash_tui.cells import Row
from dflash_tui.dashboard import DemoDashboard
from dflash_tui.demo.feed import DemoFeed, FrozenClock
from dflash_tui.demo.scenes import SCENES
from dflash_tui.desk import Desk
from dflash_tui.keys import keys_for
from dflash_tui.screen import compose
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import PALETTES, style_of, to_ascii
from PIL import Image, ImageDraw, ImageFont
from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style

WIDTH, HEIGHT = 10, 20
GROUND, INK = (20, 23, 28), (230, 230, 230)
DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))


class Piece(NamedTuple):
    """Text in one style."""

    text: str
    style: Style


def composed(
    scene: str, size: tuple[int, int], choices: Choices, *, ascii_only: bool
) -> list[list[Piece]]:
    """The rows of a scene at a frozen moment."""
    clock = FrozenClock()
    desk = Desk(keys_for(demo=False), clock, UTC, choices)
    desk.take(DemoFeed(clock, UTC, scene).latest())
    rows: list[Row] = compose(desk.screen(), *size)
    spell = to_ascii if ascii_only else str
    return [
        [Piece(spell(span.text), style_of(choices.theme, span.ink)) for span in row] for row in rows
    ]


def decoded(text: str) -> list[list[Piece]]:
    """The rows of a terminal's own output."""
    rows = []
    for line in AnsiDecoder().decode(text):
        plain, pieces, edge = line.plain, [], 0
        for span in sorted(line.spans, key=lambda span: span.start):
            style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
            pieces.append(Piece(plain[edge : span.start], Style()))
            pieces.append(Piece(plain[span.start : span.end], style))
            edge = span.end
        rows.append([*pieces, Piece(plain[edge:], Style())])
    return rows


def colour(value: Color | None, otherwise: tuple[int, int, int]) -> tuple[int, int, int]:
    """Red, green, blue of a style's colour."""
    return otherwise if value is None or value.is_default else tuple(value.get_truecolor())


def font(face: str) -> ImageFont.FreeTypeFont:
    """A monospaced font of this system."""
    found = subprocess.check_output(["fc-match", "-f", "%{file}", face], text=True)
    return ImageFont.truetype(found, 16)


def draw(
    rows: Iterable[list[Piece]], size: tuple[int, int], ground: tuple[int, int, int]
) -> Image.Image:
    """One rectangle, one glyph a cell."""
    image = Image.new("RGB", (size[0] * WIDTH, size[1] * HEIGHT), ground)
    canvas = ImageDraw.Draw(image)
    fonts = (font("DejaVu Sans Mono"), font("DejaVu Sans Mono:bold"))
    ink = INK if sum(ground) < 384 else (27, 31, 36)
    for y, row in enumerate(rows):
        x = 0
        for text, style in row:
            front, back = colour(style.color, ink), colour(style.bgcolor, ground)
            if style.dim:
                front = tuple((a + b) // 2 for a, b in zip(front, back, strict=True))
            if style.reverse:
                front, back = back, front
            for char in text.replace("\n", ""):
                draw_cell(
                    canvas, char, (x * WIDTH, y * HEIGHT), front, back, fonts[bool(style.bold)]
                )
                x += cell_len(char)
    return image


def draw_cell(canvas, char, at, front, back, face):
    """Ground, then braille dots, a block from below, or a letter."""
    left, top = at
    canvas.rectangle(
        (left, top, left + WIDTH * max(cell_len(char), 1) - 1, top + HEIGHT - 1), fill=back
    )
    code = ord(char)
    if 0x2800 <= code <= 0x28FF:
        for bit, (column, line) in enumerate(DOTS):
            if (code - 0x2800) >> bit & 1:
                x, y = left + 1 + 5 * column, top + 1 + 5 * line
                canvas.ellipse((x, y, x + 3, y + 3), fill=front)
    elif 0x2581 <= code <= 0x2588:
        high = HEIGHT * (code - 0x2580) // 8
        canvas.rectangle(
            (left, top + HEIGHT - high, left + WIDTH - 1, top + HEIGHT - 1), fill=front
        )
    elif char in "━─":
        thick = 2 if char == "━" else 0
        middle = top + HEIGHT // 2
        canvas.rectangle((left, middle - thick, left + WIDTH - 1, middle + thick), fill=front)
    elif char != " ":
        canvas.text((left, top), char, font=face, fill=front)


async def exported(scene: str, size: tuple[int, int]) -> str:
    """The framework's own SVG."""
    clock = FrozenClock()
    app = DemoDashboard(DemoFeed(clock, UTC, scene), clock=clock)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        return app.export_screenshot()


def main() -> int:
    """Writes one picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scene", choices=tuple(SCENES), default="running")
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--theme", choices=[palette.name for palette in PALETTES], default="dark")
    parser.add_argument("--page", choices=[panel.value for panel in Panel])
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--ansi", help="a file with a terminal's output; - reads standard input")
    parser.add_argument("--svg", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    if options.svg:
        import resvg_py  # noqa: PLC0415 - only this way needs it

        text = asyncio.run(exported(options.scene, (width, height)))
        text = text.replace("font-family: arial", "font-family: DejaVu Sans")
        options.out.write_bytes(bytes(resvg_py.svg_to_bytes(svg_string=text, width=width * 13)))
        return 0
    if options.ansi:
        text = sys.stdin.read() if options.ansi == "-" else Path(options.ansi).read_text("utf-8")
        rows, ground = decoded(text), GROUND
    else:
        page = Panel(options.page) if options.page else None
        choices = Choices(theme=options.theme, zoom=page, focus=page or Panel.LOG)
        rows = composed(options.scene, (width, height), choices, ascii_only=options.ascii)
        back = next(palette.ground for palette in PALETTES if palette.name == options.theme)
        ground = colour(Color.parse(back), GROUND) if back else GROUND
    draw(rows, (width, height), ground).quantize(128).save(options.out, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
