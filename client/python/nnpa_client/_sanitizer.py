# SPDX-License-Identifier: Apache-2.0
"""The client's part of the sanitizer: where the program makes its calls, and what is found there.

The server judges. What it cannot see it is told here: the place of each call, and which calls of
other threads are under way on the same ztensors, for one session's calls reach it one by one.
"""

import inspect
import re
import threading
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from nnpa.zdnn.v1.accelerator_pb2 import ReadTensorRequest, WriteTensorHeader
from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport, SanitizerSite

from nnpa_client.errors import NnpaError, SanitizerWarning

if TYPE_CHECKING:
    from nnpa_client._guest import Call
    from nnpa_client.ztensor import Ztensor

_PACKAGE = str(Path(__file__).parent)
_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+) in .*")
# Calls whose operand `ztensor` is read and stays as it is.
_READERS = frozenset(("transform_origtensor", "getrange_ztensor", "read_sticks"))


class _Use(NamedTuple):
    """A ztensor in a call under way of some thread."""

    thread: int
    ztensor: "Ztensor"
    writes: bool
    site: SanitizerSite


class Watch:
    """What a session that sanitizes keeps: all reports so far, and the calls under way."""

    def __init__(self) -> None:
        self.reports: list[SanitizerReport] = []
        self._flying: list[_Use] = []
        self._lock = threading.Lock()

    @property
    def under_way(self) -> int:
        """How many ztensors calls are under way on, each as often as it is used."""
        return len(self._flying)

    def flying(self, calls: Sequence["Call"]) -> AbstractContextManager[None]:
        """Give calls their place; they are under way until the block ends.

        Tells what comes with an error.
        """
        at = _place()
        for call in calls:
            call.operation.site = call.operation.site or at
        return self._flight(calls)

    @contextmanager
    def _flight(self, calls: Sequence["Call"]) -> Generator[None]:
        uses = self._take_off(calls)
        try:
            yield
        except NnpaError as error:
            reports, error.reports = error.reports, ()
            self.tell(reports)
            raise
        finally:
            with self._lock:
                for use in uses:
                    self._flying.remove(use)

    def _take_off(self, calls: Sequence["Call"]) -> list[_Use]:
        """Note calls as under way; mark those that meet calls of other threads."""
        thread, uses = threading.get_ident(), list[_Use]()
        with self._lock:
            for call in calls:
                site = SanitizerSite(operation=call.name, at=call.operation.site)
                for operand, ztensor in call.tensors.items():
                    use = _Use(thread, ztensor, _writes(call.name, operand), site)
                    self._meet(call, operand, use)
                    uses.append(use)
            self._flying.extend(uses)
        return uses

    def _meet(self, call: "Call", operand: str, use: _Use) -> None:
        arm = call.operation.WhichOneof("operation")
        for other in self._flying:
            if other.thread == use.thread or other.ztensor is not use.ztensor or arm is None:
                continue
            if use.writes or other.writes:
                ref = getattr(getattr(call.operation, arm), operand)
                ref.provenance.concurrent.CopyFrom(other.site)

    def keep(self, results: Iterable[OperationResult]) -> None:
        """Keep what answers report, without a word."""
        lines = (line for result in results for line in result.diagnostics)
        self.reports.extend(line.report for line in lines if line.HasField("report"))

    def tell(self, reports: Iterable[SanitizerReport]) -> None:
        """Keep reports, and warn of each at the place where the program misuses the ztensor."""
        news = list(reports)
        self.reports.extend(news)
        for report in news:
            warning, place = SanitizerWarning(report), _SITE.fullmatch(report.use.at)
            if place is None:
                warnings.warn(warning, stacklevel=2)
            else:
                warnings.warn_explicit(warning, None, place["file"], int(place["line"]))


def place_header(header: WriteTensorHeader, call: "Call") -> None:
    """Give the header of a stream the place of its call."""
    if header.WhichOneof("target") == "arrays":
        header.arrays.operation.CopyFrom(call.operation)
    else:
        header.sticks.site = call.operation.site


def place_request(request: ReadTensorRequest, call: "Call") -> None:
    """Give the request of a stream the place of its call."""
    if request.WhichOneof("source") == "operation":
        request.operation.CopyFrom(call.operation)


def _writes(name: str, operand: str) -> bool:
    """Tell whether a call writes an operand, or changes its state."""
    if operand == "ztensor":
        return name not in _READERS
    return operand == "dest" or "output" in operand


def _place() -> str:
    """Return where the first frame outside of this package is: "train.py:42 in forward"."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return ""
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
