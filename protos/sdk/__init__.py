# SPDX-License-Identifier: Apache-2.0
"""The SDKs' generated code: the verbs of the contract, and one set of templates per language."""

from sdk.c import C
from sdk.docs import DOCS
from sdk.go import GO
from sdk.instruction import EMULATOR, TRAP
from sdk.java import JAVA
from sdk.python import PYTHON
from sdk.rendering import ROOT, Messages, Sdk, render
from sdk.typescript import TYPESCRIPT
from sdk.verbs import Absent, Contract, Kind, Value, read_contract

# All code that `protos/generate.py` makes, by language.
SDKS: tuple[Sdk, ...] = (C, DOCS, EMULATOR, GO, JAVA, PYTHON, TRAP, TYPESCRIPT)

__all__ = [
    "ROOT",
    "SDKS",
    "Absent",
    "Contract",
    "Kind",
    "Messages",
    "Sdk",
    "Value",
    "read_contract",
    "render",
]
