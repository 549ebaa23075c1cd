# SPDX-License-Identifier: Apache-2.0
"""The model from which the SDKs' verbs are made says what the contract and the library say."""

import inspect

import pytest
from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa_emulator import FUNCTIONS, Ztensor
from nnpa_emulator.status import Status

pytest.importorskip("grpc_tools", reason="the generator is in the extra `test`")

from sdk import SDKS, Absent, Kind, Sdk, Value, read_contract, render
from sdk.rendering import camel, comment, pascal
from sdk.verbs import LIFE

CONTRACT = read_contract()
VERBS = {verb.name: verb for verb in CONTRACT.verbs}
ARMS = Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
# Parameters of the contract that C has not, and the one whose default C has in its count.
BEYOND_C = {"all_timesteps"}


def test_every_arm_is_a_verb() -> None:
    """The verbs are the arms, by number, with the arm's fields in order."""
    assert [verb.number for verb in CONTRACT.verbs] == sorted(arm.number for arm in ARMS)
    for arm in ARMS:
        message = arm.message_type
        assert message is not None
        names = [one.name for one in VERBS[arm.name].parameters]
        assert names == [field.name for field in message.fields]
        assert VERBS[arm.name].message == message.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_absence_is_the_librarys(name: str) -> None:
    """A scalar may be left out exactly when the library's parameter has a default."""
    known = FUNCTIONS[name].parameters
    for parameter in VERBS[name].scalars:
        if parameter.name not in BEYOND_C:
            optional = known[parameter.name].default is not inspect.Parameter.empty
            assert (parameter.absent is not Absent.REQUIRED) is optional, parameter.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_outputs_are_the_librarys(name: str) -> None:
    """The outputs of an operation are those that the library writes, all others are inputs."""
    entry, verb = FUNCTIONS[name], VERBS[name]
    if entry.operation is not None:
        assert [one.name for one in verb.outputs] == list(entry.outputs)
    tensors = [key for key, one in entry.parameters.items() if one.annotation is Ztensor]
    told = [one.name for one in verb.parameters if one.kind in (Kind.ZTENSOR, Kind.NEW_ZTENSOR)]
    assert told == tensors


def test_what_must_be_given() -> None:
    """Outputs may be left out but for those whose descriptors nothing tells."""
    given = {
        (verb.name, one.name)
        for verb in CONTRACT.verbs
        for one in verb.outputs
        if one.absent is not Absent.CREATED
    }
    assert given == {("reshape_ztensor", "dest"), ("quantized_matmul_op", "output")}


def test_values() -> None:
    """What C answers beside a status: bool of is_..., a number of get_..., a range, an array."""
    returning = {one.name: one.value for one in CONTRACT.verbs if one.value is not Value.NOTHING}
    assert returning.pop("getrange_ztensor") is Value.RANGE
    assert returning.pop("transform_origtensor") is Value.DATA
    asking = {name for name in VERBS if name.startswith(("is_", "get_"))}
    assert returning.keys() == asking
    for name, value in returning.items():
        assert value is (Value.BOOLEAN if name.startswith("is_") else Value.NUMBER), name


def test_written_by_hand() -> None:
    """Only the verbs that make and end a ztensor are written by hand, and they exist."""
    assert {verb.name for verb in CONTRACT.verbs if verb.by_hand} == LIFE


def test_enums() -> None:
    """ZDNN's enums have zDNN's names only, and the statuses are all there."""
    zdnn = {enum.name: enum for enum in CONTRACT.enums if enum.zdnn}
    assert {one.name: one.number for one in zdnn["ZdnnStatus"].constants} == {
        one.name: int(one) for one in Status
    }
    names = [one.name for enum in zdnn.values() for one in enum.constants]
    assert not [name for name in names if name.endswith("_UNSPECIFIED")]
    assert {"MachineModel", "ErrorReason", "ByteOrder"}.isdisjoint(zdnn)


def test_every_verb_is_documented() -> None:
    """A verb's text begins with its C name, and every parameter has a text."""
    for verb in CONTRACT.verbs:
        assert verb.doc[0].startswith(f"zdnn_{verb.name}: ")
        assert all(one.doc for one in verb.parameters), verb.name


def test_spellings() -> None:
    """Names are spelled as languages do, and comments stay within their width."""
    assert (pascal("matmul_op"), camel("input_a"), camel("h0")) == ("MatmulOp", "inputA", "h0")
    text = comment(["one " * 30, "two"], "// ", 40)
    assert all(len(line) <= 40 and line.startswith("//") for line in text.splitlines())
    assert text.splitlines()[-2:] == ["//", "// two"]


@pytest.mark.parametrize("sdk", SDKS, ids=[one.name for one in SDKS])
def test_every_verb_is_rendered(sdk: Sdk) -> None:
    """An SDK's sources name every verb that is not written by hand."""
    rendered = "\n".join(render(sdk, CONTRACT).values())
    for verb in CONTRACT.verbs:
        if not verb.by_hand:
            assert pascal(verb.name) in rendered or camel(verb.name) in rendered, verb.name
