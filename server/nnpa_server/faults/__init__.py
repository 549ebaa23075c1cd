# SPDX-License-Identifier: Apache-2.0
"""Fault injection: rules, when they apply, and their effects."""

from nnpa_server.faults.injection import Faults, WrittenAnyway, attend, change_faults, faults_of
from nnpa_server.faults.rules import Rule, read_rules

__all__ = ["Faults", "Rule", "WrittenAnyway", "attend", "change_faults", "faults_of", "read_rules"]
