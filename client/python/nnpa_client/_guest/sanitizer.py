# SPDX-License-Identifier: Apache-2.0
"""The client's part of the sanitizer: it adds facts to calls that only the client knows.

These are the place of each call in the program, and the calls of other threads that are in flight
on the same ztensors: a session's calls reach the server one by one. The server detects misuse.
"""

import inspect
import re
import threading
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from nnpa.zdnn.v1.accelerator_pb2 import ReadTensorRequest, WriteTensorHeader
from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport, SanitizerSite

from nnpa_client._guest.call import Call, Tensor
from nnpa_client.errors import NnpaError, SanitizerWarning

__tracebackhide__ = True  # pytest shows the line that called, not these

_PACKAGE = str(Path(__file__).parents[1])
_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+) in .*")
# Calls whose operand `ztensor` is read and stays as it is.
_READERS = frozenset(("transform_origtensor", "getrange_ztensor", "read_sticks"))


class _Use(NamedTuple):
    """A ztensor that a call in flight uses, and the thread of the call."""

    thread: int
    tensor: Tensor
    writes: bool
    site: SanitizerSite


class Watch:
    """The reports of a session that sanitizes so far, and its calls in flight."""

    def __init__(self) -> None:
        self.reports: list[SanitizerReport] = []
        self._in_flight: list[_Use] = []
        self._lock = threading.Lock()

    @property
    def under_way(self) -> int:
        """The number of uses of ztensors by calls in flight."""
        return len(self._in_flight)

    def in_flight(self, calls: Sequence[Call]) -> AbstractContextManager[None]:
        """Add the program's place to calls, which are in flight until the block ends.

        Warns for each report that an error of the block carries.
        """
        at = _place()
        for call in calls:
            call.operation.site = call.operation.site or at
        return self._until_answered(calls)

    @contextmanager
    def _until_answered(self, calls: Sequence[Call]) -> Generator[None]:
        uses = self._begin(calls)
        try:
            yield
        except NnpaError as error:
            reports, error.reports = error.reports, ()
            self.warn(reports)
            raise
        finally:
            with self._lock:
                for use in uses:
                    self._in_flight.remove(use)

    def _begin(self, calls: Sequence[Call]) -> list[_Use]:
        """Note calls as in flight; mark ztensors that calls of other threads use meanwhile."""
        thread, uses = threading.get_ident(), list[_Use]()
        with self._lock:
            for call in calls:
                site = SanitizerSite(operation=call.name, at=call.operation.site)
                for operand, tensor in call.tensors.items():
                    use = _Use(thread, tensor, _writes(call.name, operand), site)
                    self._mark_concurrent(call, operand, use)
                    uses.append(use)
            self._in_flight.extend(uses)
        return uses

    def _mark_concurrent(self, call: Call, operand: str, use: _Use) -> None:
        arm = call.operation.WhichOneof("operation")
        for earlier in self._in_flight:
            if earlier.thread == use.thread or earlier.tensor is not use.tensor or arm is None:
                continue
            if use.writes or earlier.writes:
                ref = getattr(getattr(call.operation, arm), operand)
                ref.provenance.concurrent.CopyFrom(earlier.site)

    def keep(self, results: Iterable[OperationResult]) -> None:
        """Keep the reports of answers without a warning."""
        lines = (line for result in results for line in result.diagnostics)
        self.reports.extend(line.report for line in lines if line.HasField("report"))

    def warn(self, reports: Iterable[SanitizerReport]) -> None:
        """Keep reports, and warn for each at the place where the program misuses the ztensor."""
        pending = list(reports)
        self.reports.extend(pending)
        for report in pending:
            warning, place = SanitizerWarning(report), _SITE.fullmatch(report.use.at)
            if place is None:
                warnings.warn(warning, stacklevel=2)
            else:
                warnings.warn_explicit(warning, None, place["file"], int(place["line"]))


def place_header(header: WriteTensorHeader, call: Call) -> None:
    """Copy the place of a call into the header of its stream."""
    if header.WhichOneof("target") == "arrays":
        header.arrays.operation.CopyFrom(call.operation)
    else:
        header.sticks.site = call.operation.site


def place_request(request: ReadTensorRequest, call: Call) -> None:
    """Copy the place of a call into the request of its stream."""
    if request.WhichOneof("source") == "operation":
        request.operation.CopyFrom(call.operation)


def _writes(name: str, operand: str) -> bool:
    """Return True if a call writes an operand or changes its state."""
    if operand == "ztensor":
        return name not in _READERS
    return operand == "dest" or "output" in operand


def user_frame() -> tuple[FrameType | None, int]:
    """Return the first frame outside of this package, and its `stacklevel` for the caller."""
    level = 0
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return frame, level


def _place() -> str:
    """Return the place of the first frame outside of this package: "train.py:42 in forward"."""
    frame, _level = user_frame()
    if frame is None:
        return ""
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
