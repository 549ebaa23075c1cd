# SPDX-License-Identifier: Apache-2.0
"""The vectors that all targets share, through the C library."""

import faulthandler
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_float, c_uint32, create_string_buffer
from typing import Any

import pytest
from google.protobuf import json_format
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import status_pb2 as statuses
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests import vector_runner
from tests.libzdnn.binding import NUMBERS, CZtensor, Desc, Program, desc_of
from tests.libzdnn.toolchain import TRANSFERS, Prefix
from tests.vector_runner import MODEL_NAMES, CallFailedError, Json, Vector

# What C has no words for: tensors that live on the server, a custom machine, a move of the guest
# between two calls, an array whose size is wrong.
_LIFE = ("init_ztensor", "init_quantized_ztensor", "allochelper_ztensor", "reset_ztensor")
_NOT_IN_C = (*_LIFE, "free_ztensor_buffer")
# Bytes of the pre-transformed types that have not four.
_WIDTHS: Mapping[int, int] = {tensors.INT8: 1, tensors.FP16: 2, tensors.BFLOAT: 2}
_UNSEEN = ("refusal", "violation")


def _tensors_inline(vector: Vector) -> bool:
    held = vector.line.get("tensors", {})
    for step in vector.line["steps"]:
        for arm in step["operation"].values():
            refs = arm.values() if isinstance(arm, dict) else ()
            for ref in refs:
                if isinstance(ref, dict) and "id" in ref and str(ref["id"]) not in held:
                    return False
                if isinstance(ref, dict) and "new_id" in ref:
                    return False
    return True


def in_c(vector: Vector) -> bool:
    """Tell whether a C program can run the vector."""
    line = vector.line
    plain = "machine_spec" not in line and vector.function not in _NOT_IN_C
    steps = all("operation" in step and _sayable(step) for step in line["steps"])
    return plain and steps and _tensors_inline(vector)


def _sayable(step: Json) -> bool:
    """Tell whether C can make the call and get its answer: a number has no room for an error."""
    error, names = step.get("error"), set(step["operation"])
    without_status = error == "FUNCTION_NOT_IN_LIBRARY" and names <= NUMBERS
    return error != "DATA_SIZE_MISMATCH" and not without_status


VECTORS = [vector for vector in vector_runner.load() if in_c(vector)]
CHECKED = [
    vector
    for vector in VECTORS
    if any(step.get("error") == "PROGRAM_CHECK" for step in vector.line["steps"])
]
ANSWERED = [vector for vector in VECTORS if vector not in CHECKED]
LOCAL = vector_runner.load(vector_runner.VECTORS / "local")


@pytest.fixture(scope="module", params=TRANSFERS)
def program(prefix: Prefix, server: str, request: pytest.FixtureRequest) -> Iterator[Program]:
    """A program that uses libzdnn: this process, each way that sticks may travel."""
    before = dict(os.environ)
    os.environ.update(ZDNN_SERVER=server, ZDNN_TRANSFER=request.param)
    yield Program(prefix)
    os.environ.clear()
    os.environ.update(before)


class Opened:
    """The program as a session of the vector runner."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Run one operation."""
        return self._program.execute(operation)

    def move(self, spec: accelerator.MachineSpec) -> None:
        """Refuse: no C program can."""
        raise CallFailedError(f"{spec.model}: no C program can move")


def _seen_in_c(vector: Vector) -> Vector:
    """Return the vector without expectations that C cannot observe, and C's form of errors."""
    steps: list[dict[str, Any]] = []
    for step in vector.line["steps"]:
        seen = {key: value for key, value in step.items() if key not in _UNSEEN}
        if seen.get("error") == "FUNCTION_NOT_IN_LIBRARY":
            del seen["error"]
            seen["status"] = "ZDNN_UNAVAILABLE_FUNCTION"
        steps.append(seen)
    return Vector(vector.function, {**vector.line, "steps": steps})


def _configure(program: Program, options: accelerator.Session) -> None:
    """Configure a guest with these options; another machine needs a new guest."""
    machine = MODEL_NAMES[options.machine_spec.model]
    if os.environ.get("ZDNN_MACHINE") != machine:
        another_version = "1.0.1" if options.library_version != "1.0.1" else "1.0.0"
        program.configure(ZDNN_MACHINE=machine, ZDNN_LIBRARY_VERSION=another_version)
        program.library.zdnn_is_nnpa_installed()
    program.configure(
        ZDNN_LIBRARY_VERSION=options.library_version,
        ZDNN_ENABLE_PRECHECK=str(options.precheck).lower(),
    )


def _run(program: Program, vector: Vector) -> None:
    @contextmanager
    def target(options: accelerator.Session) -> Generator[Opened]:
        _configure(program, options)
        yield Opened(program)

    vector_runner.run(_seen_in_c(vector), target)


