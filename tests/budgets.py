# SPDX-License-Identifier: Apache-2.0
"""Lines of hand-written code by room, beside the budgets of `budgets.toml`.

    python -m tests.budgets            # print the table
    python -m tests.budgets --write    # write it into the README of the tests

The script counts all lines of Python, Rust, Go, Java, TypeScript, C, protobuf and Jinja that git
tracks, except generated code, tests, testees and examples.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = Path(__file__).with_name("budgets.toml")
README = Path(__file__).with_name("README.md")
SUFFIXES = (".py", ".rs", ".go", ".java", ".ts", ".c", ".h", ".proto", ".j2")
_GENERATED = re.compile(r"(^|/)gen/|\.gen\.|_pb2|_pb\.ts$|(^|/)generated/")
_TESTS = re.compile(
    r"^tests/|^client/[^/]+/(testee|test|tests|examples|bench)/|_test\.go$|/src/test/"
    r"|^client/python/examples/"
)
_BEGIN, _END = "<!-- generated: budgets -->\n", "<!-- /generated -->\n"
_HEAD = 400  # characters in which a generated file says so


@dataclass(frozen=True, slots=True)
class Room:
    """A room: the starts of its paths, and its greatest number of lines."""

    paths: tuple[str, ...]
    lines: int


def budgets() -> Mapping[str, Room]:
    """Return the rooms of `budgets.toml` by name."""
    tables = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
    return {name: Room(tuple(table["paths"]), table["lines"]) for name, table in tables.items()}


def counted_files() -> Iterator[str]:
    """Yield the paths of the product's hand-written code, relative to the root."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for path in listed.splitlines():
        if is_product(path) and not _is_generated(path):
            yield path


def is_product(path: str) -> bool:
    """Return True for code that is no test, testee or example."""
    return path.endswith(SUFFIXES) and not _TESTS.search(path)


def _is_generated(path: str) -> bool:
    if _GENERATED.search(path):
        return True
    head = (ROOT / path).read_text(encoding="utf-8", errors="replace")[:_HEAD].lower()
    return "generated" in head and ("do not edit" in head or "@generated" in head)


def count_lines() -> Counter[str]:
    """Return lines by room; the lines of a file in no room, or in two, are by its path."""
    rooms, lines = budgets(), Counter[str]()
    for path in counted_files():
        names = [name for name, room in rooms.items() if path.startswith(room.paths)]
        name = names[0] if len(names) == 1 else path
        lines[name] += (ROOT / path).read_text(encoding="utf-8").count("\n")
    return lines


def table() -> str:
    """Return the table of budgets for the README of the tests."""
    rooms = budgets()
    rows = [f"| {name} | {room.lines:,} |" for name, room in rooms.items()]
    total = sum(room.lines for room in rooms.values())
    return "\n".join(["| room | lines at most |", "|---|---|", *rows, f"| all | {total:,} |", ""])


def readme_table() -> str:
    """Return the table that the README of the tests has."""
    return README.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]


def write_table() -> None:
    """Write the table into the README of the tests."""
    before, _, rest = README.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    README.write_text(before + _BEGIN + table() + _END + after, encoding="utf-8")


def main() -> None:
    """Print lines and budgets of all rooms, or write the table."""
    if sys.argv[1:] == ["--write"]:
        write_table()
        return
    lines, rooms = count_lines(), budgets()
    for name in sorted({*lines, *rooms}, key=lambda name: -lines[name]):
        most = rooms[name].lines if name in rooms else 0
        print(f"{name:40} {lines[name]:7,} of {most:7,}")
    print(f"{'all':40} {lines.total():7,} of {sum(room.lines for room in rooms.values()):7,}")


if __name__ == "__main__":
    main()
