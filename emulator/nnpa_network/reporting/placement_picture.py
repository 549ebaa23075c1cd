# SPDX-License-Identifier: Apache-2.0
"""The graph of a network as boxes, coloured by device and as wide as their work.

In a large graph a chain of nodes on one device is one box; folded nodes have no box. A box lies
below all boxes that it takes values from.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnpa_network.reporting.measurements import NodeFacts

WIDTH, HEIGHT, GAP, ROOM = 1000, 24, 18, 12
"""Pixels: the widest picture, the height of a box, between rows, between boxes."""
_MIN_WIDTH, _MAX_WIDTH = 64, 420
_LETTER = 6.4  # pixels, of the font's 11
_SHOWN = 6
_MAX_SINGLE = 40  # nodes that are a box each
_LEAST_ROWS = 8  # of a column


@dataclass(slots=True)
class Box:
    """A chain of nodes on one device."""

    device: str
    nodes: list[NodeFacts]
    sources: set[int] = field(default_factory=set[int])
    rank: int = 0
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def macc(self) -> int:
        """Multiply-accumulates of the nodes."""
        return sum(node.macc for node in self.nodes)

    @property
    def label(self) -> str:
        """The names of its operators, cut to the width."""
        text = " ".join(_counted([node.op_type for node in self.nodes]))
        most = max(3, int((self.width - 8) / _LETTER))
        return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"

    @property
    def title(self) -> str:
        """Device, nodes, work, and the reasons for the host."""
        names = ", ".join(node.name for node in self.nodes[:_SHOWN])
        more = f" and {len(self.nodes) - _SHOWN} more" if len(self.nodes) > _SHOWN else ""
        reasons = {node.reason for node in self.nodes if self.device == "host" and node.reason}
        why = f"; {'; '.join(sorted(reasons)[:_SHOWN])}" if reasons else ""
        return f"{self.device}: {names}{more}; {self.macc:,} multiply-accumulates{why}"


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes, the curves between them, and the rectangle around it all."""

    boxes: Sequence[Box]
    curves: Sequence[str]
    left: float
    width: float
    height: float


def draw(nodes: Sequence[NodeFacts]) -> Picture:
    """Return the picture of a network's nodes."""
    boxes = _boxes(nodes)
    largest = max((box.macc for box in boxes), default=0) or 1
    ranks: dict[int, list[Box]] = {}
    for box in boxes:
        box.rank = 1 + max((boxes[source].rank for source in box.sources), default=-1)
        share = math.sqrt(box.macc / largest)
        box.width = _MIN_WIDTH + (_MAX_WIDTH - _MIN_WIDTH) * share
        ranks.setdefault(box.rank, []).append(box)
    for row in ranks.values():
        _arrange(row)
    left = min((box.x for box in boxes), default=0.0) - ROOM
    width = max((box.x + box.width for box in boxes), default=0.0) + ROOM - left
    columns = max(1, min(int(WIDTH / width), len(ranks) // _LEAST_ROWS))
    rows = -(-len(ranks) // columns)
    for box in boxes:
        box.x += box.rank // rows * width
        box.y = box.rank % rows * (HEIGHT + GAP) + GAP / 2
    edges = [(boxes[source], box) for box in boxes for source in sorted(box.sources)]
    curves = [
        _curve(source, box) if source.rank // rows == box.rank // rows
        else _detour(source, box, left + box.rank // rows * width)
        for source, box in edges
    ]  # fmt: skip
    return Picture(boxes, curves, left, columns * width, rows * (HEIGHT + GAP))


def _boxes(nodes: Sequence[NodeFacts]) -> list[Box]:
    """Return boxes in the order in which they run, each with the indexes of its sources."""
    makers: dict[str, set[int]] = {}  # a value to the boxes that it comes from
    uses = Counter(name for node in nodes for name in set(node.inputs))
    boxes: list[Box] = []
    join = sum(node.device != "folded" for node in nodes) > _MAX_SINGLE
    for node in nodes:
        sources = {box for name in node.inputs for box in makers.get(name, ())}
        if node.device == "folded":
            makers.update((name, sources) for name in node.outputs)
            continue
        place = _extended(node, sources, boxes, uses) if join else None
        if place is None:
            place = len(boxes)
            boxes.append(Box(node.device, [], sources))
        boxes[place].nodes.append(node)
        makers.update((name, {place}) for name in node.outputs)
    return boxes


def _extended(
    node: NodeFacts, sources: set[int], boxes: Sequence[Box], uses: Counter[str]
) -> int | None:
    """Return the box that a node extends, or None if other nodes take values from that box, too."""
    if len(sources) != 1:
        return None
    (place,) = sources
    box = boxes[place]
    last = box.nodes[-1]
    if box.device != node.device or sum(uses[name] for name in last.outputs) != 1:
        return None
    return place if set(last.outputs) & set(node.inputs) else None


def _arrange(row: Sequence[Box]) -> None:
    """Put the boxes of a row side by side in the middle, narrower where they do not fit."""
    room = WIDTH - ROOM * (len(row) + 1)
    total = sum(box.width for box in row)
    scale = min(1.0, max(room, 1) / total)
    x = (WIDTH - total * scale - ROOM * (len(row) - 1)) / 2
    for box in row:
        box.width *= scale
        box.x = x
        x += box.width + ROOM


def _curve(source: Box, target: Box) -> str:
    """Return the path of a curve as SVG writes it."""
    x1, y1 = source.x + source.width / 2, source.y + HEIGHT
    x2, y2 = target.x + target.width / 2, target.y
    middle = (y1 + y2) / 2
    return f"M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} {x2:.1f},{y2:.1f}"


def _detour(source: Box, target: Box, gutter: float) -> str:
    """Return the path to a box of another column, through the gutter before that column."""
    x1, x2 = source.x + source.width / 2, target.x + target.width / 2
    y1 = source.y + HEIGHT
    return f"M{x1:.1f},{y1:.1f} v4 H{gutter:.1f} V{target.y - 4:.1f} H{x2:.1f} v4"


def _counted(names: Sequence[str]) -> list[str]:
    """Return each operator once, with its count if it repeats."""
    counts = Counter(names)
    return [name if count == 1 else f"{name}\N{MULTIPLICATION SIGN}{count}"
            for name, count in counts.items()]  # fmt: skip
