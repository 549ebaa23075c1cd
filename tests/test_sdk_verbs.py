# SPDX-License-Identifier: Apache-2.0
"""The model that the SDKs' verbs are made from agrees with the contract and the library."""

import inspect
import re
from functools import partial

import pytest
from nnpa.mli.v1.mli_pb2 import Kernel
from nnpa.zdnn.v1 import options_pb2 as pb
from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa_client._values import constants
from nnpa_client.status import get_status_message
from nnpa_emulator import FUNCTIONS, Ztensor
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.machine import MACHINES
from nnpa_emulator.status import Status

pytest.importorskip("grpc_tools", reason="the generator is in the extra `test`")

from sdk import SDKS, Absent, Kind, Sdk, Value, read_contract, render
from sdk.instruction import operand_counts
from sdk.machines import machines
from sdk.mli import kernels
from sdk.rendering import camel, comment, pascal
from sdk.texts import texts
from sdk.verbs import Constant, Enum

CONTRACT = read_contract()
# What is generated beside verbs: the tables of the instruction's functions.
WITH_VERBS = [sdk for sdk in SDKS if sdk.name not in ("emulator", "trap")]
# The languages whose MLI kernels are generated; their verbs differ in spelling only.
WITH_KERNELS = [sdk for sdk in SDKS if sdk.name in ("go", "java", "typescript")]
VERBS = {verb.name: verb for verb in CONTRACT.verbs}
CODES = next(enum.constants for enum in CONTRACT.enums if enum.name == "NnpaFunctionCode")
ARMS = Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
# First number of each family, as the comment of Operation.operation has them.
FAMILIES = {
    1: "life_cycle",
    20: "elementwise",
    40: "activation",
    50: "normalization",
    60: "matmul",
    70: "convolution",
    80: "recurrent",
    100: "environment",
}


def test_every_arm_is_a_verb() -> None:
    """The verbs are the arms, by number, with the arm's fields in order."""
    assert [verb.number for verb in CONTRACT.verbs] == sorted(arm.number for arm in ARMS)
    for arm in ARMS:
        message = arm.message_type
        assert message is not None
        names = [parameter.name for parameter in VERBS[arm.name].parameters]
        assert names == [field.name for field in message.fields]
        assert VERBS[arm.name].message == message.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_absence_is_the_librarys(name: str) -> None:
    """A scalar may be left out exactly when the library's parameter has a default."""
    signature = FUNCTIONS[name].parameters
    for parameter in VERBS[name].scalars:
        assert (parameter.name not in signature) is parameter.options.beyond_c
        if not parameter.options.beyond_c:
            optional = signature[parameter.name].default is not inspect.Parameter.empty
            assert (parameter.absent is not Absent.REQUIRED) is optional, parameter.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_options_are_the_emulators(name: str) -> None:
    """Version, function code and parameter block format equal the emulator's block."""
    entry, options = FUNCTIONS[name], VERBS[name].options
    assert options.since == entry.since
    scalars = {key.name for key in VERBS[name].parameters if key.options.dlfloat16}
    if entry.operation is None:
        assert (options.code, scalars) == ("", set())
        return
    assert options.parmblk_format == entry.operation.parmblk_format
    issues_one_code = isinstance(entry.run, partial)  # others choose by their arguments
    assert options.code == (entry.operation.code.name if issues_one_code else "")
    floats = (float, float | None)
    assert scalars == {
        key for key, parameter in entry.parameters.items() if parameter.annotation in floats
    }


def test_formats_of_codes_are_the_operations() -> None:
    """A code's lowest parameter block format is the lowest format of its operations."""
    formats = {code.name: code.options.parmblk_format for code in CODES}
    issued: dict[str, set[int]] = {}
    for verb in CONTRACT.verbs:
        if verb.options.code:
            issued.setdefault(verb.options.code, set()).add(verb.options.parmblk_format)
    assert {code: formats[code] for code in issued} == {
        code: min(numbers) for code, numbers in issued.items()
    }


