# SPDX-License-Identifier: Apache-2.0
"""nnpa.zdnn.v1: AcceleratorService with sessions, lists of operations, transfers; TraceService."""

from nnpa_server.accelerator.handlers import add_to, conversation_of
from nnpa_server.accelerator.operation_specs import OPERATION_SPECS
from nnpa_server.accelerator.service import SERVICE, AcceleratorService
from nnpa_server.accelerator.trace_service import TRACE_SERVICE, TraceService

__all__ = [
    "OPERATION_SPECS",
    "SERVICE",
    "TRACE_SERVICE",
    "AcceleratorService",
    "TraceService",
    "add_to",
    "conversation_of",
]
