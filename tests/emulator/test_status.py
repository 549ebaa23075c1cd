# SPDX-License-Identifier: Apache-2.0
"""Statuses: numbers, classes, texts."""

import pytest
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Refused, Status, get_status_message
from nnpa_emulator.status import is_warning, status_name

FAMILIES = {"ELEMENT": 0x0002, "INVALID": 0x0004, "UNSUPPORTED": 0x000C, "EXCEEDS": 0x000C}
# Statuses whose class does not follow from their first word.
OTHERS = {
    "ZDNN_OK": 0x0000,
    "ZDNN_MISALIGNED_PARMBLOCK": 0x0004,
    "ZDNN_ALLOCATION_FAILURE": 0x0010,
    "ZDNN_INVALID_BUFFER": 0x0010,
    "ZDNN_CONVERT_FAILURE": 0x0010,
    "ZDNN_INVALID_STATE": 0x0010,
    "ZDNN_UNSUPPORTED_AIU_EXCEPTION": 0x0010,
}


@pytest.mark.parametrize("status", Status)
def test_class(status: Status) -> None:
    """The upper half of a status is its class: warning, parameter, data, hardware."""
    first = status.name.removeprefix("ZDNN_").partition("_")[0]
    expected = OTHERS.get(status.name, FAMILIES.get(first, 0x000C))
    assert status >> 16 == expected
    assert is_warning(status) is (expected == 0x0002)


def test_numbers_are_the_contracts() -> None:
    """Names and numbers of the statuses equal the wire contract's."""
    assert {item.name: int(item) for item in Status} == dict(wire.ZdnnStatus.items())


@pytest.mark.parametrize("status", Status)
def test_message(status: Status) -> None:
    """A message is the mnemonic, a colon, a blank and a sentence."""
    name, _, text = get_status_message(status).partition(": ")
    assert name == status.name
    assert text.endswith(".")
    assert len(text) > len("Success")


def test_unknown_status() -> None:
    """A status without a mnemonic has the library's fixed text; response codes may have none."""
    assert get_status_message(0x000CF00A) == "(Status string is not defined.)"
    assert status_name(0x000CF00A) == "0x000CF00A"
    assert not is_warning(Status.ZDNN_OK)
    assert is_warning(0x0002FFFF)


def test_refusal_is_a_sentence() -> None:
    """A refusal says field, value, limit and constraint; a number without a name is hexadecimal."""
    refused = Refused(0x000CF00A, "act_func", 7, "0 or 1", "softmax_c5")
    assert str(refused) == "0x000CF00A: act_func is 7, must be 0 or 1 [softmax_c5]"
    assert str(Refused(Status.ZDNN_INVALID_BUFFER, "ztensor.buffer", "NULL", "allocated")) == (
        "ZDNN_INVALID_BUFFER: ztensor.buffer is NULL, must be allocated"
    )