def test_forms_are_the_functions() -> None:
    """A form of a zDNN function has its ztensors in C order, its scalars and its save area."""
    for code in CODES:
        for form in code.options.forms:
            verb = VERBS.get(form.operation)
            if verb is None:
                continue
            assert list(form.inputs) == [tensor.name for tensor in verb.inputs]
            assert list(form.outputs) == [tensor.name for tensor in verb.outputs]
            assert form.save_area is (verb.area == "save_area")
            if verb.name != "quantized_matmul_op":  # its scalars become fields by software
                scalars = {scalar.name for scalar in verb.scalars}
                assert {field.name for field in form.fields} == scalars


def test_forms_of_a_code_have_equal_operands() -> None:
    """The generator refuses, by its name, a code whose forms differ in their number of operands.

    The trap fetches the operands before the form is known.
    """
    forms = (pb.CodeForm(inputs=["input"]), pb.CodeForm(inputs=["input_a", "input_b"]))
    code = Constant("NNPA_CBRT", 36, "", pb.CodeOptions(forms=forms), pb.MachineOptions())
    with pytest.raises(SystemExit, match="NNPA_CBRT: forms differ"):
        operand_counts(code)


def test_a_function_names_a_machine() -> None:
    """The generator refuses, by its name, a function whose first machine does not exist."""
    options = pb.CodeOptions(machine="telum9")
    code = Constant("NNPA_CBRT", 36, "", options, pb.MachineOptions())
    codes = Enum("NnpaFunctionCode", "", (code,), "nnpa_function_code", "operation")
    models = next(enum for enum in CONTRACT.enums if enum.name == "MachineModel")
    with pytest.raises(SystemExit, match="NNPA_CBRT: its first machine"):
        machines([codes, models])


def test_machines_have_the_codes() -> None:
    """Telum I has the codes of parameter block format 0, Telum II all of them."""
    oldest = {code.number for code in CODES if code.options.parmblk_format == 0}
    assert set(MACHINES["telum1"].qaf.function_codes()) == oldest
    assert set(MACHINES["telum2"].qaf.function_codes()) == set(FunctionCode)


def test_families_have_ranges() -> None:
    """An arm's number lies in the range of its family."""
    for verb in CONTRACT.verbs:
        first = max(number for number in FAMILIES if number <= verb.number)
        assert verb.family == FAMILIES[first], verb.name


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_outputs_are_the_librarys(name: str) -> None:
    """The outputs of an operation are the ztensors that the library writes; others are inputs."""
    entry, verb = FUNCTIONS[name], VERBS[name]
    if entry.operation is not None:
        assert [output.name for output in verb.outputs] == list(entry.outputs)
    tensors = [
        key for key, parameter in entry.parameters.items() if parameter.annotation is Ztensor
    ]
    kinds = (Kind.ZTENSOR, Kind.NEW_ZTENSOR)
    assert [parameter.name for parameter in verb.parameters if parameter.kind in kinds] == tensors


def test_what_must_be_given() -> None:
    """Outputs may be left out unless their descriptors cannot be derived."""
    created = {
        (verb.name, output.name)
        for verb in CONTRACT.verbs
        for output in verb.outputs
        if output.absent is not Absent.CREATED
    }
    assert created == {("reshape_ztensor", "dest"), ("quantized_matmul_op", "output")}


def test_answers_beside_a_status() -> None:
    """Beside a status, is_... returns bool, get_... a number, and two verbs a range or an array."""
    returning = {
        verb.name: verb.value for verb in CONTRACT.verbs if verb.value is not Value.NOTHING
    }
    assert returning.pop("getrange_ztensor") is Value.RANGE
    assert returning.pop("transform_origtensor") is Value.DATA
    asking = {name for name in VERBS if name.startswith(("is_", "get_"))}
    assert returning.keys() == asking
    for name, value in returning.items():
        assert value is (Value.BOOLEAN if name.startswith("is_") else Value.NUMBER), name


def test_written_by_hand() -> None:
    """Only the verbs that make and end a ztensor are written by hand."""
    assert {verb.name for verb in CONTRACT.verbs if verb.by_hand} == {
        "init_ztensor",
        "init_quantized_ztensor",
        "allochelper_ztensor",
        "free_ztensor_buffer",
    }


