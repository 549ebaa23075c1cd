# SPDX-License-Identifier: Apache-2.0
"""Runs the vectors of `tests/vectors` against any target; `tests/vectors/README.md` is the format.

A target executes operations of the wire contract: the emulator in process, a server behind a
client, the testee of an SDK. The runner sends it messages only, keeps a vector's tensors on its own
side, as the C library keeps a program's, and compares bits.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf import json_format
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import status_pb2 as statuses
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests.oracle import stick as oracle

VECTORS = Path(__file__).parent / "vectors"
Json: TypeAlias = Mapping[str, Any]
MODELS = {
    name.removeprefix("MACHINE_MODEL_").lower().replace("_", "-"): model
    for name, model in accelerator.MachineModel.items()
    if model
}
MODEL_NAMES = {model: name for name, model in MODELS.items()}
_STICK_KEYS = ("codes", "memory")


class CallFailedError(Exception):
    """The call did not reach an answer; `reason` is the name of an ErrorReason of the contract."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Session(Protocol):
    """The methods of a target with a session; both may raise `CallFailedError`."""

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Run one operation."""
        ...

    def move(self, spec: accelerator.MachineSpec) -> None:
        """Move the guest to another machine, as UpdateSession does."""
        ...


Target: TypeAlias = Callable[[accelerator.Session], AbstractContextManager[Session]]


@dataclass(frozen=True, slots=True)
class Vector:
    """One line of a vector file."""

    function: str
    line: Json

    def __str__(self) -> str:
        """Name the vector, for test ids."""
        return f"{self.function}-{self.line['name']}"


def load(folder: Path = VECTORS) -> list[Vector]:
    """Read all vectors of a folder, files in alphabetical order."""
    return [vector for path in sorted(folder.glob("*.jsonl")) for vector in read(path)]


def read(path: Path) -> Iterator[Vector]:
    """Read the vectors of one file."""
    for text in path.read_text(encoding="utf-8").splitlines():
        yield Vector(path.stem, json.loads(text))


def words(text: str) -> list[str]:
    """Spell out a text of hexadecimal words, of which `XXXX*n` stands for n times XXXX."""
    spelled: list[str] = []
    for token in text.split():
        word, _, count = token.partition("*")
        spelled += [word] * int(count or 1)
    return spelled


def little_endian(text: str) -> bytes:
    """Return the bytes of hexadecimal words, each word little-endian."""
    return b"".join(bytes.fromhex(word)[::-1] for word in words(text))


def big_endian_words(raw: bytes, width: int) -> list[str]:
    """Return little-endian bytes as hexadecimal words of `width` bytes."""
    return [raw[at : at + width][::-1].hex().upper() for at in range(0, len(raw), width)]


def machine_spec(line: Json) -> accelerator.MachineSpec:
    """Return the machine of a vector or step: `machine`, with `machine_spec` for overrides."""
    spec = json_format.ParseDict(dict(line.get("machine_spec", {})), accelerator.MachineSpec())
    spec.model = MODELS[line.get("machine", "telum2")]
    return spec


def run(vector: Vector, target: Target) -> None:
    """Run one vector; AssertionError says what differs."""
    line = vector.line
    session = accelerator.Session(
        machine_spec=machine_spec(line),
        library_version=line.get("library", "1.2.0"),
        precheck=line.get("precheck", False),
    )
    held = _tensors(line)
    with target(session) as opened:
        for number, step in enumerate(line["steps"]):
            if "machine" in step:
                opened.move(machine_spec(step))
            else:
                _step(opened, step, held, f"{vector} step {number}")


def _ztensor(line: Json) -> tensors.Ztensor:
    """Build a ztensor from its proto JSON and its `codes` or `memory`."""
    plain = {key: member for key, member in line.items() if key not in _STICK_KEYS}
    tensor = json_format.ParseDict(plain, tensors.Ztensor())
    if "codes" in line:
        tensor.sticks = sticks_of(tensor.transformed_desc, line["codes"]).tobytes()
    elif "memory" in line:
        tensor.sticks = little_endian(line["memory"])
    return tensor


def operations(vector: Vector) -> Iterator[wire.Operation]:
    """Return a vector's operations, its tensors inline as they are at first."""
    held = _tensors(vector.line)
    for step in vector.line["steps"]:
        if "operation" in step:
            yield _operation(step, held)[0]


def _tensors(line: Json) -> dict[int, tensors.Ztensor]:
    return {int(key): _ztensor(tensor) for key, tensor in line.get("tensors", {}).items()}


