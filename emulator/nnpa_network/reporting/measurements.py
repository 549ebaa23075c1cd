# SPDX-License-Identifier: Apache-2.0
"""Measurements over some batches of a dataset: records that add up exactly, in any order."""

import json
from dataclasses import dataclass, field

from nnpa_network.program import ModelRefused
from nnpa_network.reporting.metrics import Agreement, Exponents, Tally
from nnpa_network.reporting.records import NotRecord, decode, encode

MAX_WORST = 20
"""Rows that a report lists as the worst."""


@dataclass(slots=True)
class Violation:
    """The first range violation: from which row on, at which node, and its elements as sentences.

    `row` is the first of the run that had it.
    """

    row: int
    node: str
    op_type: str
    function: str
    elements: list[str]


@dataclass(slots=True)
class WorstRow:
    """A row that is far from FP32: its relative error, and both answers; labels where given."""

    row: int
    changed: bool
    error: float
    fp32: list[int]
    answer: list[int]
    label: list[int]

    def key(self) -> tuple[bool, float, int]:
        """Return its place: rows whose answer turned first, then by error, then by number."""
        return not self.changed, -self.error, self.row


@dataclass(slots=True)
class Turn:
    """A row whose answer turned, and the first node after which FP32 does not turn it back."""

    row: int
    node: int


@dataclass(slots=True)
class Value:
    """A value of the model: its distance from FP32, and its node's distance over FP32 inputs."""

    node: int
    tally: Tally
    alone: Tally


@dataclass(slots=True)
class NodeFacts:
    """A node of the model, and where it went; the fields are as in `program.Node`."""

    index: int
    name: str
    op_type: str
    device: str
    functions: list[str]
    reason: str
    macc: int
    inputs: list[str]
    outputs: list[str]


@dataclass(slots=True)
class Output:
    """An output of the network beside FP32; `nans` counts the network's."""

    tally: Tally = field(default_factory=Tally)
    agreement: Agreement = field(default_factory=Agreement)
    nans: int = 0


@dataclass(slots=True)
class Run:
    """One machine over some rows: under a policy, in DLFLOAT16 or with products in INT8.

    `violations` counts calls with a range violation, `changed` rows whose answer differs from FP32;
    `nodes` are the nodes of a run over one row.
    """

    machine: str
    saturate: bool
    numbers: str
    nodes: list[NodeFacts]
    rows: int = 0
    violations: int = 0
    first: Violation | None = None
    changed: int = 0
    outputs: dict[str, Output] = field(default_factory=dict[str, Output])
    labels: Agreement = field(default_factory=Agreement)
    worst: list[WorstRow] = field(default_factory=list[WorstRow])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    turns: list[Turn] = field(default_factory=list[Turn])

    def merge(self, run: "Run") -> None:
        """Add the run of the same machine over other rows."""
        self.nodes = self.nodes or run.nodes
        self.rows += run.rows
        self.violations += run.violations
        if run.first is not None and (self.first is None or run.first.row < self.first.row):
            self.first = run.first
        self.changed += run.changed
        for name, output in run.outputs.items():
            mine = self.outputs.setdefault(name, Output())
            mine.tally.merge(output.tally)
            mine.agreement.merge(output.agreement)
            mine.nans += output.nans
        self.labels.merge(run.labels)
        self.worst = sorted([*self.worst, *run.worst], key=WorstRow.key)[:MAX_WORST]
        for name, value in run.values.items():
            here = self.values.setdefault(name, Value(value.node, Tally(), Tally()))
            here.tally.merge(value.tally)
            here.alone.merge(value.alone)
        self.turns = sorted([*self.turns, *run.turns], key=lambda turn: (turn.row, turn.node))


@dataclass(slots=True)
class Measurements:
    """The measurements of some batches; `key` identifies the model and the way of measuring.

    `batches` are their numbers, sorted: batch k is rows k * batch_rows to (k + 1) * batch_rows.
    `products` counts the products in INT8 of a run whose `numbers` are INT8. `runtimes` are the
    runtimes that computed FP32: another runtime may give other last bits.
    """

    key: str
    network: str
    placement: str
    batch_rows: int
    batches: list[int]
    rows: int
    node_rows: int
    labels: Agreement
    products: int
    exponents: dict[str, Exponents]
    runtimes: list[str]
    runs: list[Run]

    def merge(self, addition: "Measurements") -> None:
        """Add later batches; raise `ModelRefused` if their model differs or they were counted."""
        same = [(run.machine, run.saturate, run.numbers) for run in self.runs] == [
            (run.machine, run.saturate, run.numbers) for run in addition.runs
        ]
        if not same or (self.key, self.batch_rows) != (addition.key, addition.batch_rows):
            raise ModelRefused("measurements: they are of another model, or of other options")
        if repeated := sorted(set(self.batches) & set(addition.batches)):
            raise ModelRefused(f"measurements: batch {repeated[0]} was counted twice")
        self.batches = sorted([*self.batches, *addition.batches])
        self.rows += addition.rows
        self.node_rows += addition.node_rows
        self.labels.merge(addition.labels)
        self.runtimes = sorted({*self.runtimes, *addition.runtimes})
        for name, exponents in addition.exponents.items():
            self.exponents.setdefault(name, Exponents()).merge(exponents)
        for mine, theirs in zip(self.runs, addition.runs, strict=True):
            mine.merge(theirs)

    def to_bytes(self) -> bytes:
        """Return the measurements as they travel: the same batches give the same bytes."""
        return json.dumps(encode(self), sort_keys=True, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Measurements:
    """Read the bytes of `to_bytes`; raise `ModelRefused`."""
    try:
        return decode(Measurements, json.loads(data.decode()))
    except (NotRecord, ValueError, RecursionError) as error:
        raise not_measurements() from error


def not_measurements() -> ModelRefused:
    """Return the refusal of bytes that are no measurements, or contradict each other."""
    return ModelRefused("measurements: they are not what MeasureAccuracy returned")
