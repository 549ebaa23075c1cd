# SPDX-License-Identifier: Apache-2.0
"""The server against the contract: every reason mapped, every arm read as its function takes it."""

import inspect
import re
from pathlib import Path

import grpc
import nnpa_emulator.status
import pytest
from nnpa.zdnn.v1 import operation_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import FUNCTIONS, Malformed, NotInLibrary, ProgramCheck, Refusal
from nnpa_server.accelerator import OPERATION_SPECS
from nnpa_server.errors import CODES, CallRefused, from_exception

from tests.server.wire import Client, init, op, refused

ROOT = Path(__file__).parents[2]
ARM_FIELDS = operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields


def test_every_reason_has_one_code() -> None:
    """The error table has each reason of the contract, and no other."""
    assert set(CODES) == set(wire.ErrorReason.values()) - {wire.ERROR_REASON_UNSPECIFIED}


def test_codes_equal_the_contracts() -> None:
    """The comment of each reason begins with the code that the table has."""
    source = (ROOT / "protos/nnpa/zdnn/v1/status.proto").read_text()
    comments = re.findall(r"((?:  //.*\n)+)  (ERROR_REASON_\w+) = (\d+);", source)
    documented = {
        int(number): re.match(r"\s*// ([A-Z_]+):", comment)
        for comment, _, number in comments
        if int(number)
    }
    codes = {number: match[1] for number, match in documented.items() if match is not None}
    assert codes == {reason: code.name for reason, code in CODES.items()}


def test_the_page_of_errors_lists_every_reason() -> None:
    """The table of the manual has the same pairs of code and reason."""
    text = (ROOT / "deploy/docs/errors.md").read_text()
    rows = re.findall(r"^\|[^|]*\| ([A-Z_]+) \| ([A-Z_]+) \|", text, re.M)
    assert {reason: code for code, reason in rows} == {
        wire.ErrorReason.Name(wire.ErrorReason.ValueType(reason)).removeprefix(
            "ERROR_REASON_"
        ): code.name
        for reason, code in CODES.items()
    }


REFUSAL = Refusal(0x00040001, "input_b", "3", "2", "add_c1")
RAISED: list[tuple[Exception, str]] = [
    (ProgramCheck("data", REFUSAL), "PROGRAM_CHECK"),
    (NotInLibrary("sqrt", "1.1.0", "1.0.0"), "FUNCTION_NOT_IN_LIBRARY"),
    (Malformed("data[0]", "3 bytes", "4 bytes"), "DATA_SIZE_MISMATCH"),
    (Malformed("clip_min", 300, "int8"), "FIELD_INVALID"),
    (CallRefused(wire.ERROR_REASON_SESSION_NOT_FOUND, "gone"), "SESSION_NOT_FOUND"),
    (ModuleNotFoundError("secret", name="onnx"), "EXTENSION_NOT_OFFERED"),
    (ModuleNotFoundError("secret", name="ours"), "INTERNAL"),
    (RuntimeError("secret"), "INTERNAL"),
]


@pytest.mark.parametrize(("error", "reason"), RAISED)
def test_exceptions_become_errors(error: Exception, reason: str) -> None:
    """Every exception has its row, with the facts of the message as metadata."""
    refused = from_exception(error, operation_index=4)
    assert refused.name == reason
    assert "secret" not in refused.message
    assert refused.metadata.get("operation_index", "4") == "4"


def test_every_exception_of_the_emulator_is_mapped() -> None:
    """The table has all exceptions of status.py but the one that `run` catches."""
    defined = {
        member
        for member in vars(nnpa_emulator.status).values()
        if inspect.isclass(member) and issubclass(member, Exception)
    }
    mapped = {type(error) for error, reason in RAISED if reason != "INTERNAL"}
    assert defined - mapped == {nnpa_emulator.status.Refused}


def test_internal_errors_tell_strangers_nothing() -> None:
    """A failure of ours has a correlation id and none of the exception's text."""
    refused = from_exception(ValueError("/home/someone/secret"))
    assert (refused.code, refused.name) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in refused.message + "".join(refused.metadata.values())
    assert set(refused.metadata) == {"correlation_id"}


def test_arms_are_the_functions_of_the_emulator() -> None:
    """Every function that can be called by name is an arm, and read by the server."""
    assert set(FUNCTIONS) <= {field.name for field in ARM_FIELDS}
    assert set(OPERATION_SPECS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(OPERATION_SPECS))
def test_fields_are_the_parameters(name: str) -> None:
    """An arm's fields are the parameters of its function, in C order, but for hints of ours."""
    (field,) = (arm for arm in ARM_FIELDS if arm.name == name)
    assert field.message_type is not None
    fields = [
        parameter.name
        for parameter in field.message_type.fields
        if parameter.name != "all_timesteps"
    ]
    assert set(fields) == set(FUNCTIONS[name].parameters) - {"all_timesteps"}
    tensors = [parameter for parameter in fields if parameter in FUNCTIONS[name].tensors]
    assert tensors == list(FUNCTIONS[name].tensors)


def test_arm_without_a_function_is_not_implemented(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arm of the contract that the emulator lacks refuses the list before anything runs."""
    fewer = {name: arm for name, arm in OPERATION_SPECS.items() if name != "exp"}
    monkeypatch.setattr("nnpa_server.accelerator.decode.OPERATION_SPECS", fewer)
    with refused(
        grpc.StatusCode.UNIMPLEMENTED, "FUNCTION_NOT_IMPLEMENTED", operation="exp",
        operation_index=2,
    ):  # fmt: skip
        client.run(*init(1, 4), op("exp", input=1, output=1))
    assert client.used() == (0, 0)
