# SPDX-License-Identifier: Apache-2.0
"""The graph of a network as boxes that show the device of each part; their width is its work.

In a large graph consecutive nodes on one device are one box; folded nodes have no box. A box lies
below all boxes that it takes values from.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnpa_network.reporting.measurements import NodeFacts

WIDTH, HEIGHT, GAP, ROOM = 1000, 24, 18, 12
"""Pixels: the widest picture, a box, between rows, between boxes."""
_MIN_WIDTH, _MAX_WIDTH = 64, 420
_LETTER = 6.4  # pixels, of the font's 11
_SHOWN = 6
_MAX_SINGLE = 40  # nodes that are a box each


@dataclass(slots=True)
class Box:
    """Nodes of one device that follow one another."""

    device: str
    nodes: list[NodeFacts]
    sources: set[int] = field(default_factory=set[int])
    rank: int = 0
    x: float = 0.0
    width: float = 0.0

    @property
    def macc(self) -> int:
        """Multiply-accumulates of the nodes."""
        return sum(node.macc for node in self.nodes)

    @property
    def y(self) -> float:
        """The upper edge."""
        return self.rank * (HEIGHT + GAP) + GAP / 2

    @property
    def label(self) -> str:
        """The operators that fit into the picture."""
        text = " ".join(_counted([node.op_type for node in self.nodes]))
        most = max(3, int((self.width - 8) / _LETTER))
        return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"

    @property
    def title(self) -> str:
        """All that is to be said of it."""
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
    curves = [_curve(boxes[source], box) for box in boxes for source in sorted(box.sources)]
    left = min((box.x for box in boxes), default=0.0) - ROOM
    right = max((box.x + box.width for box in boxes), default=0.0) + ROOM
    return Picture(boxes, curves, left, right - left, len(ranks) * (HEIGHT + GAP))


def _boxes(nodes: Sequence[NodeFacts]) -> list[Box]:
    """Return boxes in the order in which they run, each with the places of its sources."""
    makers: dict[str, set[int]] = {}  # value to the boxes that it is from
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
    """Return the box that a node extends, if nothing else takes values from it."""
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


def _counted(names: Sequence[str]) -> list[str]:
    """Return operators in turn, those that repeat with how often."""
    counts = Counter(names)
    return [name if count == 1 else f"{name}\N{MULTIPLICATION SIGN}{count}"
            for name, count in counts.items()]  # fmt: skip
