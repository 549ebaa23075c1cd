# SPDX-License-Identifier: Apache-2.0
"""The rules that run each reference file of the MLI library against the emulator.

One rule per file name, tried in order; a file without a rule is an error. A case agrees, agrees
after a named mapping, or differs.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.mli.golden_kernels import (
    activation,
    basic_rnn,
    fully_connected,
    fully_connected_2_0,
    kernel_status,
    lstm,
    other_generation,
    overflow,
)
from tests.mli.golden_records import Json, Verdict
from tests.mli.golden_utility import (
    convert,
    convert_1x,
    convert_fields,
    convert_status,
    helpers,
    subtensor,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Names of files, the function that runs a case, and whether a difference is an error."""

    pattern: str
    run: Callable[[Json], Verdict]
    asserted: bool = True


RULES = (
    Rule("v1_overflow_*", overflow, asserted=False),
    Rule("v2_approx_fully_connected_*", fully_connected_2_0, asserted=False),
    Rule("v2_approx_sigm_*", activation, asserted=False),
    Rule("v2_approx_tanh_*", activation, asserted=False),
    Rule("v2_approx_*", other_generation, asserted=False),
    Rule("v2_subtensor_edge", subtensor, asserted=False),
    Rule("v1_fully_connected_*", fully_connected),
    Rule("v1_basic_rnn_*", basic_rnn),
    Rule("v1_lstm_*", lstm),
    Rule("v1_sigm_*", activation),
    Rule("v1_tanh_*", activation),
    Rule("v1_convert_tensor_*", convert_1x),
    Rule("v1_status", kernel_status),
    Rule("v2_convert_fields", convert_fields),
    Rule("v2_convert_status", convert_status),
    Rule("v2_convert_*", convert),
    Rule("v2_subtensor", subtensor),
    Rule("v2_helpers", helpers),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    file: str
    cases: int
    agree: int
    mapped: int
    asserted: bool
    differences: tuple[str, ...]


def table(rows: Sequence[Row]) -> str:
    """Print the rows as text: file, cases, agree, mapped; reported files are marked."""
    lines = [f"{'file':<42}{'cases':>6}{'agree':>6}{'mapped':>7}"]
    for row in rows:
        mark = "" if row.asserted else "  (reported)"
        lines.append(f"{row.file:<42}{row.cases:>6}{row.agree:>6}{row.mapped:>7}{mark}")
    total = [sum(getattr(row, key) for row in rows) for key in ("cases", "agree", "mapped")]
    lines.append(f"{'all':<42}{total[0]:>6}{total[1]:>6}{total[2]:>7}")
    return "\n".join(lines)


def run_file(path: Path) -> Row:
    """Run every case of a file by its rule; LookupError names a file without one."""
    rule = next((r for r in RULES if fnmatch(path.stem, r.pattern)), None)
    if rule is None:
        raise LookupError(f"{path.name}: no rule, must match one of {[r.pattern for r in RULES]}")
    document = json.loads(path.read_text())
    head = {key: value for key, value in document.items() if key != "cases"}
    verdicts = [rule.run({**head, "file": path.stem, **case}) for case in document["cases"]]
    notes = tuple(f"case {i}: {v.note}" for i, v in enumerate(verdicts) if not v.agrees)
    agree = sum(v.agrees and not v.mapped for v in verdicts)
    mapped = sum(v.mapped for v in verdicts)
    return Row(path.stem, len(verdicts), agree, mapped, rule.asserted, notes)
