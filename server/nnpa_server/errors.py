# SPDX-License-Identifier: Apache-2.0
"""The errors of calls, and the one table of their gRPC codes.

Every error carries google.rpc.ErrorInfo with domain "nnpa", the reason, and the variable parts of
the message as metadata. Any other exception is a defect of ours: INTERNAL, without its text, but
with a correlation id that finds it in the server's log.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.status import Malformed, NotInLibrary, ProgramCheck

DOMAIN = "nnpa"
_PREFIX = "ERROR_REASON_"
_CODE = grpc.StatusCode

# Source: comments of enum ErrorReason, nnpa/zdnn/v1/status.proto.
CODES: Mapping[int, grpc.StatusCode] = {
    wire.ERROR_REASON_SESSION_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_SESSION_QUOTA_EXCEEDED: _CODE.RESOURCE_EXHAUSTED,
    wire.ERROR_REASON_MACHINE_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_MACHINE_INVALID: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_LIBRARY_VERSION_UNKNOWN: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_FUNCTION_NOT_IN_LIBRARY: _CODE.UNIMPLEMENTED,
    wire.ERROR_REASON_FUNCTION_NOT_IMPLEMENTED: _CODE.UNIMPLEMENTED,
    wire.ERROR_REASON_OPERATION_UNKNOWN: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_FIELD_UNSPECIFIED: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_FIELD_INVALID: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_TENSOR_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_TENSOR_ID_IN_USE: _CODE.ALREADY_EXISTS,
    wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED: _CODE.RESOURCE_EXHAUSTED,
    wire.ERROR_REASON_DATA_SIZE_MISMATCH: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_MESSAGE_TOO_LARGE: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_STREAM_ORDER: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_PROGRAM_CHECK: _CODE.ABORTED,
    wire.ERROR_REASON_PAGE_TOKEN_INVALID: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_SERVER_DRAINING: _CODE.UNAVAILABLE,
    wire.ERROR_REASON_TOKEN_INVALID: _CODE.UNAUTHENTICATED,
    wire.ERROR_REASON_MACHINE_NOT_ALLOWED: _CODE.PERMISSION_DENIED,
    wire.ERROR_REASON_INTERNAL: _CODE.INTERNAL,
    wire.ERROR_REASON_CALL_QUOTA_EXCEEDED: _CODE.RESOURCE_EXHAUSTED,
    wire.ERROR_REASON_CACHE_MISS: _CODE.NOT_FOUND,
    wire.ERROR_REASON_NETWORK_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_NETWORK_NOT_READY: _CODE.FAILED_PRECONDITION,
    wire.ERROR_REASON_NETWORK_FAILED: _CODE.ABORTED,
    wire.ERROR_REASON_MODEL_INVALID: _CODE.INVALID_ARGUMENT,
    wire.ERROR_REASON_MODEL_EXISTS: _CODE.ALREADY_EXISTS,
    wire.ERROR_REASON_MODEL_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_MODEL_UNAVAILABLE: _CODE.UNAVAILABLE,
    wire.ERROR_REASON_MODEL_QUOTA_EXCEEDED: _CODE.RESOURCE_EXHAUSTED,
    wire.ERROR_REASON_EXTENSION_NOT_OFFERED: _CODE.UNIMPLEMENTED,
    wire.ERROR_REASON_REGION_NOT_FOUND: _CODE.NOT_FOUND,
    wire.ERROR_REASON_REGION_IN_USE: _CODE.ALREADY_EXISTS,
    wire.ERROR_REASON_RESPONSE_TOO_LARGE: _CODE.RESOURCE_EXHAUSTED,
    wire.ERROR_REASON_FAULTS_NOT_ALLOWED: _CODE.PERMISSION_DENIED,
    wire.ERROR_REASON_MODEL_NOT_OWNED: _CODE.PERMISSION_DENIED,
}


class CallRefused(Exception):
    """A call ends with the gRPC error of `reason`; `metadata` has the message's variable parts.

    `details` are further messages in the status, after ErrorInfo.
    """

    def __init__(self, reason: int, message: str, **metadata: object) -> None:
        self.reason = reason
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}
        self.details: list[Message] = []
        super().__init__(message)

    @property
    def code(self) -> grpc.StatusCode:
        """The gRPC code of the reason."""
        return CODES[self.reason]

    @property
    def name(self) -> str:
        """The name of the reason in ErrorInfo."""
        return wire.ErrorReason.Name(wire.ErrorReason.ValueType(self.reason)).removeprefix(_PREFIX)

    def status(self, *trailing: tuple[str, str | bytes]) -> grpc.Status:
        """Return the status for `context.abort_with_status`, with more trailing metadata."""
        info = error_details_pb2.ErrorInfo(reason=self.name, domain=DOMAIN, metadata=self.metadata)
        details = [AnyMessage() for _ in range(1 + len(self.details))]
        for detail, message in zip(details, (info, *self.details), strict=True):
            detail.Pack(message)
        code: int = self.code.value[0]
        status: Any = rpc_status.to_status(
            status_pb2.Status(code=code, message=self.message, details=details)
        )
        whole: grpc.Status = status._replace(
            trailing_metadata=(*status.trailing_metadata, *trailing)
        )
        return whole


class CallCancelled(Exception):
    """The client is gone or its deadline has passed: `code` says which."""

    def __init__(self, code: grpc.StatusCode, text: str = "") -> None:
        self.code = code
        super().__init__(text or code.name)


class ConnectionLost(CallCancelled):
    """The call ends as if its connection broke, by a fault rule."""

    def __init__(self) -> None:
        super().__init__(_CODE.UNAVAILABLE, "connection lost")


class MessageTooLong(CallCancelled):
    """A message of `size` bytes, above --max-message, which gRPC refuses without a reason."""

    def __init__(self, size: int, limit: int) -> None:
        text = f"Received message larger than max ({size} vs. {limit})"
        super().__init__(_CODE.RESOURCE_EXHAUSTED, text)


def beyond(reason: int, text: str, field: str, value: object, limit: object) -> CallRefused:
    """Return the error of a reason for a field whose value breaks a limit."""
    return CallRefused(reason, text, field=field, value=value, limit=limit)


def unspecified(field: str, **metadata: object) -> CallRefused:
    """Return the error for a required field that is absent; `field` is its path."""
    reason = wire.ERROR_REASON_FIELD_UNSPECIFIED
    return CallRefused(reason, f"{field} is absent, must be set", field=field, **metadata)


def invalid(field: str, value: object, limit: str, **metadata: object) -> CallRefused:
    """Return the error for a field whose value is not allowed."""
    reason = wire.ERROR_REASON_FIELD_INVALID
    text = f"{field} is {value}, must be {limit}"
    return CallRefused(reason, text, field=field, value=value, limit=limit, **metadata)


def no_message() -> CallRefused:
    """Return the error for bytes that are not a message of the method's type."""
    return invalid("request", "no message of its type", "protocol buffer wire format")


