# SPDX-License-Identifier: Apache-2.0
"""Faults that sessions are told to inject: rules, when they apply, and what they do."""

from nnpa_server.faults.injection import (
    Faults,
    WrittenAnyway,
    attend,
    change_faults,
    faults_of,
)
from nnpa_server.faults.rules import Rule, read_rules

__all__ = ["Faults", "Rule", "WrittenAnyway", "attend", "change_faults", "faults_of", "read_rules"]
