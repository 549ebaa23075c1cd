# SPDX-License-Identifier: Apache-2.0
"""One machine over batches of rows, compared with FP32."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from nnpa_emulator import FUNCTIONS

from nnpa_network.importing.onnx_import import OnnxModel
from nnpa_network.lowering.placement import title
from nnpa_network.program import Array, ModelRefused, Program
from nnpa_network.reporting.batches import Batch, as_numbers, is_numeric, row_errors
from nnpa_network.reporting.interpreter import Interpreter
from nnpa_network.reporting.measurements import (
    MAX_WORST,
    NodeFacts,
    Output,
    Run,
    Turn,
    Violation,
    WorstRow,
)
from nnpa_network.reporting.metrics import Classes, Decided, Doubles, classes_of, decisions
from nnpa_network.reporting.node_runs import NodeRuns
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import Result, StepFailed

_MAX_ELEMENTS = 8
_MAX_TURNS = 4  # rows of a batch whose turning is looked at
_MAX_ANSWERS = 4  # of a row that are listed


Truths = npt.NDArray[np.bool_]
Shapes = list[tuple[int, ...]]


@dataclass(slots=True)
class MachineRuns:
    """A model on a machine, under a policy.

    `whole` is True if it runs over all rows; else it runs only over rows measured node by node.
    """

    model: OnnxModel
    numbers: str
    whole: bool
    _facts: tuple[Shapes, list[NodeFacts]] | None = field(default=None, repr=False)
    _node_runs: tuple[Executor, NodeRuns] | None = field(default=None, repr=False)

    def start(self) -> Run:
        """Return the measurements of no rows."""
        return Run(self.model.guest.machine.name, self.model.options.saturate, self.numbers, [])

    def executor(self, feeds: Mapping[str, Array]) -> Executor:
        """Return the executor for inputs; raise `ModelRefused` for shapes that do not fit."""
        return self.model.executor({name: np.shape(array) for name, array in feeds.items()})

    def run_rows(
        self, run: Run, batch: Batch, expected: Mapping[str, Decided]
    ) -> dict[str, Decided]:
        """Run a batch, compare its outputs, and return them."""
        results: list[Mapping[str, Array]] = []
        for number, feeds in enumerate(batch.runs()):
            executor = self.executor(feeds)
            try:
                result = executor.run(feeds)
            except StepFailed as failed:
                raise ModelRefused(failed.reason, failed.node) from failed
            _note(run, result, executor.program, batch.first + number)
            results.append(result.outputs)
        run.nodes = self._nodes_of_row(batch)
        outputs = {name: Decided(array) for name, array in batch.outputs(results).items()}
        run.rows += batch.rows
        _compare(run, outputs, expected)
        return outputs

    def _nodes_of_row(self, batch: Batch) -> list[NodeFacts]:
        """Return where the nodes of a run over one row go, which its shapes decide."""
        shapes = [array.shape[1:] for array in batch.arrays.values()]
        if self._facts is None or self._facts[0] != shapes:
            self._facts = shapes, node_facts(self.executor(batch.row(0)).program)
        return self._facts[1]

    def run_nodes(
        self, run: Run, feeds: Mapping[str, Array], references: Mapping[str, Array], row: int
    ) -> None:
        """Measure a row node by node."""
        runs = self._observed(feeds)
        try:
            result, _values = runs.beside(feeds, references, run.values)
            if self.whole:
                runs.alone(feeds, references, run.values)
        except StepFailed as failed:
            raise ModelRefused(failed.reason, failed.node) from failed
        if not self.whole:
            program = self.executor(feeds).program
            _note(run, result, program, row)
            run.nodes, run.rows = node_facts(program), run.rows + 1
            numeric = {n: as_numbers(a) for n, a in result.outputs.items() if is_numeric(a)}
            expected = {n: Decided(as_numbers(a)) for n, a in references.items() if n in numeric}
            _compare(run, {name: Decided(array) for name, array in numeric.items()}, expected)

    def find_turns(
        self, run: Run, batch: Batch, primary: str, references: "Mapping[int, Mapping[str, Array]]"
    ) -> None:
        """Find the nodes at which the answers of rows turned, whose FP32 values are given."""
        interpreter = Interpreter(self.model)
        for row, reference in references.items():
            feeds = batch.row(row - batch.first)
            expected = decisions(reference[primary]).tolist()

            def turned(values: Mapping[str, Array], expected: object = expected) -> bool:
                return bool(decisions(values[primary]).tolist() != expected)

            _result, hosted = self._observed(feeds).beside(feeds, {}, {})
            node = interpreter.turning_node(hosted, {**feeds, **reference}, turned)
            if node is not None:
                run.turns.append(Turn(row, node))

    def _observed(self, feeds: Mapping[str, Array]) -> NodeRuns:
        executor = self.executor(feeds)
        if self._node_runs is None or self._node_runs[0] is not executor:
            self._node_runs = executor, NodeRuns(executor)
        return self._node_runs[1]


def judge_rows(
    run: Run,
    first: int,
    outputs: Mapping[str, Decided],
    expected: Mapping[str, Decided],
    primary: str,
    classes: Classes | None,
) -> list[int]:
    """Count the answers of rows and list the worst; return the first rows whose answer turned.

    The output `primary` has the answers; a row is as bad as its worst real output.
    """
    got = outputs[primary]
    rows = got.array.shape[0]
    answers, right = (each[primary].classes.reshape(rows, -1) for each in (outputs, expected))
    changed = (answers != right).any(1)
    run.changed += int(np.count_nonzero(changed))
    if classes is not None:
        run.labels.add_decisions(got.array, classes.reshape(-1))
    errors = _errors_of_rows(outputs, expected, primary)
    run.worst += _worst_rows(first, changed, errors, right, answers, classes)
    return [first + int(index) for index in np.flatnonzero(changed)[:_MAX_TURNS]]


def _errors_of_rows(
    outputs: Mapping[str, Decided], expected: Mapping[str, Decided], primary: str
) -> Doubles:
    """Return the largest relative error of each row: of real outputs, else of the answer."""
    pairs = (
        (each.array, expected[name].array)
        for name, each in outputs.items()
        if name in expected and each.array.dtype.kind == "f"
    )
    errors = [row_errors(*pair) for pair in pairs if pair[0].shape == pair[1].shape]
    if errors:
        largest: Doubles = np.max(errors, axis=0)
        return largest
    return row_errors(outputs[primary].array, expected[primary].array)


def _worst_rows(
    first: int, changed: Truths, errors: Doubles, right: Classes, answers: Classes,
    classes: Classes | None,
) -> list[WorstRow]:  # fmt: skip
    """Return the worst rows, with their first answers, or the first that turned."""
    candidates = np.arange(errors.size)
    if errors.size > 4 * MAX_WORST:  # sorting all of a batch takes longer than all else here
        least = np.partition(errors, -MAX_WORST)[-MAX_WORST]
        candidates = np.flatnonzero(changed | (errors >= least))
    order = np.lexsort((-errors[candidates], ~changed[candidates]))  # of equal ones the first row
    worst = candidates[order[:MAX_WORST]]
    columns = [right, answers] if classes is None else [right, answers, classes]
    listed = [column[worst, :_MAX_ANSWERS].tolist() for column in columns]
    if classes is None:
        listed.append([[] for _ in worst])
    facts = (worst.tolist(), changed[worst].tolist(), errors[worst].tolist(), *listed)
    rows = [WorstRow(first + index, *row) for index, *row in zip(*facts, strict=True)]
    if answers.shape[1] > 1:
        for row in rows:
            index = row.row - first
            at = np.flatnonzero(answers[index] != right[index])[:_MAX_ANSWERS]
            if at.size:
                row.fp32, row.answer = right[index, at].tolist(), answers[index, at].tolist()
                row.label = [] if classes is None else classes[index, at].tolist()
    return rows


def node_facts(program: Program) -> list[NodeFacts]:
    """Return where the nodes of a program went."""
    return [
        NodeFacts(
            node.index,
            title(node),
            node.op_type,
            node.device,
            list(node.functions),
            node.reason,
            node.macc,
            list(node.inputs),
            list(node.outputs),
        )
        for node in program.nodes
    ]


def _compare(run: Run, got: Mapping[str, Decided], expected: Mapping[str, Decided]) -> None:
    for name, hosted in got.items():
        output, reference = run.outputs.setdefault(name, Output()), expected.get(name)
        array = hosted.array
        if reference is not None and reference.array.shape == array.shape:
            bad = output.tally.bad
            output.tally.add(array, reference.array)
            if array.size:
                classes = classes_of(array)
                output.agreement.add_classes(hosted.classes, reference.classes, classes)
            if output.tally.bad == bad:
                continue  # every element is a number
        if array.dtype.kind == "f":
            output.nans += int(np.count_nonzero(np.isnan(array)))


def _note(run: Run, result: Result, program: Program, row: int) -> None:
    """Count the range violations of a run, and keep the first of all."""
    run.violations += len(result.violations)
    if result.violations and run.first is None:
        run.first = _first(program, result, row)


def _first(program: Program, result: Result, row: int) -> Violation:
    """Describe the first violation and its elements."""
    violation = result.violations[0]
    node = program.nodes[violation.node] if violation.node >= 0 else None
    elements = [
        f"{operand.operand}{list(element.index)} is not numeric"
        + _operand_values(violation.verb, operand.operand, element.operand_values)
        for operand in (violation.violation.operands if violation.violation is not None else ())
        for element in operand.elements
    ][:_MAX_ELEMENTS]
    name, kind = ("(an output)", "") if node is None else (title(node), node.op_type)
    return Violation(row, name, kind, violation.verb, elements)


def _operand_values(verb: str, operand: str, values: Sequence[float]) -> str:
    """Describe the operand values behind a non-numeric result."""
    if not values or operand not in FUNCTIONS[verb].written:
        return ""
    return f", from {', '.join(f'{number:g}' for number in values)}"
