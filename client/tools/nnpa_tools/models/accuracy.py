# SPDX-License-Identifier: Apache-2.0
"""Read the accuracy report that `nnpa network validate --json` prints."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, TypeAlias

Fields: TypeAlias = Mapping[str, type]
Entry: TypeAlias = Mapping[str, str | int | float | bool | None]
"""The values of a report that were checked, by name."""
_MAX_BYTES = 1 << 28  # of a file; a report has some hundred bytes per node
_WRITER = re.compile(r"nnpa ([0-9a-z.+]{1,40})", re.ASCII)
_FIGURE = float  # or null, where there is none
_REPORT: Fields = {"verdict": str, "placement": str, "samples": int}
_RUN: Fields = {
    "machine": str, "numbers": str, "saturate": bool, "rows": int, "changed": int,
    "violations": int, "drop": _FIGURE,
}  # fmt: skip
_OUTPUT: Fields = {
    "name": str, "nans": int, "acc": _FIGURE, "rmse": _FIGURE, "mae": _FIGURE, "l2r": _FIGURE,
    "cos": _FIGURE, "max": _FIGURE,
}  # fmt: skip
_NODE: Fields = {
    "node": str, "op_type": str, "device": str, "value": str, "entering": _FIGURE,
    "alone": _FIGURE, "l2r": _FIGURE, "beyond": _FIGURE, "max": _FIGURE,
}  # fmt: skip
_KINDS = {str: "text", int: "a whole number", bool: "true or false", float: "a number or null"}


@dataclass(frozen=True, slots=True)
class AccuracyRun:
    """A machine's run over all rows: its totals, its outputs, its nodes in order."""

    totals: Entry
    outputs: Sequence[Entry]
    nodes: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """A report: its verdict and extent, lines about the model, and a run for each machine."""

    totals: Entry
    about: Mapping[str, str]
    runs: Sequence[AccuracyRun]


def read_accuracy(path: Path) -> AccuracyReport:
    """Read a report.

    Raises ValueError for a file that is no report or has another version, OSError for a file that
    cannot be read.
    """
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{path}: {size} bytes, at most {_MAX_BYTES}")
    try:
        document = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON, or cut: {error}") from None
    try:
        return _report(document)
    except ValueError as error:
        writer = _writer(document)
        raise ValueError(
            f"{path}: {error}: no report of `nnpa network validate --json`{writer}"
        ) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _writer(document: object) -> str:
    """Return a clause on the version that wrote a report, "" for this version."""
    about = document.get("about") if isinstance(document, dict) else None
    versions = about.get("versions") if isinstance(about, dict) else None
    match = _WRITER.match(versions) if isinstance(versions, str) else None
    if match is None or match[1] == version("nnpa"):
        return ""
    return f" of this version: nnpa {match[1]} wrote it, this is nnpa {version('nnpa')}"


def _report(document: object) -> AccuracyReport:
    totals = _entry(document, _REPORT, "")
    about = _object(_field(document, "about", ""), "about")
    runs = [
        AccuracyRun(
            _entry(run, _RUN, f"{place}."),
            _entries(run, "outputs", _OUTPUT, f"{place}."),
            _entries(run, "nodes", _NODE, f"{place}."),
        )
        for index, run in enumerate(_list(_field(document, "runs", ""), "runs"))
        for place in (f"runs[{index}]",)
    ]
    return AccuracyReport(totals, {name: str(text) for name, text in about.items()}, runs)


def _entries(owner: object, name: str, fields: Fields, place: str) -> list[Entry]:
    entries = _list(_field(owner, name, place), f"{place}{name}")
    return [_entry(each, fields, f"{place}{name}[{at}].") for at, each in enumerate(entries)]


def _entry(owner: object, fields: Fields, place: str) -> Entry:
    """Return the fields of an object; raise ValueError for a missing one or a wrong type."""
    return {name: _value(_field(owner, name, place), kind, place + name)
            for name, kind in fields.items()}  # fmt: skip


def _value(held: object, kind: type, where: str) -> str | int | float | bool | None:
    if kind is _FIGURE:
        if held is None:
            return None
        if isinstance(held, int | float) and not isinstance(held, bool) and abs(held) < math.inf:
            return float(held)
    elif isinstance(held, str | int) and type(held) is kind:
        return held
    raise ValueError(f"{where} is {str(held)[:32]!r}, must be {_KINDS[kind]}")


def _field(owner: object, name: str, place: str) -> object:
    fields = _object(owner, place.rstrip(".") or "the file")
    if name not in fields:
        raise ValueError(f"{place}{name} is missing")
    return fields[name]


def _object(held: object, where: str) -> Mapping[str, object]:
    if not isinstance(held, dict):
        raise ValueError(f"{where} is {str(held)[:32]!r}, must be an object")
    return held


def _list(held: object, where: str) -> Sequence[object]:
    if not isinstance(held, list):
        raise ValueError(f"{where} is {str(held)[:32]!r}, must be a list")
    return held
