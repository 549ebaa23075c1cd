# SPDX-License-Identifier: Apache-2.0
"""The verbs against the wire contract: every arm has one, with C's parameters in C's order."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult
from nnpa.zdnn.v1.tensor_pb2 import Ztensor as Structure
from nnpa.zdnn.v1.tensor_pb2 import ZtensorInfo
from nnpa_client import Session, Ztensor, zdnn
from nnpa_client._server.transport import Request, Response
from nnpa_client._values import constants
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport

ARMS: Mapping[str, FieldDescriptor] = {
    field.name: field for field in Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
}
VERBS = [name for name, field in ARMS.items() if 20 <= field.number < 100]
# Functions that ask nobody, and those that are two arms in one.
LOCAL = {
    "generate_quantized_transformed_desc",
    "generate_transformed_desc",
    "generate_transformed_desc_concatenated",
    "get_library_version",
    "get_library_version_str",
    "get_max_limit",
    "get_min_limit",
    "get_status_message",
    "getsize_ztensor",
    "init_pre_transformed_desc",
    "is_quantized_ztensor",
    "init_quantized_ztensor_with_malloc",
    "init_ztensor_with_malloc",
}
# Where C has a parameter that does not travel: zDNN API Reference 1.2.0.
AREAS = {
    "softmax": (1, "save_area"),
    "softmax_mask": (1, "save_area"),
    "reduce": (1, "save_area"),
    "quantized_matmul_op": (9, "work_area"),
    "lstm": (8, "work_area"),
    "gru": (7, "work_area"),
}
PYTHON_ONLY = "all_timesteps"


def parameters(name: str) -> list[FieldDescriptor]:
    """Return the fields of an arm's message, in order."""
    message = ARMS[name].message_type
    assert message is not None
    return list(message.fields)


def functions() -> set[str]:
    """Return the names of the public functions of `zdnn`, macros of C apart."""
    return {
        name
        for name, value in vars(zdnn).items()
        if inspect.isfunction(value) and not name.startswith("_") and name.islower()
    }


def test_arms_and_local_functions_are_the_69_names() -> None:
    """The functions of `zdnn` are the arms and the local functions, 69 in all."""
    assert functions() == set(ARMS) | LOCAL
    assert len(functions()) == 69


@pytest.mark.parametrize("name", sorted(set(ARMS) | LOCAL))
def test_functions_are_documented(name: str) -> None:
    """Every function has a docstring that names its source."""
    assert "zDNN API Reference 1.2.0" in (inspect.getdoc(getattr(zdnn, name)) or "")


@pytest.mark.parametrize("name", VERBS)
def test_parameters_are_in_c_order(name: str) -> None:
    """A verb's parameters are the message's fields in order, with work and save areas in place."""
    expected = [field.name for field in parameters(name)]
    if name in AREAS:
        place, area = AREAS[name]
        expected.insert(place, area)
    assert list(inspect.signature(getattr(zdnn, name)).parameters) == expected


class Recording(InProcessTransport):
    """A transport that notes operations and answers OK with outputs, without running them."""

    def __init__(self) -> None:
        super().__init__(Store(Limits()))
        self.operations: list[Operation] = []
        self.record = False

    def execute(self, request: Request) -> Response:
        """Note the operations; before `record` is set, run them."""
        if not self.record:
            return super().execute(request)
        operations = request.message.operations
        self.operations.extend(operations)
        return Response([OperationResult(outputs=_outputs(operation)) for operation in operations])


def _outputs(operation: Operation) -> list[ZtensorInfo]:
    arm = getattr(operation, operation.WhichOneof("operation") or "")
    return [
        ZtensorInfo(id=value.new_id, operand=field.name, ztensor=Structure(is_transformed=True))
        for field, value in arm.ListFields()
        if field.message_type is not None and value.HasField("new_id")
    ]


def argument(field: FieldDescriptor, ztensor: Ztensor, place: int) -> Any:
    """Return a value for a field; no other field of the message gets the same value."""
    if field.message_type is not None:
        return ztensor
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return place + 0.5
    return True if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL else place + 1


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("created", [False, True])
def test_every_argument_reaches_its_field(name: str, created: bool) -> None:
    """Arguments in C order arrive in their fields; a call without outputs creates them."""
    if created and name == "quantized_matmul_op":
        with pytest.raises(TypeError, match="output"):
            zdnn.quantized_matmul_op(*[None] * 10)  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType] - the test
        return
    transport = Recording()
    session = Session(transport)
    fields = [field for field in parameters(name) if field.name != PYTHON_ONLY]
    outputs = [field.name for field in fields if "output" in field.name]
    tensors = [session.ztensor(np.ones(3, np.float32)) for _ in fields]
    values = {
        field.name: argument(field, tensor, place)
        for place, (field, tensor) in enumerate(zip(fields, tensors, strict=True))
    }
    passed = [value for key, value in values.items() if not (created and key in outputs)]
    if name in AREAS:
        passed.insert(AREAS[name][0], None)
    transport.record = True
    answer = getattr(zdnn, name)(*passed)
    arm = getattr(transport.operations[-1], name)
    for key, value in values.items():
        got = getattr(arm, key)
        if created and key in outputs:
            assert got.new_id
        elif isinstance(value, Ztensor):
            assert got.id == value.id
        else:
            assert got == value, key
    results = answer if isinstance(answer, tuple) else (answer,)
    assert len(results) == len(outputs)
    assert all(result.is_transformed for result in results) or not created


