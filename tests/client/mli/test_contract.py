# SPDX-License-Identifier: Apache-2.0
"""One name per kernel everywhere: arms of the wire, emulator's table, client's functions."""

import inspect
import re

import mli_emulator
import nnpa_server.mli.service as served
import pytest
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa_client import mli

ARMS = {field.name for field in pb.Kernel.DESCRIPTOR.oneofs_by_name["kernel"].fields}
NAMES = {entry.name for entry in mli_emulator.KERNELS.values()}
ALIASES = {alias for entry in mli_emulator.KERNELS.values() for alias in entry.aliases}


def _functions() -> set[str]:
    return {name for name in mli.__all__ if re.match(r"(krn|hlp)_", name)}


def test_arms_are_the_kernels_of_the_emulator() -> None:
    """Each kernel has one arm of its name, and each arm has a kernel."""
    assert ARMS == NAMES
    assert len(ARMS) == 21


def test_client_has_every_kernel_and_alias() -> None:
    """The client has one function per name and per alias, an alias being the same function."""
    assert _functions() == NAMES | ALIASES
    for entry in mli_emulator.KERNELS.values():
        for alias in entry.aliases:
            assert getattr(mli, alias) is getattr(mli, entry.name)


@pytest.mark.parametrize("name", sorted(NAMES | ALIASES))
def test_find_takes_the_prefix(name: str) -> None:
    """Library names are accepted, with and without mli_."""
    assert mli.find(f"mli_{name}") is mli.find(name) is getattr(mli, name)


@pytest.mark.parametrize("name", ["tensor", "mli_krn_conv2d", "find", ""])
def test_find_names_what_there_is(name: str) -> None:
    """A name that no kernel has is a KeyError that lists the kernels."""
    with pytest.raises(KeyError, match="must be one of hlp_convert_tensor"):
        mli.find(name)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_fields_are_parameters(name: str) -> None:
    """A message's fields are the parameters of the emulator's function, in C's order."""
    message = pb.Kernel.DESCRIPTOR.fields_by_name[name].message_type
    assert message is not None
    fields = ["in_" if field.name == "in" else field.name for field in message.fields]
    parameters = list(inspect.signature(mli_emulator.KERNELS[name].function).parameters)
    assert [*fields, "options"] == parameters


@pytest.mark.parametrize("name", sorted(NAMES))
def test_clients_parameters_are_the_emulators(name: str) -> None:
    """The client has the emulator's parameters; its further parameters are keywords."""
    client = inspect.signature(getattr(mli, name)).parameters.values()
    positional = [
        parameter.name for parameter in client if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    parameters = inspect.signature(mli_emulator.KERNELS[name].function).parameters.values()
    assert positional == [
        parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY
    ]


def test_numbers_are_those_of_the_library() -> None:
    """Statuses, element types, modes and activations have the emulator's names and numbers."""
    assert dict(pb.MliStatus.items()) == {
        status.name: status.value for status in mli_emulator.MliStatus
    }
    types = {el_type.name: el_type.value for el_type in mli_emulator.ElType}
    assert dict(pb.ElType.items()) == types | {"MLI_EL_UNSPECIFIED": 0}
    assert dict(pb.RnnMode.items()) == {mode.name: mode.value for mode in mli_emulator.RnnMode}
    activations = {
        activation.name: activation.value for activation in mli_emulator.RnnOutActivation
    }
    assert dict(pb.RnnOutActivation.items()) == activations


def test_every_option_has_a_number() -> None:
    """The contract has a number for each option of the emulator, and no other numbers."""
    for enum, emulated, prefix in (
        (pb.Rounding, mli_emulator.Rounding, "ROUNDING"),
        (pb.DebugLevel, mli_emulator.DebugLevel, "DEBUG_LEVEL"),
        (pb.Accumulator, mli_emulator.Accumulator, "ACCUMULATOR"),
        (pb.Conversion, mli_emulator.Conversion, "CONVERSION"),
    ):
        names = {f"{prefix}_{option.name}" for option in emulated}
        assert set(enum.keys()) == names | {f"{prefix}_UNSPECIFIED"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_constraint_is_told(name: str) -> None:
    """ListKernels lists every numbered constraint of a kernel, and leaves it out of the text."""
    text = inspect.getdoc(mli_emulator.KERNELS[name].function) or ""
    kernel = served.describe_kernel(name)
    numbers = re.findall(r"\((\w+_c\d+)\)", text)
    assert [constraint.name for constraint in kernel.constraints] == numbers
    assert all(constraint.text for constraint in kernel.constraints)
    assert "_c1)" not in kernel.description
    assert kernel.description
