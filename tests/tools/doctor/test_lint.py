# SPDX-License-Identifier: Apache-2.0
"""The rules for traces, on operations that carry their tensors, as programs in C send them."""

import hashlib

from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_STICKS_IN,
    TracedCall,
    TracedContents,
    TraceStart,
)
from nnpa_client import trace
from nnpa_client.trace import Call, Operand, Trace, TracedOperation

SIZE = 4096  # bytes of a page of sticks


def matmul(index: int, bias: bytes) -> TracedOperation:
    """Return a matmul that carries the sticks of its bias."""
    message, names = Operation(), ("input_a", "input_b", "input_c")
    message.matmul_op.SetInParent()
    operands = tuple(Operand(name, 0, None, is_output=False) for name in names)
    digest = hashlib.sha256(bias).digest()[:16]
    sticks = TracedContents(
        role=CONTENTS_ROLE_STICKS_IN, operand="input_c", size=len(bias), digest=digest
    )
    result = OperationResult()
    return TracedOperation(index, index, 1, "matmul_op", message, result, 0, 0, operands, (sticks,))


def findings(*biases: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """Return the findings of lint in products with these biases."""
    calls = tuple(
        Call(index, TracedCall(session=1), (matmul(index, bias),))
        for index, bias in enumerate(biases)
    )
    report = trace.lint(Trace(TraceStart(), calls, {}, ""))
    return [(finding.rule, finding.operations) for finding in report.findings]


def test_a_bias_of_zeros_that_comes_with_its_call() -> None:
    """Lint finds it by the digest of its sticks, once for each function and tensor."""
    zeros, nonzeros = bytes(SIZE), b"\1" * SIZE
    assert findings(nonzeros, zeros, zeros) == [("zero-bias", (1,))]
    assert findings(nonzeros, nonzeros) == []