def _operation(
    step: Json, held: Mapping[int, tensors.Ztensor]
) -> tuple[wire.Operation, dict[str, int]]:
    """Build the operation of a step; return it and its operands' ids in the vector."""
    operation = json_format.ParseDict(step["operation"], wire.Operation())
    name = operation.WhichOneof("operation")
    assert name, step
    arm = getattr(operation, name)
    if "data" in step:
        arm.data.extend(little_endian(array) for array in step["data"])
    return operation, _inline(arm, held)


def _step(session: Session, step: Json, held: dict[int, tensors.Ztensor], where: str) -> None:
    operation, names = _operation(step, held)
    result = _execute(session, operation)
    if isinstance(result, str) or "error" in step:
        assert result == step.get("error"), f"{where}: {result}"
        return
    outputs = {operand: held[key] for operand, key in names.items()}
    for info in result.outputs:
        if info.operand in names:
            _keep(outputs[info.operand], info.ztensor)
        else:
            outputs[info.operand] = info.ztensor
    _compare(result, outputs, step, where)


def _execute(session: Session, operation: wire.Operation) -> wire.OperationResult | str:
    """Return the result, or the reason why there is none."""
    try:
        return session.execute(operation)
    except CallFailedError as failed:
        return failed.reason


def _inline(arm: Any, held: Mapping[int, tensors.Ztensor]) -> dict[str, int]:
    """Put the vector's tensors in the place of their ids; return field name to id."""
    names: dict[str, int] = {}
    for field, value in arm.ListFields():
        if isinstance(value, tensors.TensorRef) and value.id in held:
            names[field.name] = value.id
            value.inline_ztensor.CopyFrom(held[value.id])
    return names


def _keep(mine: tensors.Ztensor, theirs: tensors.Ztensor) -> None:
    """Write back sticks and state, as the C library does."""
    if theirs.WhichOneof("contents"):
        mine.sticks = theirs.sticks
    mine.is_transformed = theirs.is_transformed


def _compare(
    result: wire.OperationResult, outputs: Mapping[str, tensors.Ztensor], step: Json, where: str
) -> None:
    status = step.get("status", "ZDNN_OK")
    expected_status = statuses.ZdnnStatus.Value(status) if isinstance(status, str) else status
    text = f"{result.status_message} {result.refusal.text}"
    assert result.zdnn_status == expected_status, f"{where}: {text}, expected {status}"
    for key, compare in _COMPARISONS.items():
        if key in step:
            compare(result, step[key], f"{where} {key}")
    for operand, expected in step.get("outputs", {}).items():
        assert operand in outputs, f"{where}: no output {operand}"
        _compare_tensor(outputs[operand], expected, step.get("ulps", 0), f"{where} {operand}")


def _compare_value(result: wire.OperationResult, expected: bool | int, where: str) -> None:
    arm = "boolean" if isinstance(expected, bool) else "number"
    assert result.WhichOneof("value") == arm, where
    assert getattr(result, arm) == expected, where


def _compare_range(result: wire.OperationResult, expected: Sequence[str], where: str) -> None:
    got = [
        struct.pack(">f", number).hex().upper() for number in (result.range.min, result.range.max)
    ]
    assert [_quiet(word) for word in got] == list(expected), f"{where}: {got}"


def _quiet(bits: str) -> str:
    """Give every NaN the same bits: a C float on its way through Python may lose its payload."""
    return "7FC00000" if int(bits, 16) & 0x7FFFFFFF > 0x7F800000 else bits


