# SPDX-License-Identifier: Apache-2.0
"""Results of runs between a worker and the server: JSON, and the outputs as arrays.

The worker is not trusted: types and ranks are those of the program, or the result is refused. Sizes
are those of the run, which a program tells as far as shape inference does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

from nnpa_emulator.arith import OperandViolation, RangeViolation, ViolatingElement
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.status import Status
from nnpa_network.program import ANY_RANK, Array, Port, Program
from nnpa_network.running.results import Result, Violation

from nnpa_server.network.program_codec import NotProgram, pack, unpack

_MAX_TEXT = 1000


class ElementFacts(TypedDict):
    """A `ViolatingElement` as JSON has it."""

    index: list[int]
    code: int
    padding: bool
    operand_values: list[float]


class OperandFacts(TypedDict):
    """An `OperandViolation` as JSON has it."""

    operand: str
    count: int
    elements: list[ElementFacts]


class ViolationFacts(TypedDict):
    """A `Violation` as JSON has it; without a range violation `operands` is None."""

    node: int
    verb: str
    status: int
    function: int | None
    operands: list[OperandFacts] | None


class ResultFacts(TypedDict):
    """A `Result` without its outputs; `texts` are shapes of those of text, by their places."""

    violations: list[ViolationFacts]
    nans: list[int]
    texts: dict[str, list[int]]


def encode_result(result: Result) -> tuple[ResultFacts, tuple[Array, ...]]:
    """Return a result's facts, and its outputs in the program's order."""
    arrays, texts = pack(result.outputs.values())
    facts = ResultFacts(
        violations=[_violation_facts(violation) for violation in result.violations],
        nans=list(result.nans.values()),
        texts=texts,
    )
    return facts, arrays


def _violation_facts(violation: Violation) -> ViolationFacts:
    ranged = violation.violation
    function = None if ranged is None or ranged.function is None else int(ranged.function)
    return ViolationFacts(
        node=violation.node,
        verb=violation.verb,
        status=int(violation.status),
        function=function,
        operands=None if ranged is None else [_operand_facts(part) for part in ranged.operands],
    )


def _operand_facts(operand: OperandViolation) -> OperandFacts:
    elements = [
        ElementFacts(
            index=[int(at) for at in element.index],
            code=int(element.code),
            padding=bool(element.padding),
            operand_values=[float(number) for number in element.operand_values],
        )
        for element in operand.elements
    ]
    return OperandFacts(operand=operand.operand, count=int(operand.count), elements=elements)


def decode_result(
    facts: ResultFacts, arrays: Sequence[Array], program: Program, calls: Mapping[str, int]
) -> Result:
    """Return a result of a program that makes `calls`; raise ValueError, TypeError, LookupError."""
    outputs = unpack(arrays, facts["texts"])
    ports = program.outputs
    nans = [_number(count) for count in facts["nans"]]
    if not len(outputs) == len(ports) == len(nans):
        raise NotProgram(f"{len(outputs)} outputs of {len(ports)}")
    for port, number, array in zip(ports, program.output_ids, outputs, strict=True):
        _require_fit(port, program.arrays.get(number, port).shape, array)
    names = [port.name for port in ports]
    violations = tuple(
        _violation(violation, len(program.nodes)) for violation in facts["violations"]
    )
    if Counter(violation.verb for violation in violations) - Counter(calls):
        raise NotProgram("warnings of calls that the program does not make")
    nans_by_name = dict(zip(names, nans, strict=True))
    return Result(dict(zip(names, outputs, strict=True)), violations, nans_by_name, dict(calls))


def _require_fit(port: Port, shape: tuple[int, ...], array: Array) -> None:
    has_rank = shape == ANY_RANK or array.ndim == len(shape)
    if array.dtype != port.dtype or not has_rank:
        raise NotProgram(f"output {port.name}: {array.dtype} {list(array.shape)}")


def _violation(facts: ViolationFacts, n_nodes: int) -> Violation:
    node, operands, function = _number(facts["node"] + 1) - 1, facts["operands"], facts["function"]
    if node >= n_nodes:  # -1 is no node of the model
        raise NotProgram("a warning of no node")
    ranged = None
    if operands is not None:
        code = None if function is None else FunctionCode(function)
        ranged = RangeViolation(code, tuple(map(_operand, operands)))
    return Violation(node, _text(facts["verb"]), Status(_number(facts["status"])), ranged)


def _operand(facts: OperandFacts) -> OperandViolation:
    elements = tuple(
        ViolatingElement(
            tuple(map(_number, element["index"])),
            _number(element["code"]),
            bool(element["padding"]),
            tuple(map(float, element["operand_values"])),
        )
        for element in facts["elements"]
    )
    return OperandViolation(_text(facts["operand"]), _number(facts["count"]), elements)


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise NotProgram("what should be a number of 32 bits")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise NotProgram("what should be a text")
    return value[:_MAX_TEXT]
