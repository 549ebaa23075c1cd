# SPDX-License-Identifier: Apache-2.0
"""Exceptions and warnings of the package.

    NnpaError                 base of the errors that this package raises on purpose
      ZdnnError               the accelerator or the library answered with an error status
      ProgramCheck            the machine would have ended the program
      NetworkError            the client API of a hosted network refuses
      TransportError          the call did not reach the accelerator, or its answer got lost
        SessionLostError      the server of the session is gone
    ZdnnWarning (UserWarning) the accelerator answered with a warning; outputs are valid
    SanitizerWarning (UserWarning)  a session that sanitizes has found a misused ztensor

`python -W error` turns warnings into exceptions.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from nnpa.zdnn.v1.operation_pb2 import OperationResult, RangeViolation
from nnpa.zdnn.v1.sanitizer_pb2 import Misuse, SanitizerReport
from nnpa.zdnn.v1.status_pb2 import Refusal

from nnpa_client._values.advice import ADVICE, CODE_ADVICE
from nnpa_client.status import Status, as_status, get_status_message, status_name

__all__ = [
    "NetworkError",
    "NnpaError",
    "ProgramCheck",
    "SanitizerWarning",
    "SessionLostError",
    "TransportError",
    "ZdnnError",
    "ZdnnWarning",
    "explain_violation",
    "renumbered",
]


class NnpaError(Exception):
    """Base of the errors that this package raises on purpose.

    `reports` are reports of the sanitizer that no warning has carried yet.
    """

    reports: Sequence[SanitizerReport] = ()


class ZdnnError(NnpaError):
    """A zDNN status that is neither ZDNN_OK nor a warning.

    `status` is a `Status` (or an int for a response code without a name), `name` its zDNN name,
    `message` the library's text, `op` the C function without its prefix. `refusal` has field,
    value, limit and constraint, `violation` the elements that are not numbers; both may be None.
    `result` is the whole answer, with the data of a failed transform_origtensor.
    `operation_index` is the call's place in a list, 0-based, None outside a list.
    """

    def __init__(
        self,
        status: int,
        op: str,
        *,
        refusal: Refusal | None = None,
        violation: RangeViolation | None = None,
        result: OperationResult | None = None,
        operation_index: int | None = None,
    ) -> None:
        self.status = as_status(status)
        self.name = status_name(status)
        self.message = get_status_message(status)
        self.op = op
        self.refusal = refusal
        self.violation = violation
        self.result = result
        self.operation_index = operation_index
        super().__init__(_sentence(self))


_BEYOND = "ZDNN_OK, but values beyond DLFLOAT16's range, 8573157376, entered as what is no number."


class ZdnnWarning(UserWarning):
    """A warning status, such as ZDNN_ELEMENT_RANGE_VIOLATION: outputs are valid otherwise.

    With ZDNN_OK: a transform took finite values beyond DLFLOAT16's range, which are no numbers in
    the ztensor. Attributes as in `ZdnnError`.
    """

    def __init__(self, status: int, op: str, violation: RangeViolation | None = None) -> None:
        self.status = as_status(status)
        self.name = status_name(status)
        self.message = get_status_message(status)
        self.op = op
        self.violation = violation
        explained = explain_violation(violation) if violation else ""
        text = self.message if status else _BEYOND
        super().__init__(f"zdnn_{op}: {text}{explained}")


class SanitizerWarning(UserWarning):
    """A misuse of a ztensor that a machine would not notice, found by `connect(sanitize=True)`.

    `misuse` is its name ("NEVER_WRITTEN", "PADDING_READ", "TRANSFORMED_TWICE", "USE_AFTER_FREE",
    "CONCURRENT_USE"), `op` the C function without its prefix, `report` all of it: `use`,
    `allocation` and `other` have `operation` and `at`, the place in the program.
    """

    def __init__(self, report: SanitizerReport) -> None:
        self.report = report
        self.misuse = Misuse.Name(report.misuse).removeprefix("MISUSE_")
        self.op = report.use.operation
        super().__init__(report.text)


class ProgramCheck(NnpaError):
    """The machine would have ended the program: operands contradict each other, or lack storage.

    `kind` is "data" (SIGILL on Linux), "access" (SIGSEGV), "operation" (SIGILL), or "assertion" for
    a debug build of MLI (SIGABRT). `op` is the C function without its prefix,
    `field`, `value`, `limit` and `constraint` say what is wrong, and
    `precheck_status` is the status that precheck would have given, or None. `operation_index` is
    its place in a list, 0-based: operations before it have taken effect.
    """

    def __init__(self, message: str, metadata: Mapping[str, str]) -> None:
        self.message = message
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata))
        self.kind = metadata.get("kind", "")
        self.op = metadata.get("operation", "")
        self.field = metadata.get("field", "")
        self.value = metadata.get("value", "")
        self.limit = metadata.get("limit", "")
        self.constraint = metadata.get("constraint", "")
        status = metadata.get("precheck_status", "")
        self.precheck_status = as_status(int(status)) if status else None
        index = metadata.get("operation_index", "")
        self.operation_index = int(index) if index else None
        hint = "" if self.precheck_status is None else _precheck_hint(int(self.precheck_status))
        if (self.constraint, self.value) == ("pipeline_c11", "0 bytes"):
            hint += " The ztensor has no buffer: it was freed, or never allocated."
        super().__init__(f"{_as_sentence(message)}{hint}")


class NetworkError(NnpaError):
    """The client API of a hosted network refuses; `error` has type and code as ST numbers them."""

    def __init__(self, error: object) -> None:
        self.error = error
        super().__init__(str(error))


class TransportError(NnpaError):
    """The call did not reach the accelerator, or its answer did not come back.

    `code` is the gRPC code's name, `reason` the ErrorReason's name or "", `metadata` the values in
    the message by name, `advice` the remedy, by default the reason's. `retry_delay` is the seconds
    after which the server asks the client to try again, or None.
    """

    retry_delay: float | None = None
    _situation = ""
    _advice = ""

    def __init__(
        self,
        code: str,
        message: str,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        advice: str | None = None,
    ) -> None:
        self.code = code
        self.message = message
        self.reason = reason
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        by_code = CODE_ADVICE.get(code, "Report this with its message.")
        usual = self._advice or ADVICE.get(reason) or by_code
        self.advice = usual if advice is None else advice
        label = f"{code} / {reason}" if reason else code
        text = _as_sentence(f"{self._situation}{message}")
        super().__init__(f"{label}: {text} {self.advice}".rstrip())

    def __reduce__(self) -> tuple[type["TransportError"], tuple[object, ...], dict[str, object]]:
        """Pickle the arguments and the delay, so that another process can make the same error."""
        made_from = (self.code, self.message, self.reason, dict(self.metadata), self.advice)
        return type(self), made_from, {"retry_delay": self.retry_delay}


class SessionLostError(TransportError):
    """The server of the session is gone, or the connection to it broke: `connect` again.

    `code` is the code of gRPC or of a proxy. Ztensors are lost with the server.
    """

    _situation = "the server of this session is gone: "
    _advice = "Connect again: what the session held is lost with its server."


def explain_violation(violation: RangeViolation) -> str:
    """Return clauses such as " output: 2 not numbers, first at [0, 3]: 0x7FFF from -1."."""
    parts: list[str] = []
    for operand in violation.operands:
        part = f" {operand.operand}: {operand.count} not numbers"
        if operand.elements:
            first = operand.elements[0]
            part += f", first at {list(first.index)}: 0x{first.code:04X}"
            if first.operand_values:
                part += " from " + ", ".join(f"{value:g}" for value in first.operand_values)
            if first.padding:
                part += " (padding)"
        parts.append(part + ".")
    return "".join(parts)


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _sentence(error: ZdnnError) -> str:
    place = "" if error.operation_index is None else f"operation {error.operation_index}, "
    refusal = error.refusal
    explanation = "" if refusal is None else refusal.text
    text = f"{place}zdnn_{error.op}: {explanation or error.message}"
    if refusal is not None and not explanation:
        text += f" {_refusal_text(refusal)}"
    if error.violation is not None:
        text += explain_violation(error.violation)
    if error.op == "transform_origtensor" and error.status == Status.ZDNN_CONVERT_FAILURE:
        text += " Ztensor.numpy(strict=False) gives NaN for them, and warns."
    return text


def _refusal_text(refusal: Refusal) -> str:
    return f"{refusal.field} is {refusal.value}, allowed: {refusal.limit} ({refusal.constraint})."


def _precheck_hint(status: int) -> str:
    return f" With precheck the status would have been {status_name(status)}."


def renumbered(error: NnpaError, before: int) -> NnpaError:
    """Return an error whose indices leave out the client's own `before` first operations."""
    if not before or not isinstance(error, TransportError | ProgramCheck):
        return error

    def shift(text: str) -> str:
        return re.sub(
            r"operations\[(\d+)\]", lambda match: f"operations[{int(match[1]) - before}]", text
        )

    metadata = {key: shift(value) for key, value in error.metadata.items()}
    if metadata.get("operation_index"):
        metadata["operation_index"] = str(int(metadata["operation_index"]) - before)
    shifted: NnpaError
    if isinstance(error, ProgramCheck):
        shifted = ProgramCheck(shift(error.message), metadata)
    else:
        shifted = type(error)(error.code, shift(error.message), error.reason, metadata)
    shifted.reports = error.reports
    return shifted
