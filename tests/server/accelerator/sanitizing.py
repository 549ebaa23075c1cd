# SPDX-License-Identifier: Apache-2.0
"""Operations with sites, and the reports of a session that sanitizes."""

from typing import Any

import grpc
import numpy as np
from grpc_status import rpc_status
from nnpa.zdnn.v1 import operation_pb2, sanitizer_pb2

from tests.server.wire import Operation, init

ONES = np.ones((1, 2, 2, 3), np.float32)
Report = sanitizer_pb2.SanitizerReport
Site = sanitizer_pb2.SanitizerSite


def at(site: str, operation: Operation) -> Operation:
    """Return an operation with the program's place of the call."""
    operation.site = site
    return operation


def reports(*results: operation_pb2.OperationResult) -> list[Report]:
    """Return the reports in results."""
    return [
        diagnostic.report
        for result in results
        for diagnostic in result.diagnostics
        if diagnostic.HasField("report")
    ]


def details(error: grpc.RpcError) -> list[Report]:
    """Return the reports in the status of an error."""
    call: Any = error
    status = rpc_status.from_call(call)
    assert status is not None
    found_reports: list[Report] = []
    for detail in status.details[1:]:
        report = Report()
        assert detail.Unpack(report)
        found_reports.append(report)
    return found_reports


def allocated(tensor_id: int, *dims: int) -> list[Operation]:
    """Create a tensor with a buffer that `alloc.c:1` allocates."""
    initialized, with_buffer = init(tensor_id, *dims)
    return [initialized, at("alloc.c:1", with_buffer)]