def test_all_timesteps_travels() -> None:
    """RNN verbs send whether a new hn_output holds all timesteps."""
    transport = Recording()
    ztensor = Session(transport).ztensor(np.ones(3, np.float32))
    transport.record = True
    x = ztensor
    zdnn.gru(x, x, x, x, x, x, zdnn.FWD, all_timesteps=True)
    assert transport.operations[-1].gru.all_timesteps


@pytest.mark.parametrize(("number", "sent"), [(7, 7), (0x7FFFFFFF, 0x7FFFFFFF), (0xFFFFFFFF, -1)])
def test_unknown_enum_numbers_travel(number: int, sent: int) -> None:
    """A number that zDNN does not know is sent as the int32 with the same bits."""
    transport = Recording()
    ztensor = Session(transport).ztensor(np.ones(3, np.float32))
    transport.record = True
    zdnn.softmax(ztensor, None, number)
    assert transport.operations[-1].softmax.act_func == sent


def test_absent_clipping_value_is_null() -> None:
    """A clipping_value of None is C's NULL: the field is absent; 0 is not."""
    transport = Recording()
    ztensor = Session(transport).ztensor(np.ones(3, np.float32))
    transport.record = True
    zdnn.relu(ztensor)
    assert not transport.operations[-1].relu.HasField("clipping_value")
    zdnn.relu(ztensor, 0)
    assert transport.operations[-1].relu.HasField("clipping_value")


def test_query_verbs_of_session_and_zdnn_are_the_same() -> None:
    """Every environment arm is a method of Session and a function of zdnn, alike."""
    for name, field in ARMS.items():
        if field.number >= 100:
            ours = inspect.signature(getattr(zdnn, name)).parameters
            method = inspect.signature(getattr(Session, name)).parameters
            assert list(method)[1:] == list(ours), name


# Values of macros of zdnn.h. Source: zDNN API Reference 1.2.0, "Common Types and Structs".
MACROS = {
    "ZDNN_WARNING": 0x00020000,
    "ZDNN_PARAMETER_ERROR": 0x00040000,
    "ZDNN_DATA_ERROR": 0x00100000,
    "ZDNN_HW_ERROR": 0x000C0000,
    "ZDNN_VERSION": "1.2.0",
    "ZDNN_VERNUM": 66048,
    "ZDNN_SOFTMAX_SAVEAREA_SIZE": 8192,
    "ZDNN_8K_SAVEAREA_SIZE": 8192,
    "RNN_TYPE_LSTM": 0,
    "RNN_TYPE_GRU": 16777216,
    "PREV_LAYER_UNI": 0,
    "PREV_LAYER_NONE": 0,
    "PREV_LAYER_BIDIR": 65536,
    "USAGE_WEIGHTS": 0,
    "USAGE_HIDDEN_WEIGHTS": 256,
    "USAGE_BIASES": 512,
    "USAGE_HIDDEN_BIASES": 768,
    "QUERY_DATATYPE_INTERNAL1": 32768,
    "QUERY_DATATYPE_BINARY_FP32": 512,
    "QUERY_DATATYPE_BINARY_INT8": 128,
    "QUERY_DATATYPE_BINARY_INT32": 32,
    "QUERY_LAYOUTFMT_4DFEATURE": 2147483648,
    "QUERY_LAYOUTFMT_4DKERNEL": 1073741824,
    "QUERY_LAYOUTFMT_4DWEIGHTS": 536870912,
    "QUERY_LAYOUTFMT_4DGENERIC": 1,
    "QUERY_BFPFMT_TINY": 16384,
    "QUERY_BFPFMT_SHORT": 8192,
}


@pytest.mark.parametrize(("name", "value"), MACROS.items())
def test_macros(name: str, value: object) -> None:
    """A macro of zdnn.h has its number here."""
    assert getattr(zdnn, name) == value


def test_every_enum_value_of_the_contract_is_here() -> None:
    """Every zDNN name of the contract's enums is in `zdnn` with the same number."""
    for file in ("status", "tensor", "operation"):
        module = __import__(f"nnpa.zdnn.v1.{file}_pb2", fromlist=["DESCRIPTOR"])
        for enum in module.DESCRIPTOR.enum_types_by_name.values():
            if enum.values[0].name.endswith("UNSPECIFIED") and enum.name != "NnpaBfpFormat":
                continue
            for value in enum.values:
                if not value.name.endswith("UNSPECIFIED"):
                    assert getattr(zdnn, value.name) == value.number, value.name


def test_concat_macros() -> None:
    """The CONCAT macros take their byte out of a concatenation info, in place."""
    info = zdnn.RNN_TYPE_GRU | zdnn.PREV_LAYER_BIDIR | zdnn.USAGE_HIDDEN_BIASES | 0xAB
    assert constants.CONCAT_RNN_TYPE(info) == zdnn.RNN_TYPE_GRU
    assert constants.CONCAT_PREV_LAYER(info) == zdnn.PREV_LAYER_BIDIR
    assert constants.CONCAT_USAGE(info) == zdnn.USAGE_HIDDEN_BIASES


class Counting(InProcessTransport):
    """A transport that counts lists of operations."""

    def __init__(self) -> None:
        super().__init__(Store(Limits()))
        self.lists: list[int] = []

    def execute(self, request: Request) -> Response:
        """Note the length of a list, and run it."""
        self.lists.append(len(request.message.operations))
        return super().execute(request)


@pytest.mark.parametrize("columns", [64, 1 << 15])
def test_a_ztensor_is_made_with_one_list(columns: int) -> None:
    """Init, allocation and transform leave together, with a small array and with a large one."""
    transport = Counting()
    array = np.arange(columns, dtype=np.float32) % 64
    with Session(transport) as session:
        ztensor = session.ztensor(array)
        assert transport.lists == [3]
        assert np.array_equal(ztensor.numpy(), array)
