# SPDX-License-Identifier: Apache-2.0
"""Placements as text to keep: one line per node, and what moved since it was written."""

import re

from nnpa_network.lowering.placement import ACCELERATOR, FOLDED, HOST, Report, Row

_PLACEMENT_OF_BASELINE = re.compile(r"# .*?\bplacement (\w+): ")
HEAVY = frozenset(
    ("Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
     "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN")
)  # fmt: skip
"""Operators that make products of matrices: left on the host they decide the run time."""


def heavy(report: Report) -> tuple[Row, ...]:
    """Return the matrix products on the host."""
    return tuple(row for row in report.rows if row.device == HOST and row.op_type in HEAVY)


def headline(report: Report) -> str:
    """Return the placement in one line, heavy operators on the host first."""
    devices = [row.device for row in report.rows]
    counts = (
        f"placement {report.placement}: {devices.count(ACCELERATOR)} of {len(devices)} nodes on "
        f"{report.machine}, {devices.count(HOST)} on the host, {devices.count(FOLDED)} folded"
    )
    left = [f"{row.node} ({row.op_type}: {row.reason})" for row in heavy(report)]
    return f"HEAVY ON THE HOST: {', '.join(left)}; {counts}" if left else counts


def write_baseline(report: Report) -> str:
    """Return the placement as text to keep: one line per node, to be read in a diff."""
    lines = [f"# {report.machine}: {headline(report)}"]
    for row in report.rows:
        what = " ".join(row.functions) if row.device == ACCELERATOR else row.reason
        lines.append(f"{row.node}\t{row.op_type}\t{row.device}\t{what}")
    return "\n".join(lines) + "\n"


def compare_baseline(report: Report, baseline: str) -> tuple[str, ...]:
    """Return what moved since a baseline was written, one sentence per node; empty: nothing.

    A baseline of another placement is one sentence, for it is no baseline.
    """
    written = _PLACEMENT_OF_BASELINE.match(baseline)
    if written and written[1] != report.placement:
        text = f"the baseline is of placement {written[1]}, the report of {report.placement}"
        return (text,)
    before = {
        fields[0]: fields[2]
        for fields in (line.split("\t") for line in baseline.splitlines())
        if len(fields) >= 3
    }
    now = {row.node: row.device for row in report.rows}
    moved = [
        f"{name}: {before[name]} before, {now[name]} now"
        for name in before
        if name in now and before[name] != now[name]
    ]
    gone = [f"{name}: {before[name]} before, gone now" for name in before if name not in now]
    new = [f"{name}: new, {now[name]}" for name in now if name not in before]
    return (*moved, *gone, *new)
