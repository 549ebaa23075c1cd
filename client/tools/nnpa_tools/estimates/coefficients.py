# SPDX-License-Identifier: Apache-2.0
"""The coefficients of `coefficients.toml`: costs of calls by machine and function, and grades."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._values.availability import TELUMS, Host, find_host

Per: TypeAlias = Literal["padded", "macs", "elements"]
_DERIVED = "D"
_FILE = "coefficients.toml"


@dataclass(frozen=True, slots=True)
class Grade:
    """The confidence in an estimate: its interval is [t / k, t * k]."""

    k: float
    means: str
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of a call of a function on a machine: `call_us`, and `slope_ps` per unit of work.

    `per` is the unit, `least_us` the lower bound of an estimate. `cpu` has the constant and the
    slope of the CPU instead of the accelerator, None if they are not public or not reproducible.
    `r2` is the coefficient of determination of the source's fit, None for a row that is derived
    from row `like`.
    """

    call_us: float
    slope_ps: float
    per: Per
    grade: str
    source: str
    r2: float | None
    cpu: tuple[float, float] | None
    least_us: float
    like: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Rows by machine and function, grades by letter, the largest measured work by unit.

    `families` names, for each family, the row that is used for functions without a row.
    """

    rows: Mapping[str, Mapping[str, Row]]
    grades: Mapping[str, Grade]
    families: Mapping[str, str]
    measured_up_to: Mapping[str, float]
    sources: Mapping[str, str]

    def row(self, machine: str, function: str, family: str) -> Row:
        """Return the row of a function, or a row derived from its family's."""
        rows = self.rows[machine]
        if function in rows:
            return rows[function]
        like = self.families[family]
        return _derived(rows[like], {"like": like, "why": f"no figure of {function} is public"})


def machines() -> tuple[str, ...]:
    """Return the machines whose times can be estimated."""
    return tuple(shipped().rows)


def model_of(name: str) -> str:
    """Return the machine whose times are used for a machine's name at a server.

    A custom machine, whose name ends in "-custom", has the times of its base.
    """
    return name.removesuffix("-custom")


def estimated_machine(text: str) -> Host:
    """Return the machine of a text as `connect` takes it.

    A custom machine has the times of its base. Raises ValueError for one without a zAIU.
    """
    host = find_machine(text)
    if host.model not in TELUMS:
        hosts = map(find_host, TELUMS)
        expected = ", ".join(f"{offered.name} ({offered.aliases[0]})" for offered in hosts)
        raise ValueError(f"machine: {host.name!r} has no zAIU, expected one of {expected}")
    return host


@cache
def shipped() -> Coefficients:
    """Return the coefficients of this package."""
    text = files("nnpa_tools.estimates").joinpath(_FILE).read_text(encoding="utf-8")
    return read_coefficients(text)


def read_coefficients(text: str) -> Coefficients:
    """Return the coefficients of a file's text."""
    document = tomllib.loads(text)
    machines = {name: table for name, table in document.items() if "rows" in table}
    return Coefficients(
        rows={name: _rows(table) for name, table in machines.items()},
        grades={letter: Grade(**grade) for letter, grade in document["grades"].items()},
        families={name: family["like"] for name, family in document["families"].items()},
        measured_up_to=document["measured_up_to"],
        sources=document["sources"],
    )


def _rows(machine: Mapping[str, Any]) -> dict[str, Row]:
    tables: Mapping[str, Mapping[str, Any]] = machine["rows"]
    rows: dict[str, Row] = {}
    for name, table in tables.items():
        if "like" in table:
            rows[name] = _derived(rows[table["like"]], table)
            continue
        least = "least_cpu_us" if table.get("on_cpu") else "least_call_us"
        cpu = table.get("cpu")
        rows[name] = Row(
            call_us=table["call_us"],
            slope_ps=table["slope_ps"],
            per=table.get("per", "padded"),
            grade=table["grade"],
            source=table["source"],
            r2=table["r2"],
            cpu=None if cpu is None else (cpu[0], cpu[1]),
            least_us=machine[least],
        )
    return rows


def _derived(row: Row, table: Mapping[str, Any]) -> Row:
    """Return a row derived from another one by the factors of a table."""
    times = table.get("times", 1.0)
    return replace(
        row,
        call_us=row.call_us * times,
        slope_ps=row.slope_ps * times,
        grade=table.get("grade", _DERIVED),
        source=table.get("source", "derived"),
        r2=None,
        cpu=None,
        like=table["like"],
        why=table["why"],
    )
