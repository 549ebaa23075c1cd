# SPDX-License-Identifier: Apache-2.0
"""The rooms of libzdnn's Rust: their order, and the picture of it."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

from tests.libzdnn.toolchain import LIBRARY

SOURCES = LIBRARY / "src"
MODULE = re.compile(r"^(?:pub )?mod (\w+);", re.MULTILINE)
ARROW = re.compile(r"^  (\w+) --> (\w+)$", re.MULTILINE)


def _uses(path: Path) -> set[str]:
    """Return the modules of the crate that a file names, as paths without `crate::`."""
    text = path.read_text()
    names: set[str] = set()
    for use in re.findall(r"crate::([\w:]+(?:\{[^}]*\})?)", text):
        stem, _, group = use.partition("{")
        leaves = [leaf.strip(" \n}").split("::")[0] for leaf in group.split(",")]
        names |= {f"{stem}{leaf}".rstrip(":") for leaf in leaves}
    return names


def _file(name: str) -> Path | None:
    """Return the file of the longest part of a path that is a module."""
    parts = name.split("::")
    for count in range(len(parts), 0, -1):
        stem = SOURCES.joinpath(*parts[:count])
        for file in (stem.with_suffix(".rs"), stem / "mod.rs"):
            if file.exists():
                return file
    return None


def _edges() -> dict[Path, set[Path]]:
    """Return which files each file of the crate uses."""
    files = [path for path in SOURCES.rglob("*.rs") if path.name != "lib.rs"]
    targets = {path: {_file(name) for name in _uses(path)} for path in files}
    return {
        path: {target for target in used if target is not None and target != path}
        for path, used in targets.items()
    }


def _room(path: Path) -> str:
    return path.relative_to(SOURCES).parts[0].removesuffix(".rs")


def test_no_file_uses_itself_through_others() -> None:
    """The files of the crate can be put in an order in which each uses earlier ones only."""
    edges = _edges()
    assert len(edges) > 40
    assert set(TopologicalSorter(edges).static_order()) == set(edges)


def test_rooms_use_lower_rooms_only() -> None:
    """`lib.rs` lists the rooms from the lowest to the highest."""
    order = MODULE.findall((SOURCES / "lib.rs").read_text())
    assert {_room(path) for path in _edges()} == set(order)
    upward = {
        (_room(path), _room(target))
        for path, used in _edges().items()
        for target in used
        if order.index(_room(target)) > order.index(_room(path))
    }
    assert upward == set()


def _below(room: str, arrows: set[tuple[str, str]]) -> set[str]:
    """Return the rooms that are reached from one by arrows."""
    targets = {target for source, target in arrows if source == room}
    return targets.union(*(_below(target, arrows) for target in targets))


def test_picture() -> None:
    """A room uses what lies below it in the README's picture; each arrow is a use."""
    arrows = set(ARROW.findall((LIBRARY / "README.md").read_text()))
    uses = {(_room(path), _room(target)) for path, used in _edges().items() for target in used}
    uses = {(room, target) for room, target in uses if target not in {room, "wire"}}
    assert arrows
    assert arrows <= uses
    assert {target for room, target in uses if target not in _below(room, arrows)} == set()
