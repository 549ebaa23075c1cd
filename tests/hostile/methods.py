# SPDX-License-Identifier: Apache-2.0
"""Every method that a server offers, from the descriptors, and the codes that are documented."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from nnpa.instruction.v1 import instruction_pb2
from nnpa.mli.v1 import mli_pb2
from nnpa.network.v1 import network_pb2
from nnpa.oip import open_inference_grpc_pb2
from nnpa.zdnn.v1 import accelerator_pb2, trace_pb2

from tests.hostile.calls import ACCELERATOR, Answer

FILES: tuple[FileDescriptor, ...] = (
    accelerator_pb2.DESCRIPTOR,
    trace_pb2.DESCRIPTOR,
    instruction_pb2.DESCRIPTOR,
    mli_pb2.DESCRIPTOR,
    network_pb2.DESCRIPTOR,
    open_inference_grpc_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)
PLAIN_SOCKET, FRAMES = "plain socket", "plain socket, frames of instructions"
STATUS = Path(__file__).resolve().parents[2] / "protos/nnpa/zdnn/v1/status.proto"
FOREIGN = ("/grpc.health.", "/grpc.reflection.")
FOREIGN_CODES = frozenset(("NOT_FOUND", "INVALID_ARGUMENT", "UNIMPLEMENTED", "OUT_OF_RANGE"))
CODES_OF_GRPC = frozenset(("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED", "UNIMPLEMENTED"))
"""Codes that gRPC adds by itself, without a reason."""
FAILURE = b"its log has the error"
_LINES = re.compile(r"// ([A-Z_]+): |ERROR_REASON_([A-Z_]+) = [0-9]+;")
_SESSION_REASONS = frozenset(
    ("SESSION_NOT_FOUND", "TOKEN_INVALID", "SERVER_DRAINING", "CALL_QUOTA_EXCEEDED")
)
_SESSION_FIELDS = frozenset(("request", "session", "name", "header.session", "session.name"))


@dataclass(frozen=True)
class Method:
    """One method; a plain socket counts as one, too, and as another with frames in bytes."""

    path: str
    request: type[Message]
    reads_stream: bool
    writes_stream: bool


def methods() -> Mapping[str, Method]:
    """Return all methods by path, in the order of the contract."""
    by_path: dict[str, Method] = {}
    for file in FILES:
        for service in file.services_by_name.values():
            for descriptor in service.methods:
                method = _method(service.full_name, descriptor)
                by_path[method.path] = method
    request = accelerator_pb2.ExecuteRequest
    by_path[PLAIN_SOCKET] = Method(PLAIN_SOCKET, request, True, True)
    by_path[FRAMES] = Method(FRAMES, BytesValue, True, True)
    return by_path


def _method(service: str, descriptor: MethodDescriptor) -> Method:
    return Method(
        f"/{service}/{descriptor.name}",
        GetMessageClass(descriptor.input_type),
        descriptor.client_streaming,
        descriptor.server_streaming,
    )


@cache
def documented_codes() -> Mapping[str, str]:
    """Return the gRPC code of every reason, as the comments of the contract have it."""
    text = STATUS.read_text(encoding="utf-8").partition("enum ErrorReason")[2]
    codes: dict[str, str] = {}
    code = ""
    for comment, reason in _LINES.findall(text):
        if reason and code:
            codes[reason] = code
        code = "" if reason else comment
    return codes


def fault_of(path: str, answer: Answer) -> str:
    """Return what is wrong with the code of an answer, or nothing."""
    if any(FAILURE in message for message in answer.messages):
        return "INTERNAL inside an answer"
    if answer.is_ok:
        return ""
    if answer.code in ("INTERNAL", "UNKNOWN"):
        return f"{answer.code}: {answer.details}"
    if answer.reason:
        expected = documented_codes().get(answer.reason)
        return "" if answer.code == expected else f"{answer.code} with {answer.reason}"
    if answer.code in CODES_OF_GRPC:
        return ""
    if path.startswith(FOREIGN) and answer.code in FOREIGN_CODES:
        return ""
    return f"{answer.code} without a reason: {answer.details}"


def is_past_session(path: str, answer: Answer) -> bool:
    """Tell whether a call came past its session's check; one without sessions: whether it is OK."""
    if answer.is_ok or answer.reason == "EXTENSION_NOT_OFFERED":  # all that such a method answers
        return True
    with_sessions = ACCELERATOR, "/nnpa.network.", "/nnpa.instruction."
    if path not in (PLAIN_SOCKET, FRAMES) and not path.startswith(with_sessions):
        return False
    if not answer.reason or answer.reason in _SESSION_REASONS:
        return False
    return answer.facts.get("field", "") not in _SESSION_FIELDS