@pytest.mark.parametrize("vector", ANSWERED, ids=str)
def test_vector(program: Program, vector: Vector) -> None:
    """The C functions give a vector's statuses, bits, values and flags."""
    _run(program, vector)


@pytest.mark.parametrize("vector", CHECKED, ids=str)
def test_program_check(program: Program, vector: Vector) -> None:
    """A program check ends the process with the signal that it raises on the machine."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        for number in (signal.SIGILL, signal.SIGSEGV):
            signal.signal(number, signal.SIG_DFL)
        os.close(2)
        try:
            _run(program, vector)
        finally:
            os._exit(1)
    _pid, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"no signal but {status}"
    assert os.WTERMSIG(status) in (signal.SIGILL, signal.SIGSEGV)


def _number(name: str | int) -> int:
    for enum in (tensors.DataTypes, tensors.DataLayouts, tensors.QuantizedTransformTypes):
        if isinstance(name, str) and name in enum.keys():  # noqa: SIM118 - no mapping
            return enum.Value(name)
    return int(name)


def _answered(status: int, desc: Desc) -> Json:
    if status:
        return {"status": statuses.ZdnnStatus.Name(statuses.ZdnnStatus.ValueType(status))}
    message = tensors.TensorDesc(layout=desc.layout, format=desc.format, type=desc.type)
    message.dim4, message.dim3, message.dim2, message.dim1 = (
        desc.dim4, desc.dim3, desc.dim2, desc.dim1,
    )  # fmt: skip
    return {"result": json_format.MessageToDict(message, preserving_proto_field_name=True)}


def _descriptor(line: Json, key: str) -> Desc:
    return desc_of(json_format.ParseDict(dict(line[key]), tensors.TensorDesc()))


def _limit(program: Program, function: str, a: Json) -> Json:
    room = create_string_buffer(b"\xcc" * 8, 8)
    kinds = (_number(a["transformed_type"]), _number(a["pre_transformed_type"]))
    status = getattr(program.library, f"zdnn_{function}")(*map(c_uint32, kinds), room)
    if status:
        assert room.raw == b"\xcc" * 8
        return _answered(status, Desc())
    width = _WIDTHS.get(kinds[1], 4)
    assert room.raw[width:] == b"\xcc" * (8 - width)
    return {"result": room.raw[:width][::-1].hex().upper()}


def _generated(program: Program, function: str, a: Json) -> Json:
    pre, target = _descriptor(a, "pre_transformed_desc"), Desc()
    more = [c_uint32(_number(a[key])) for key in ("transform_type", "info") if key in a]
    called = getattr(program.library, f"zdnn_{function}")
    return _answered(called(byref(pre), *more, byref(target)), target)


def _local(program: Program, function: str, a: Mapping[str, Any]) -> Json:
    library = program.library
    match function:
        case "init_pre_transformed_desc":
            desc = Desc()
            kinds = (c_uint32(_number(a["layout"])), c_uint32(_number(a["type"])))
            library.zdnn_init_pre_transformed_desc(*kinds, byref(desc), *map(c_uint32, a["dims"]))
            desc_fields = dict(_answered(0, desc)["result"])
            del desc_fields["format"]
            return {"result": desc_fields}
        case "get_max_limit" | "get_min_limit":
            return _limit(program, function, a)
        case "getsize_ztensor":
            desc = _descriptor(a, "transformed_desc")
            return {"result": library.zdnn_getsize_ztensor(byref(desc))}
        case "get_status_message":
            library.zdnn_get_status_message.restype = c_char_p
            return {"result": library.zdnn_get_status_message(c_uint32(a["status"])).decode()}
        case "is_quantized_ztensor":
            library.zdnn_is_quantized_ztensor.restype = c_uint32
            ztensor = CZtensor(rec_scale=c_float(a["rec_scale"]))
            return {"result": bool(library.zdnn_is_quantized_ztensor(byref(ztensor)) & 0xFF)}
        case "get_library_version":
            program.configure(ZDNN_LIBRARY_VERSION=a["library"])
            return {"result": library.zdnn_get_library_version()}
        case "get_library_version_str":
            program.configure(ZDNN_LIBRARY_VERSION=a["library"])
            library.zdnn_get_library_version_str.restype = c_char_p
            return {"result": library.zdnn_get_library_version_str().decode()}
        case _:
            return _generated(program, function, a)


@pytest.mark.parametrize("vector", LOCAL, ids=str)
def test_local_vector(program: Program, vector: Vector) -> None:
    """A local function gives the result or status that the vector's source says."""
    vector_runner.run_local(vector, lambda function, line: _local(program, function, line))
