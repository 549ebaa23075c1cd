# SPDX-License-Identifier: Apache-2.0
"""The library's output during a call: log lines, the precheck print, the status diagnosis.

A line has the library's form, with "(nnpa)" in place of its source file and line. A call gives one
line; the library repeats some lines while it leaves composed operations.
Source: zDNN API Reference 1.2.0, "Runtime Environment Variables"; behaviour of release builds of
the zDNN 1.2.0 library, and of debug builds where a level is set.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from nnpa_emulator.machine import Guest, LogLevel
from nnpa_emulator.status import Refusal, Status, get_status_message, is_warning
from nnpa_emulator.ztensor import TensorDesc, Ztensor


class Stream(IntEnum):
    """The stream that the library prints to."""

    STDOUT = 1
    STDERR = 2


class Kind(IntEnum):
    """The cause of a text: ZDNN_LOGLEVEL, ZDNN_ENABLE_PRECHECK or ZDNN_STATUS_DIAG.

    SANITIZER marks the emulator's own reports: the library has nothing of the kind.
    """

    LOG = 1
    PRECHECK = 2
    STATUS_DIAG = 3
    SANITIZER = 4


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One text, possibly of several lines, without a final newline."""

    stream: Stream
    kind: Kind
    text: str


def print_precheck(name: str, parameters: Mapping[str, object], available: bool) -> Diagnostic:
    """Print the parameters of an operation and whether it is available, as precheck does."""
    lines = [f"{parameter}: {_shown(value)}" for parameter, value in parameters.items()]
    lines.append(f"Operation zdnn_{name} availability: {available}")
    return Diagnostic(Stream.STDOUT, Kind.PRECHECK, "\n".join(lines))


def diagnose(
    guest: Guest, name: str, module: str, status: int, refusal: Refusal | None,
    parameters: Mapping[str, object],
) -> Iterator[Diagnostic]:  # fmt: skip
    """Yield the log line of a status and the diagnosis that the session asked for."""
    # The library returns these without its status macro, so nothing is logged or diagnosed.
    silent = status == Status.ZDNN_INVALID_BESSEL_CORRECTION or (
        refusal is not None and refusal.constraint == "pipeline_c2"
    )
    if silent or (status == Status.ZDNN_OK and guest.log_level is None):
        return
    warning = is_warning(status)
    if status != Status.ZDNN_OK and _logs(guest, module, warning):
        level = "WARN" if warning else "ERROR"
        text = f"{level}: zdnn_{name}() (nnpa): {get_status_message(status)}"
        yield Diagnostic(Stream.STDOUT if warning else Stream.STDERR, Kind.LOG, text)
    if status == guest.status_diag:
        call = ", ".join(f"{key}={_shown(value)}" for key, value in parameters.items())
        text = (
            "=== zDNN Diagnostic ===\n"
            f"status = 0x{status:08x}, {get_status_message(status)}\n"
            f"zdnn_{name}({call})"
        )
        yield Diagnostic(Stream.STDOUT, Kind.STATUS_DIAG, text)


def _logs(guest: Guest, module: str, warning: bool) -> bool:
    """Tell whether a line is printed: by level and module in a debug build, always in a release."""
    if guest.log_level is None:
        return True
    least = LogLevel.WARN if warning else LogLevel.ERROR
    return guest.log_level >= least and (not guest.log_module or module in guest.log_module)


def _shown(value: object) -> str:
    if isinstance(value, Ztensor):
        return f"ztensor{_shown(value.transformed_desc)}"
    if isinstance(value, TensorDesc):
        return f"(layout {value.layout}, format {value.format}, type {value.type}, {value.dims})"
    if isinstance(value, (bool, int, float)) or value is None:
        return str(value)
    return "..."
