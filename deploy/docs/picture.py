# SPDX-License-Identifier: Apache-2.0
"""The picture of the front page: the first table of `nnpa demo`, without its times.

nnpa demo | python deploy/docs/picture.py > deploy/docs/demo.svg
"""

import re
import sys
from collections.abc import Iterator
from html import escape

COMMAND = "$ nnpa demo"
ADVANCE, LINE, MARGIN = 8.4, 20, 18  # pixels: of a character, of a line, around the text
BACKGROUND, TEXT, QUIET = "#1b1f2a", "#e6e9f0", "#9aa7bd"
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def shown(report: str) -> Iterator[str]:
    """Yield the lines of the picture: title, first table and verdict of a demo's report."""
    lines = report.splitlines()
    yield COMMAND
    yield lines[0].strip()
    yield ""
    table = lines[2 : next(number for number, line in enumerate(lines) if "slowest" in line)]
    columns = [re.split(r" {2,}", line.strip()) for line in table if "─" not in line]
    for cells in columns:
        if "ms" not in cells[-1] and cells != [""]:
            label, *values = [""] * (3 - len(cells)) + cells if len(cells) == 2 else cells
            yield f"{label:20}" + "".join(f"{value:24}" for value in values)
    yield ""
    yield next(line for line in lines if line.startswith("On "))


def drawn(lines: list[str]) -> str:
    """Return lines of text as an SVG that needs no font and no other file."""
    width = round(max(map(len, lines)) * ADVANCE + 2 * MARGIN)
    height = len(lines) * LINE + 2 * MARGIN
    rows = [
        f'<text x="{MARGIN}" y="{MARGIN + (number + 0.75) * LINE:g}" xml:space="preserve"'
        f' fill="{QUIET if line == COMMAND else TEXT}" textLength="{len(line) * ADVANCE:g}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(map(str.rstrip, lines))
        if line
    ]
    box = f'viewBox="0 0 {width} {height}" role="img"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="{FONT}" font-size="14">'
    ground = f'<rect width="{width}" height="{height}" rx="10" fill="{BACKGROUND}"/>'
    return "\n".join([begin, ground, *rows, "</svg>\n"])


if __name__ == "__main__":
    sys.stdout.write(drawn(list(shown(sys.stdin.read()))))