def test_enums_have_zdnns_names() -> None:
    """ZDNN's enums have zDNN's names only, and the statuses are all there."""
    zdnn = {enum.name: enum for enum in CONTRACT.enums if enum.zdnn}
    assert {constant.name: constant.number for constant in zdnn["ZdnnStatus"].constants} == {
        status.name: int(status) for status in Status
    }
    names = [constant.name for enum in zdnn.values() for constant in enum.constants]
    assert not [name for name in names if name.endswith("_UNSPECIFIED")]
    assert {"MachineModel", "ErrorReason", "ByteOrder"}.isdisjoint(zdnn)


def test_every_verb_is_documented() -> None:
    """A verb's text begins with its C name and one short sentence; every parameter has a text."""
    for verb in CONTRACT.verbs:
        assert verb.doc[0].startswith(f"zdnn_{verb.name}: ")
        assert verb.summary.endswith("."), verb.summary
        assert len(verb.summary) <= 90, verb.summary
        assert all(parameter.doc for parameter in verb.parameters), verb.name


def test_spellings() -> None:
    """Names are spelled as languages do, and comments stay within their width."""
    assert (pascal("matmul_op"), camel("input_a"), camel("h0")) == ("MatmulOp", "inputA", "h0")
    text = comment(["one " * 30, "two"], "// ", 40)
    assert all(len(line) <= 40 and line.startswith("//") for line in text.splitlines())
    assert text.splitlines()[-2:] == ["//", "// two"]


@pytest.mark.parametrize("sdk", WITH_VERBS, ids=[sdk.name for sdk in WITH_VERBS])
def test_every_verb_is_rendered(sdk: Sdk) -> None:
    """An SDK's sources name every operation of the machine."""
    rendered = "\n".join(render(sdk, CONTRACT).values())
    for verb in CONTRACT.verbs:
        if verb.computes:
            assert pascal(verb.name) in rendered or camel(verb.name) in rendered, verb.name


def test_kernels_write_a_tensor_of_their_own() -> None:
    """Every arm of MLI is a kernel of the SDKs, unless it returns a number or shares memory."""
    arms = {field.name for field in Kernel.DESCRIPTOR.oneofs_by_name["kernel"].fields}
    names = {kernel.verb.name for kernel in kernels(CONTRACT.kernels)}
    numbers = {"hlp_tensor_element_size", "hlp_count_elem_num", "hlp_tensor_zero_offset"}
    numbers |= {"hlp_tensor_scale", "hlp_tensor_scale_shift"}
    assert arms - names == numbers | {"hlp_subtensor"}
    for kernel in kernels(CONTRACT.kernels):
        assert kernel.output.name in ("out", "dst"), kernel.verb.name
        assert kernel.sized in ("", *(field.name for field in kernel.inputs)), kernel.verb.name


@pytest.mark.parametrize("sdk", WITH_KERNELS, ids=[sdk.name for sdk in WITH_KERNELS])
def test_every_kernel_is_rendered(sdk: Sdk) -> None:
    """An SDK's sources have a function for each kernel, which sends all operands of its message."""
    path = next(path for path in render(sdk, CONTRACT) if "kernels" in path.name.lower())
    sources = re.split(r"\n\n(?=//|/\*\*|  /\*\*)", render(sdk, CONTRACT)[path])
    for kernel in kernels(CONTRACT.kernels):
        spelled = {pascal(kernel.verb.name), camel(kernel.verb.name)}
        (source,) = (text for text in sources if spelled & set(re.findall(r"\w+(?=\()", text)))
        body = source.partition("{\n")[2]
        for field in kernel.inputs:
            assert re.search(rf"\b{field.name}\b", body), (kernel.verb.name, field.name)


def test_macros_are_zdnns() -> None:
    """The macros of the SDKs have the values of zDNN's macros in the Python client."""
    macros = texts(CONTRACT.enums, WITH_KERNELS[0].spelling)["macros"]
    assert len(macros) >= 45
    for name, (value, _) in macros.items():
        number = getattr(constants, name)
        assert (value.strip('"') if name == "ZDNN_VERSION" else int(value, 0)) == number, name


def test_texts_of_statuses_are_zdnns() -> None:
    """The texts of statuses equal the Python client's."""
    statuses = texts(CONTRACT.enums, WITH_KERNELS[0].spelling)["statuses"]
    for status in Status:
        assert f"{status.name}: {statuses[status.name]}" == get_status_message(status)
