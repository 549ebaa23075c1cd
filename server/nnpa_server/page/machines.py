# SPDX-License-Identifier: Apache-2.0
"""The view Machines: compares all Telums and a custom machine, with each limit's refusal."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TypedDict

from nnpa_emulator import FUNCTIONS, Status
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.machine import (
    DEFAULT_MACHINE,
    MACHINES,
    TELUMS,
    FunctionCode,
    Machine,
    QueryResult,
)
from nnpa_emulator.ztensor import DataFormats, DataTypes
from nnpa_page import Query, Refusal, Visitor, choice, number

_UNAVAILABLE = Status.ZDNN_UNAVAILABLE_FUNCTION.name
_MAX_COUNT = 1 << 32
_MAX_LIST = 256  # numbers of a list: the number of function codes
_COUNTS = ("max_dim_idx_size", "max_dim4", "max_dim3", "max_dim2", "max_dim1", "max_tensor_size")
_LISTS = ("removed_functions", "added_functions")
FIELDS = ("model", *_COUNTS, *_LISTS)
"""The fields that customise a machine, with the names of a session's machine_spec."""


class Row(TypedDict):
    """A property of machines: its value on each, and the refusal of a program that lacks it."""

    group: str
    name: str
    values: list[str]
    differs: bool
    constraint: str


def machines(_visitor: Visitor, query: Query) -> Mapping[str, object]:
    """Return columns and rows of the comparison, with a custom machine if fields describe one."""
    shown = [MACHINES[name] for name in TELUMS]
    if any(query.get(name) for name in FIELDS):
        shown.append(_custom(query))
    columns = [
        {"name": machine.name, "title": machine.title, "aliases": list(machine.aliases)}
        for machine in shown
    ]
    return {"machines": columns, "rows": list(_rows([machine.qaf for machine in shown]))}


def _custom(query: Query) -> Machine:
    machine = choice("model", query.get("model") or DEFAULT_MACHINE, MACHINES)
    counts = {name: number(name, query[name], 0, _MAX_COUNT) for name in _COUNTS if query.get(name)}
    removed, added = (_functions(name, query.get(name, "")) for name in _LISTS)
    dim4, dim3, dim2, dim1 = (counts.get(f"max_dim{number}") for number in (4, 3, 2, 1))
    overrides = Overrides(
        max_dim_idx_size=counts.get("max_dim_idx_size"),
        max_dims=(dim4, dim3, dim2, dim1),
        max_tensor_size=counts.get("max_tensor_size"),
        removed_functions=removed,
        added_functions=added,
    )
    try:
        return customise(machine, overrides)
    except ValueError as error:
        raise Refusal(str(error)) from None


def _functions(field: str, text: str) -> frozenset[int]:
    names = text.upper().replace(",", " ").split()[:_MAX_LIST]
    codes = {name: FunctionCode.__members__.get(name) for name in names}
    unknown = [name for name, code in codes.items() if code is None]
    if unknown:
        raise Refusal(f"{field} has {unknown[0][:32]!r}, must be names as NNPA_ADD")
    return frozenset(int(code) for code in codes.values() if code is not None)


def _rows(answers: Sequence[QueryResult]) -> Generator[Row]:
    """Yield limits, functions, types and formats; `answers` are the machines' QAF answers."""
    for dimension in (4, 3, 2, 1):
        sizes = [f"{qaf.max_for_dim(dimension):,}" for qaf in answers]
        text = f"a larger dim{dimension}: ZDNN_EXCEEDS_MDIS [pipeline_c6]"
        yield _row("Limits", f"dim{dimension}, elements", sizes, text)
    sizes = [f"{qaf.max_tensor_size:,}" for qaf in answers]
    text = "a larger ztensor: ZDNN_EXCEEDS_MTS [pipeline_c7]"
    yield _row("Limits", "ztensor, bytes", sizes, text)
    for code in FunctionCode:
        marks = _marks(answers, partial(QueryResult.has_function, code=code))
        verbs = ", ".join(f"zdnn_{name}" for name in _verbs(code)) or "the instruction"
        yield _row("Functions", code.name, marks, f"{verbs}: {_UNAVAILABLE} [pipeline_c4]")
    for kind in DataTypes:
        marks = _marks(answers, partial(QueryResult.has_data_type, code=kind))
        if "yes" in marks:
            text = "an operand of it: ZDNN_UNSUPPORTED_TYPE [pipeline_c5]"
            yield _row("Types", kind.name, marks, text)
    for layout in DataFormats:
        marks = _marks(answers, partial(QueryResult.has_layout_format, code=layout))
        text = "an operand in it: ZDNN_UNSUPPORTED_FORMAT [pipeline_c5]"
        yield _row("Formats", layout.name, marks, text)
    for version in (0, 1):
        marks = _marks(answers, partial(QueryResult.has_parmblk_format, number=version))
        text = f"a function that takes it: {_UNAVAILABLE} [pipeline_c2]"
        yield _row("Formats", f"parameter block {version}", marks, text)


def _verbs(code: FunctionCode) -> Iterable[str]:
    return (
        name
        for name, function in FUNCTIONS.items()
        if function.operation is not None and function.operation.code == code
    )


def _marks(answers: Sequence[QueryResult], has: Callable[[QueryResult], bool]) -> list[str]:
    return ["yes" if has(qaf) else "no" for qaf in answers]


def _row(group: str, name: str, values: list[str], constraint: str) -> Row:
    differs = len(set(values)) > 1
    return Row(group=group, name=name, values=values, differs=differs, constraint=constraint)
