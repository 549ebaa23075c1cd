# SPDX-License-Identifier: Apache-2.0
"""Every vector of every function through the client: a server runs the remote functions."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest
from google.protobuf import json_format
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import MachineSpec
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult
from nnpa.zdnn.v1.tensor_pb2 import (
    DataLayouts,
    DataTypes,
    QuantizedTransformTypes,
    TensorDesc,
    TensorRef,
)
from nnpa_client import ProgramCheck, Session, TransportError, ZdnnError, zdnn
from nnpa_client._server.transport import Transport

from tests import vector_runner
from tests.client.conftest import Open
from tests.vector_runner import CallFailedError, Vector

Json: TypeAlias = Mapping[str, Any]
LOCAL = vector_runner.load(vector_runner.VECTORS / "local")


class Opened:
    """A client's session with the methods that the vector runner calls."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def execute(self, operation: Operation) -> OperationResult:
        """Run one operation."""
        _leave_out_large_buffers(operation, self._session.limits.max_inline_bytes)
        try:
            return self._session.execute([operation])[0]
        except TransportError as error:
            raise CallFailedError(error.reason) from error
        except ProgramCheck as error:
            raise CallFailedError("PROGRAM_CHECK") from error

    def move(self, spec: MachineSpec) -> None:
        """Move the guest to another machine."""
        self._session.update(spec)


def _leave_out_large_buffers(operation: Operation, limit: int) -> None:
    """Give NULL buffers to tensors beyond the limit of a message: earlier checks must refuse."""
    arm = getattr(operation, operation.WhichOneof("operation") or "")
    for _field, value in arm.ListFields():
        if isinstance(value, TensorRef) and value.HasField("inline_ztensor"):
            inline = value.inline_ztensor
            if zdnn.getsize_ztensor(inline.transformed_desc) > limit:
                inline.null_buffer = True


@pytest.mark.parametrize("vector", vector_runner.load(), ids=str)
def test_vector(make_transport: Callable[[], Transport], vector: Vector) -> None:
    """The client returns each vector's statuses, bits, values and flags."""

    @contextmanager
    def target(options: accelerator_pb2.Session) -> Generator[Opened]:
        with Session(make_transport(), options) as session:
            yield Opened(session)

    vector_runner.run(vector, target)


def number(name: str | int) -> int:
    """Return the number of a type, layout or transform type given by name or number."""
    for enum in (DataTypes, DataLayouts, QuantizedTransformTypes):
        if isinstance(name, str) and name in enum.keys():  # noqa: SIM118 - no mapping
            return enum.Value(name)
    return int(name)


def descriptor(line: Json) -> TensorDesc:
    """Return the descriptor of a vector."""
    return json_format.ParseDict(dict(line), TensorDesc())


def descriptor_json(desc: TensorDesc) -> Json:
    """Return a descriptor in the JSON form of vectors."""
    return json_format.MessageToDict(desc, preserving_proto_field_name=True)


def bits(value: np.generic) -> str:
    """Return the bits of a limit in hexadecimal."""
    return value.tobytes()[::-1].hex().upper()


def pre(a: Json) -> TensorDesc:
    """Return the pre-transformed descriptor among a vector's arguments."""
    return descriptor(a["pre_transformed_desc"])


FUNCTIONS: Mapping[str, Callable[[Json], Any]] = {
    "init_pre_transformed_desc": lambda a: descriptor_json(
        zdnn.init_pre_transformed_desc(number(a["layout"]), number(a["type"]), *a["dims"])
    ),
    "generate_transformed_desc": lambda a: descriptor_json(zdnn.generate_transformed_desc(pre(a))),
    "generate_quantized_transformed_desc": lambda a: descriptor_json(
        zdnn.generate_quantized_transformed_desc(pre(a), number(a["transform_type"]))
    ),
    "generate_transformed_desc_concatenated": lambda a: descriptor_json(
        zdnn.generate_transformed_desc_concatenated(pre(a), a["info"])
    ),
    "getsize_ztensor": lambda a: zdnn.getsize_ztensor(descriptor(a["transformed_desc"])),
    "get_max_limit": lambda a: bits(
        zdnn.get_max_limit(number(a["transformed_type"]), number(a["pre_transformed_type"]))
    ),
    "get_min_limit": lambda a: bits(
        zdnn.get_min_limit(number(a["transformed_type"]), number(a["pre_transformed_type"]))
    ),
    "get_status_message": lambda a: zdnn.get_status_message(a["status"]),
}
IN_SESSION = ("get_library_version", "get_library_version_str", "is_quantized_ztensor")


def call(function: str, arguments: Json) -> Json:
    """Call a local function by its C name without prefix."""
    try:
        return {"result": FUNCTIONS[function](arguments)}
    except ZdnnError as error:
        return {"status": error.name}


@pytest.mark.parametrize(
    "vector", [vector for vector in LOCAL if vector.function in FUNCTIONS], ids=str
)
def test_local_vector(vector: Vector) -> None:
    """A local function returns the vector's result or status."""
    vector_runner.run_local(vector, call)


@pytest.mark.parametrize(
    "vector", [vector for vector in LOCAL if vector.function in IN_SESSION], ids=str
)
def test_local_vector_in_a_session(open_session: Open, vector: Vector) -> None:
    """A local function that reads session or ztensor returns the vector's result or status."""

    def in_session(function: str, arguments: Json) -> Json:
        session = open_session(library_version=arguments.get("library"))
        if function != "is_quantized_ztensor":
            return {"result": getattr(zdnn, function)()}
        scale = 1 / arguments["rec_scale"] if arguments["rec_scale"] else 0.0
        ztensor = session.init_quantized_ztensor(TensorDesc(), TensorDesc(), scale, 0.0)
        return {"result": zdnn.is_quantized_ztensor(ztensor)}

    vector_runner.run_local(vector, in_session)


def test_every_local_function_has_vectors() -> None:
    """The tables of calls have all functions with local vectors, and no others."""
    assert {vector.function for vector in LOCAL} == {*FUNCTIONS, *IN_SESSION}
