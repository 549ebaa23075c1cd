# SPDX-License-Identifier: Apache-2.0
"""The tables that all SDKs share: `texts.toml`, and the macros of `macros.toml`."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sdk.verbs import Enum

_HOME = Path(__file__).parent


def texts(enums: Iterable[Enum], spelling: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables as templates take them, texts with the names of a language."""
    tables = tomllib.loads((_HOME / "texts.toml").read_text(encoding="utf-8"))
    _require("ErrorReason", "ERROR_REASON_", enums, tables["reasons"])
    _require("ZdnnStatus", "", enums, tables["statuses"])
    for table in ("reasons", "codes") if spelling else ():
        tables[table] = {name: text.format(**spelling) for name, text in tables[table].items()}
    macros = tomllib.loads((_HOME / "macros.toml").read_text(encoding="utf-8"))
    tables["macros"] = {name: (_literal(value), doc) for name, (value, doc) in macros.items()}
    return tables


def _require(enum: str, prefix: str, enums: Iterable[Enum], named: Mapping[str, str]) -> None:
    """Refuse to generate unless the names equal the names of an enum of the contract."""
    (constants,) = (each.constants for each in enums if each.name == enum)
    names = {constant.name.removeprefix(prefix) for constant in constants}
    if differing := named.keys() ^ (names - {"UNSPECIFIED"}):
        raise SystemExit(f"protos/sdk/texts.toml: {', '.join(sorted(differing))}")


def _literal(value: str | int) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value) if value < 0x100 else f"0x{value:08X}"