def too_many_calls(field: str, limit: int) -> CallRefused:
    """Return the error for one call more than there may be at a time."""
    text = f"{field} is {limit}, and {limit} are under way: retry with a pause"
    return beyond(wire.ERROR_REASON_CALL_QUOTA_EXCEEDED, text, field, limit + 1, limit)


NO_ONNX = "this server was installed without the packages for ONNX, the extra onnx"


def from_exception(error: Exception, **metadata: object) -> CallRefused:
    """Return the gRPC error for an exception; an unknown exception is INTERNAL."""
    match error:
        case CallRefused():
            for key, value in metadata.items():
                error.metadata.setdefault(key, str(value))
            return error
        case ProgramCheck():
            return _program_check(error, metadata)
        case NotInLibrary():
            return CallRefused(
                wire.ERROR_REASON_FUNCTION_NOT_IN_LIBRARY,
                str(error),
                library_version=error.version,
                since=error.since,
                **metadata,
            )
        case Malformed() if error.field.startswith("data"):
            facts = {"field": error.field, "value": error.value, "limit": error.limit, **metadata}
            return CallRefused(wire.ERROR_REASON_DATA_SIZE_MISMATCH, str(error), **facts)
        case Malformed():
            return invalid(error.field, error.value, error.limit, **metadata)
        case ModuleNotFoundError(name="onnx" | "onnxruntime"):
            return CallRefused(wire.ERROR_REASON_EXTENSION_NOT_OFFERED, NO_ONNX, field="onnx")
        case _:
            text = "the server failed; its log has the error under the correlation id"
            number = secrets.token_hex(8)
            return CallRefused(wire.ERROR_REASON_INTERNAL, text, correlation_id=number)


def reason_of(error: Exception) -> str:
    """Return the name of the reason for which an error ends a call."""
    return error.code.name if isinstance(error, CallCancelled) else from_exception(error).name


def _program_check(check: ProgramCheck, metadata: Mapping[str, object]) -> CallRefused:
    refusal = check.refusal
    facts: dict[str, object] = {
        "kind": check.kind,
        "field": refusal.field,
        "value": refusal.value,
        "limit": refusal.limit,
        "constraint": refusal.constraint,
        **metadata,
    }
    if refusal.status:
        facts["precheck_status"] = int(refusal.status)
    return CallRefused(wire.ERROR_REASON_PROGRAM_CHECK, str(check), **facts)
