# SPDX-License-Identifier: Apache-2.0
"""Reports of the sanitizer: in parts, as a line of text, and attached to errors.

Source: nnpa/zdnn/v1/sanitizer.proto.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from nnpa.zdnn.v1 import operation_pb2
from nnpa.zdnn.v1 import sanitizer_pb2 as pb
from nnpa_emulator.diagnostics import Diagnostic

from nnpa_server.errors import CallRefused

Report: TypeAlias = pb.SanitizerReport
Site: TypeAlias = pb.SanitizerSite
"""The site of a call in a program: the function's name, and its place or ""."""

_SITE_BYTES = 256
_DETAIL_BYTES = 2048  # of reports with an error: gRPC's clients take 8 KiB behind an answer
_SAID = {
    pb.MISUSE_NEVER_WRITTEN: "has sticks that have never been written",
    pb.MISUSE_PADDING_READ: "has padding on which the result depends",
    pb.MISUSE_TRANSFORMED_TWICE: "is transformed already",
    pb.MISUSE_USE_AFTER_FREE: "is used after it was freed",
    pb.MISUSE_CONCURRENT_USE: "is in use by another thread",
}
_OTHER = {
    pb.MISUSE_PADDING_READ: "written",
    pb.MISUSE_TRANSFORMED_TWICE: "written",
    pb.MISUSE_USE_AFTER_FREE: "freed",
    pb.MISUSE_CONCURRENT_USE: "used",
}


@dataclass(slots=True)
class History:
    """The sites that allocated, last wrote and freed a tensor's buffer; None if unknown or never.

    `written` says that it was written, perhaps by an unknown operation.
    """

    allocation: Site | None = None
    writing: Site | None = None
    free: Site | None = None
    written: bool = True


@dataclass(frozen=True, slots=True)
class Finding(Diagnostic):
    """A diagnostic text of the sanitizer; `report` has its parts."""

    report: Report


def site_of(name: str, origin: operation_pb2.Operation | None) -> Site:
    """Return the site where a program calls a function."""
    return Site(operation=name, at="" if origin is None else shorten(origin.site))


def read_site(message: pb.SanitizerSite) -> Site:
    """Return the site in a client's message."""
    return Site(operation=shorten(message.operation), at=shorten(message.at))


def _say(site: Site) -> str:
    name = site.operation if site.operation == "write_sticks" else f"zdnn_{site.operation}"
    return f"{name} at {site.at}" if site.at else name


def shorten(text: str) -> str:
    """Return a client's text, cut to the length that is kept."""
    if len(text) <= _SITE_BYTES // 4:  # no character has more than four
        return text
    return text.encode()[:_SITE_BYTES].decode(errors="ignore")


def rescue(refused: CallRefused, results: Iterable[operation_pb2.OperationResult]) -> None:
    """Attach the reports of earlier operations to the error that replaces their answers."""
    lines = (line for result in results for line in result.diagnostics)
    attach(refused, (line.report for line in lines if line.HasField("report")))


def attach(refused: CallRefused, reports: Iterable[Report]) -> None:
    """Attach reports to an error, as far as its status has room."""
    room = _DETAIL_BYTES - sum(detail.ByteSize() for detail in refused.details)
    for report in reports:
        room -= report.ByteSize()
        if room < 0:
            break
        refused.details.append(report)


def report(
    misuse: pb.Misuse.ValueType,
    use: Site,
    operand: str,
    number: int,
    history: History,
    second: Site | None,
) -> Report:
    """Return the finding of a report: its parts, and one line of text."""
    tensor = f"{operand} (tensor {number})" if number else operand
    text = f"{_say(use)}: {tensor} {_SAID[misuse]}"
    if second is not None:
        text += f"; {_OTHER[misuse]} by {_say(second)}"
    if history.allocation is not None:
        text += f"; allocated by {_say(history.allocation)}"
    return Report(
        misuse=misuse,
        use=use,
        operand=operand,
        tensor=number,
        allocation=history.allocation,
        other=second,
        text=text,
    )
