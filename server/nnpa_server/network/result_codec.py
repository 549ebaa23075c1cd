# SPDX-License-Identifier: Apache-2.0
"""The codec of results between workers and server: JSON, and the outputs as arrays.

Workers are not trusted: a result is refused if the types or ranks of its outputs are not the
program's. Sizes of outputs are not checked, because shape inference does not know all of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

from nnpa_emulator.status import Status
from nnpa_network.program import ANY_RANK, Array, Program
from nnpa_network.running.results import Result, Violation

from nnpa_server.network.program_codec import NotProgram, pack, unpack

_MAX_TEXT = 1000
_ViolationFacts: TypeAlias = tuple[int, str, int, int]
"""A warning: node, verb, status, and the number of elements that are no numbers."""


class ResultFacts(TypedDict):
    """The JSON of a `Result`; `texts` has the shapes of outputs of text, by position."""

    violations: list[_ViolationFacts]
    nans: list[int]
    texts: dict[str, list[int]]


def encode_result(result: Result) -> tuple[ResultFacts, tuple[Array, ...]]:
    """Return the facts of a result, and its outputs in the program's order."""
    arrays, texts = pack(result.outputs.values())
    facts = ResultFacts(
        violations=[
            (warned.node, warned.verb, int(warned.status), warned.count)
            for warned in result.violations
        ],
        nans=list(result.nans.values()),
        texts=texts,
    )
    return facts, arrays


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
        shape = program.arrays.get(number, port).shape
        has_rank = shape == ANY_RANK or array.ndim == len(shape)
        if array.dtype != port.dtype or not has_rank:
            raise NotProgram(f"output {port.name}: {array.dtype} {list(array.shape)}")
    names = [port.name for port in ports]
    violations = tuple(_violation(warned, len(program.nodes)) for warned in facts["violations"])
    if violations and Counter(violation.verb for violation in violations) - Counter(calls):
        raise NotProgram("warnings of calls that the program does not make")
    nans_by_name = dict(zip(names, nans, strict=True))
    return Result(dict(zip(names, outputs, strict=True)), violations, nans_by_name, dict(calls))


def _violation(facts: _ViolationFacts, n_nodes: int) -> Violation:
    number, verb, status, count = facts
    node = _number(number + 1) - 1
    if node >= n_nodes:  # -1 is no node of the model
        raise NotProgram("a warning of no node")
    return Violation(node, _text(verb), Status(_number(status)), _number(count))


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise NotProgram("a value in place of a number of 32 bits")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise NotProgram("a value in place of a text")
    return value[:_MAX_TEXT]
