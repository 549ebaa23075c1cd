# SPDX-License-Identifier: Apache-2.0
"""Read the fields of a view; a refusal names field, value and limit."""

from collections.abc import Mapping
from typing import TypeVar

from nnpa_page.guard import Refusal

T = TypeVar("T")
_MAX_SHOWN = 32  # characters of a value in a refusal


def choice(field: str, text: str, choices: Mapping[str, T]) -> T:
    """Return the choice of a name; raise `Refusal` for an unknown name."""
    if text not in choices:
        raise Refusal(f"{field} is {text[:_MAX_SHOWN]!r}, must be one of {', '.join(choices)}")
    return choices[text]


def number(field: str, text: str, low: int, high: int) -> int:
    """Return a whole number; raise `Refusal` for other text."""
    if not (text.isascii() and text.isdecimal()) or not low <= int(text[:_MAX_SHOWN]) <= high:
        raise Refusal(f"{field} is {text[:_MAX_SHOWN]!r}, must be {low} to {high}")
    return int(text)
