# SPDX-License-Identifier: Apache-2.0
"""Errors of networks that cannot run a request."""

from collections.abc import Generator
from contextlib import contextmanager

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_network.program import ModelRefused
from nnpa_network.running.results import StepFailed

from nnpa_server.errors import CallRefused
from nnpa_server.network.programs import refused_model


@contextmanager
def refusing() -> Generator[None]:
    """Turn the exceptions of a network's run into gRPC errors."""
    try:
        yield
    except ModelRefused as refused:
        raise refused_input(refused) from refused
    except StepFailed as failed:
        raise failed_step(failed) from failed


def refused_input(refused: ModelRefused) -> CallRefused:
    """Return the error for inputs or shapes that a model does not take."""
    if refused.node:
        return refused_model(refused)
    reason = wire.ERROR_REASON_FIELD_INVALID
    return CallRefused(reason, refused.reason, field="inputs", value=refused.reason)


def not_ready(handle: str, why: str) -> CallRefused:
    """Return the error for a network in the wrong state."""
    reason = wire.ERROR_REASON_NETWORK_NOT_READY
    return CallRefused(reason, f"the network is not ready: {why}", network=handle[:64])


def failed_step(failed: StepFailed) -> CallRefused:
    """Return the error for a node that failed."""
    facts = {"node": failed.node, "operation": failed.verb, "status": int(failed.status)}
    return CallRefused(wire.ERROR_REASON_NETWORK_FAILED, str(failed), **facts)
