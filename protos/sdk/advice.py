# SPDX-License-Identifier: Apache-2.0
"""What a user can do about a call that failed: one text, spelled as each language spells names."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from sdk.verbs import Enum

Line: TypeAlias = Callable[[str, str], str]
"""A language's line for a name and its text."""

# By `ErrorReason`, without its prefix.
REASONS: Mapping[str, str] = {
    "SESSION_NOT_FOUND": "The session was closed or expired when idle: connect again. If at "
    "random, a proxy lacks session persistence (nnpa-session-ticket).",
    "SESSION_QUOTA_EXCEEDED": "Close sessions that are not needed, or try again later.",
    "MACHINE_NOT_FOUND": "{machines} lists the machines.",
    "MACHINE_INVALID": "A custom machine can only lack what its model has.",
    "LIBRARY_VERSION_UNKNOWN": "Choose one of the versions named.",
    "FUNCTION_NOT_IN_LIBRARY": "Choose a later {library}.",
    "FUNCTION_NOT_IMPLEMENTED": "Use a server that implements the function.",
    "OPERATION_UNKNOWN": "The server is older than this client, or the operation is empty.",
    "FIELD_UNSPECIFIED": "Set the field named.",
    "FIELD_INVALID": "Change the field named to what is allowed.",
    "TENSOR_NOT_FOUND": "The ztensor was freed: make a new one.",
    "TENSOR_ID_IN_USE": "Leave the choice of ids to this client, or choose another.",
    "TENSOR_QUOTA_EXCEEDED": "Free ztensors ({free}) and try again.",
    "DATA_SIZE_MISMATCH": "Give arrays of exactly the size that the descriptors call for.",
    "MESSAGE_TOO_LARGE": "Send less per call; {transforms} stream.",
    "STREAM_ORDER": "Send one header, then as many bytes as it announces.",
    "PROGRAM_CHECK": "{precheck} gives a status instead.",
    "PAGE_TOKEN_INVALID": "List again from the first page.",
    "SERVER_DRAINING": "The server is shutting down: connect to another one.",
    "TOKEN_INVALID": "Set ZDNN_TOKEN or {token}.",
    "MACHINE_NOT_ALLOWED": "Choose a machine that the token is for.",
    "CALL_QUOTA_EXCEEDED": "Make fewer calls at a time, or try again later.",
    "CACHE_MISS": "Send the sticks: the session's cache has forgotten them.",
    "NETWORK_NOT_FOUND": "The network was destroyed, or ended with its session: load it anew.",
    "NETWORK_NOT_READY": "Initialise the network; reports need one made from ONNX.",
    "NETWORK_FAILED": "`nnpa network probe` shows at which sizes and inputs a model fails.",
    "MODEL_INVALID": "Change the node, the value or the size that the message names.",
    "MODEL_EXISTS": "Publish under another name, or unload the model first.",
    "MODEL_NOT_FOUND": "RepositoryIndex lists the models of the server.",
    "MODEL_UNAVAILABLE": "Load the model, or wait until it is loaded.",
    "MODEL_QUOTA_EXCEEDED": "Unload models, or unregister regions, that are not needed.",
    "EXTENSION_NOT_OFFERED": "ServerMetadata lists the extensions that this server offers.",
    "REGION_NOT_FOUND": "Register the region on the connection that uses it.",
    "REGION_IN_USE": "Unregister the region first, or choose another name.",
    "RESPONSE_TOO_LARGE": "Set the option named on the channel, and say so in the request.",
    "FAULTS_NOT_ALLOWED": "Start the server with --allow-faults{suite}, or leave the rules out.",
    "MODEL_NOT_OWNED": "Publish under another name, or ask a holder of an admin's token.",
    "INTERNAL": "This is a defect of the server: report the correlation id.",
}
# By gRPC's code, for errors that gRPC itself raises.
CODES: Mapping[str, str] = {
    "UNAVAILABLE": "Check that a server listens there (`nnpa-server --listen ...`), and TLS.",
    "DEADLINE_EXCEEDED": "{timeout}, or send less per call.",
    "CANCELLED": "The call was cancelled, or the server stopped: connect again.",
    "RESOURCE_EXHAUSTED": "The message exceeds the server's --max-message: send less per call.",
    "UNIMPLEMENTED": "The server does not {offer}, or is older than this client.",
}


def filters(
    spelling: Mapping[str, str], reason: Line, code: Line
) -> dict[str, Callable[[Iterable[Enum]], str]]:
    """Return the filters of a language: the lines of all reasons, and those of gRPC's codes."""

    def reason_advice(enums: Iterable[Enum]) -> str:
        _require_all_reasons(enums)
        return _lines(REASONS, spelling, reason)

    def code_advice(_enums: Iterable[Enum]) -> str:
        return _lines(CODES, spelling, code)

    return {"reason_advice": reason_advice, "code_advice": code_advice}


def _require_all_reasons(enums: Iterable[Enum]) -> None:
    """Refuse to generate unless the reasons are those of the contract."""
    (reasons,) = (enum for enum in enums if enum.name == "ErrorReason")
    names = {constant.name.removeprefix("ERROR_REASON_") for constant in reasons.constants}
    if differing := REASONS.keys() ^ (names - {"UNSPECIFIED"}):
        raise SystemExit(f"protos/sdk/advice.py: {', '.join(sorted(differing))}")


def _lines(texts: Mapping[str, str], spelling: Mapping[str, str], line: Line) -> str:
    return "".join(line(name, text.format(**spelling)) for name, text in texts.items())
