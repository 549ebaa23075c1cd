# SPDX-License-Identifier: Apache-2.0
"""Facts as the text of a log line."""

from collections.abc import Mapping
from typing import TypeAlias

Facts: TypeAlias = Mapping[str, object]


def as_text(facts: Facts) -> str:
    """Return facts as the text of a log line."""
    return " ".join([f"{key}={_plain(value)}" for key, value in facts.items()])


def _plain(value: object) -> str:
    """Return a value for a log line: quoted where it has blanks, so that no client fakes a line."""
    text = value if isinstance(value, str) else str(value)
    return repr(text) if " " in text or not text.isprintable() else text
