# SPDX-License-Identifier: Apache-2.0
"""Statuses of zDNN, with the library's names, numbers and texts.

Source: zDNN API Reference 1.2.0, "zDNN Statuses" and zdnn_get_status_message.
"""

from nnpa_client._values.statuses import STATUS_TEXTS, Status

__all__ = [
    "ZDNN_DATA_ERROR",
    "ZDNN_HW_ERROR",
    "ZDNN_PARAMETER_ERROR",
    "ZDNN_WARNING",
    "Status",
    "as_status",
    "get_status_message",
    "is_warning",
    "status_name",
]

ZDNN_WARNING = 0x00020000
ZDNN_PARAMETER_ERROR = 0x00040000
ZDNN_DATA_ERROR = 0x00100000
ZDNN_HW_ERROR = 0x000C0000
_CLASS_MASK = 0xFFFF0000


def get_status_message(status: int) -> str:
    """Return the text of a status, for example "ZDNN_OK: Success.".

    Unknown numbers give "(Status string is not defined.)".
    Source: zDNN API Reference 1.2.0, zdnn_get_status_message.
    """
    text = STATUS_TEXTS.get(status_name(status))
    return f"{status_name(status)}: {text}" if text else "(Status string is not defined.)"


def as_status(number: int) -> int:
    """Return the number as a `Status`, or unchanged when it is a response code without a name."""
    try:
        return Status(number)
    except ValueError:
        return number


def status_name(number: int) -> str:
    """Return zDNN's name of a status, or its hexadecimal number when it has none."""
    named = as_status(number)
    return named.name if isinstance(named, Status) else f"0x{number:08X}"


def is_warning(status: int) -> bool:
    """Return True for a status of the warning class, which ZDNN_OK is not."""
    return status & _CLASS_MASK == ZDNN_WARNING
