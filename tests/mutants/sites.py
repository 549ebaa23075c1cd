# SPDX-License-Identifier: Apache-2.0
"""Where a Python source can be mutated, and how: each mutation changes one node.

Annotations, docstrings, decorators and f-strings stay as they are: a change there either keeps the
behaviour or ends the import, and shows nothing about tests.
"""

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_UNTOUCHED = frozenset({"annotation", "returns", "decorator_list", "type_params"})


@dataclass(frozen=True, slots=True)
class Mutation:
    """A replacement of the characters from `start` to `end` of a source."""

    kind: str
    line: int
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        """Return the mutated source."""
        return source[: self.start] + self.text + source[self.end :]

    def diff(self, source: str, path: Path) -> str:
        """Return the mutation as a unified diff."""
        before, after = source.splitlines(), self.applied(source).splitlines()
        lines = difflib.unified_diff(before, after, str(path), str(path), n=2, lineterm="")
        return "\n".join(lines)


def mutations(source: str) -> list[Mutation]:
    """Return the mutations of a source, in the order of its lines."""
    place = _Places(source)
    unsorted = [
        Mutation(kind, replaced.lineno, *place.of(replaced), text)
        for node in _nodes(ast.parse(source))
        for kind, replaced, text in _replacements(node)
    ]
    return sorted(unsorted, key=lambda mutation: (mutation.start, mutation.end, mutation.kind))


class _Places:
    """Offsets of nodes, whose columns `ast` counts in bytes."""

    def __init__(self, source: str) -> None:
        self._lines = [line.encode() for line in source.splitlines(keepends=True)]
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line.decode()))

    def of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets of a node's first character and of the character behind the node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())


def _nodes(parent: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the expressions and statements that may be mutated."""
    for field, value in ast.iter_fields(parent):
        if field in _UNTOUCHED:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring, or `...`
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from _nodes(child)


def _replacements(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield mutations at a node: the kind, the replaced node, and the new text."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Compare(left=left, ops=[first, *others], comparators=comparators):
            operators = [_COMPARISONS[type(first)](), *others]
            yield "comparison", node, _text(ast.Compare(left, operators, comparators))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            yield "arithmetic", node, _text(ast.BinOp(left, _ARITHMETIC[type(operator)](), right))
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", node, _text(ast.Constant(value + 1))
        case ast.Expr() | ast.AugAssign() | ast.Raise():
            yield "statement", node, "pass"
        case _:
            pass


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"