def _compare_data(result: wire.OperationResult, expected: str, where: str) -> None:
    expected_words = words(expected)
    got = big_endian_words(result.data, len(expected_words[0]) // 2)
    assert got == expected_words, f"{where}: {got[:16]}"


def _compare_flags(result: wire.OperationResult, expected: Sequence[str], where: str) -> None:
    expected_flags = sum(wire.FpFlags.Value(f"FP_FLAGS_{name}") for name in expected)
    assert result.fp_flags == expected_flags, f"{where}: {result.fp_flags}"


def _compare_violation(result: wire.OperationResult, expected: Json, where: str) -> None:
    """Compare the elements explained: operand to a list of [e4, e3, e2, e1, code, values...]."""
    got = {
        operand.operand: [
            [*element.index, f"{element.code:04X}", *element.operand_values]
            for element in operand.elements
        ]
        for operand in result.range_violation.operands
    }
    assert got == expected, f"{where}: {got}"


def _compare_refusal(result: wire.OperationResult, expected: str, where: str) -> None:
    assert result.refusal.constraint == expected, f"{where}: {result.refusal.text}"


_COMPARISONS: Mapping[str, Callable[[wire.OperationResult, Any, str], None]] = {
    "value": _compare_value,
    "range": _compare_range,
    "data_out": _compare_data,
    "fp_flags": _compare_flags,
    "violation": _compare_violation,
    "refusal": _compare_refusal,
}


def _compare_tensor(tensor: tensors.Ztensor, expected: Json, ulps: int, where: str) -> None:
    got = np.frombuffer(tensor.sticks, np.uint8)
    if "memory" in expected:
        expected_memory = np.frombuffer(little_endian(expected["memory"]), np.uint8)
        assert np.array_equal(got, expected_memory), where
    if "codes" in expected:
        _compare_sticks(got, tensor.transformed_desc, expected["codes"], ulps, where)
    for key in expected.keys() - set(_STICK_KEYS):
        assert getattr(tensor, key) == expected[key], f"{where}.{key}: {getattr(tensor, key)}"


def _compare_sticks(
    got: npt.NDArray[np.uint8], desc: tensors.TensorDesc, codes: str, ulps: int, where: str
) -> None:
    """Compare all cells within `ulps` units of the last place, and padding with zero."""
    assert got.size == _walked(desc)[1], f"{where}: {got.size} bytes"
    if not ulps:
        differs = np.flatnonzero(got != sticks_of(desc, codes))
        assert not differs.size, f"{where}: {cells_of(desc, got)[:16]}, first byte {differs[:1]}"
        return
    cells = cells_of(desc, got)
    for index, (cell, code) in enumerate(zip(cells, words(codes), strict=True)):
        assert abs(_ordinal(cell) - _ordinal(code)) <= ulps, f"{where}[{index}]: {cell}, not {code}"
    empty = got.copy()
    for place in _places(desc).ravel():
        empty[place : place + cell_bytes(desc)] = 0
    assert not empty.any(), f"{where}: padding is not zero"


def _ordinal(code: str) -> int:
    number = int(code, 16)
    return -(number & 0x7FFF) if number & 0x8000 else number


def cell_bytes(desc: tensors.TensorDesc) -> int:
    """Return the bytes of one cell of a transformed type."""
    return {tensors.ZDNN_BINARY_INT8: 1, tensors.ZDNN_BINARY_INT32: 4}.get(desc.type, 2)


@lru_cache(maxsize=64)
def _walk(
    fmt: int, width: int, dims: tuple[int, int, int, int]
) -> tuple[npt.NDArray[np.int64], int]:
    return oracle.offsets(fmt, width, dims)


def _walked(desc: tensors.TensorDesc) -> tuple[npt.NDArray[np.int64], int]:
    dims = (desc.dim4, desc.dim3, desc.dim2, desc.dim1)
    return _walk(int(desc.format), cell_bytes(desc), dims)


def _places(desc: tensors.TensorDesc) -> npt.NDArray[np.int64]:
    return _walked(desc)[0]


def sticks_of(desc: tensors.TensorDesc, codes: str) -> npt.NDArray[np.uint8]:
    """Lay cells, in row-major order of the transformed dims, into zero sticks, little-endian."""
    places, size = _walked(desc)
    spelled = words(codes)
    assert len(spelled) == places.size, f"{len(spelled)} codes for {places.size} cells"
    buffer = np.zeros(size, np.uint8)
    for place, code in zip(places.ravel(), spelled, strict=True):
        raw = bytes.fromhex(code)[::-1]
        buffer[place : place + len(raw)] = np.frombuffer(raw, np.uint8)
    return buffer


def cells_of(desc: tensors.TensorDesc, buffer: npt.NDArray[np.uint8]) -> list[str]:
    """Return the cells of sticks in row-major order of the transformed dims, as hexadecimal."""
    width = cell_bytes(desc)
    raw = buffer.tobytes()
    return [raw[at : at + width][::-1].hex().upper() for at in _places(desc).ravel().tolist()]


LocalTarget: TypeAlias = Callable[[str, Json], Json]


def run_local(vector: Vector, target: LocalTarget) -> None:
    """Run one vector of a local function; the target answers `result` or `status`."""
    answer = dict(target(vector.function, vector.line["arguments"]))
    expected = {key: vector.line[key] for key in ("result", "status") if key in vector.line}
    if isinstance(expected.get("result"), dict):
        answer["result"], expected["result"] = (
            json_format.ParseDict(reply["result"], tensors.TensorDesc())
            for reply in (answer, expected)
        )
    assert answer == expected, f"{vector}: {answer}"
