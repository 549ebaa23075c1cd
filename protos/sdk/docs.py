# SPDX-License-Identifier: Apache-2.0
"""The tables of operations in the documents."""

from collections.abc import Callable, Sequence
from itertools import groupby

from nnpa.zdnn.v1 import options_pb2 as pb

from sdk.machines import Machine, machines
from sdk.rendering import ROOT, File, Sdk
from sdk.verbs import Absent, Enum, Kind, Verb


def alike(verbs: Sequence[Verb], hosts: Sequence[Machine]) -> list[list[Verb]]:
    """Return the operations in groups of one family that run on the same machines."""

    def key(verb: Verb) -> tuple[str, list[str]]:
        return verb.family, [machine.runs(verb) for machine in hosts]

    ordered = sorted(verbs, key=lambda verb: (key(verb), verb.number))
    groups = [list(group) for _, group in groupby(ordered, key)]
    return sorted(groups, key=lambda group: group[0].number)


def with_nnpa(enums: Sequence[Enum]) -> list[Machine]:
    """Return the machines that have the instruction."""
    return [machine for machine in machines(enums) if machine.has_nnpa]


def c_call(verb: Verb) -> str:
    """Return a call in C, with addresses where C takes them."""
    arguments: list[str] = []
    for parameter in verb.parameters:
        arguments += [parameter.area] if parameter.area else []
        pointer = parameter.kind is Kind.ZTENSOR or parameter.absent is Absent.NULL
        if not parameter.options.beyond_c:
            arguments.append(f"{'&' if pointer else ''}{parameter.name}")
    return f"zdnn_{verb.name}({', '.join(arguments)})"


def python_call(verb: Verb) -> str:
    """Return the same call in Python."""
    arguments: list[str] = []
    for parameter in verb.parameters:
        arguments += ["None"] if parameter.area else []
        if not parameter.options.beyond_c:
            arguments.append(parameter.name)
    return f"zdnn.{verb.name}({', '.join(arguments)})"


_AREA_REMARKS = {
    "": "",
    "save_area": "save_area: alignment only",
    "work_area": "work_area: alignment; on ZDNN_OK its first page is written",
}


def c_remark(verb: Verb) -> str:
    """Return what a C library does beside sending the message."""
    remarks = [verb.options.c_remark, _AREA_REMARKS[verb.area]]
    remarks += [f"{field.name} is not sent" for field in verb.parameters if field.options.beyond_c]
    return "; ".join(remark for remark in remarks if remark)


def _in_row(row: pb.Fidelity.ValueType) -> Callable[[Verb], bool]:
    return lambda verb: verb.options.fidelity == row


def _fidelity(row: pb.Fidelity.ValueType) -> File:
    name = pb.Fidelity.Name(row).removeprefix("FIDELITY_").lower().replace("_", "-")
    return File("deploy/docs/fidelity.md", "docs_names.md.j2", f"fidelity {name}", _in_row(row))


def _computes(verb: Verb) -> bool:
    return verb.computes


DOCS = Sdk(
    name="documentation",
    home=ROOT,
    files=(
        File("deploy/docs/availability.md", "docs_availability.md.j2", "availability", _computes),
        File("deploy/docs/python/zdnn.md", "docs_python.md.j2", "operations", _computes),
        File("deploy/docs/c/functions.md", "docs_c.md.j2", "operations", _computes),
        *(_fidelity(row) for row in pb.Fidelity.values() if row),
    ),
    filters={
        "alike": alike,
        "c_call": c_call,
        "c_remark": c_remark,
        "python_call": python_call,
        "with_nnpa": with_nnpa,
    },
)
