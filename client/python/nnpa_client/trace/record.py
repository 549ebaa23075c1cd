# SPDX-License-Identifier: Apache-2.0
"""Recording: write a server's trace to a file while the program runs."""

import contextlib
import subprocess
import threading
import warnings
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from nnpa.zdnn.v1.accelerator_pb2 import Session as SessionOptions
from nnpa.zdnn.v1.accelerator_pb2 import UpdateSessionRequest
from nnpa.zdnn.v1.trace_pb2 import EndTraceRequest, RecordTraceRequest, RecordTraceResponse

from nnpa_client._guest.open_session import OpenSession
from nnpa_client._server.methods import END_TRACE, RECORD_TRACE, UPDATE_SESSION
from nnpa_client._server.transport import Transport
from nnpa_client.config import Credentials, Recorder, program_environment
from nnpa_client.errors import NnpaError
from nnpa_client.libzdnn import library_folder
from nnpa_client.trace.format import TracePath, TraceWriter
from nnpa_client.trace.history import Trace, read

__tracebackhide__ = True  # pytest shows the line that called, not these

_END_TIMEOUT = 30.0  # seconds from the end of a trace to its last record


class Recording:
    """A trace that is written to the file `path`; sessions join it by its `name`.

    `ticket` routes them to the server through a proxy, "" without a proxy. After `stop`, `problem`
    says why the file is not complete, None if it is.
    """

    def __init__(
        self, transport: Transport, path: TracePath, contents: bool = False, max_bytes: int = 0
    ) -> None:
        self.path = Path(path)
        self.problem: NnpaError | OSError | None = None
        self._transport = transport
        request = RecordTraceRequest(contents=contents, max_bytes=max_bytes)
        stream = transport.receive_stream(RECORD_TRACE, request)
        self.name = next(stream).trace
        self.ticket = transport.ticket(self.name)
        self._writer = TraceWriter(path)
        self._thread = threading.Thread(
            target=self._write, args=(stream,), name="nnpa-trace", daemon=True
        )
        self._thread.start()

    def _write(self, stream: Iterator[RecordTraceResponse]) -> None:
        try:
            for response in stream:
                self._writer.write(response.records)
        except (NnpaError, OSError) as error:
            self.problem = error

    def stop(self) -> None:
        """End the trace, wait for its last record, and close the file."""
        failure: NnpaError | None = None
        try:
            self._transport.unary(END_TRACE, EndTraceRequest(trace=self.name))
        except NnpaError as error:
            failure = error  # a server that has stopped has ended its traces, too
        self._thread.join(_END_TIMEOUT)
        if self._thread.is_alive():
            self.problem = failure or TimeoutError(f"no end within {_END_TIMEOUT:g} s")
        with contextlib.suppress(OSError):
            self._writer.close()

    def read(self) -> Trace:
        """Read the file."""
        return read(self.path)


@contextlib.contextmanager
def record_session(
    session: OpenSession, path: TracePath, contents: bool, max_bytes: int
) -> Generator[Recording]:
    """Record a session's calls in the block; see `Session.trace`."""
    recording = Recording(session.transport, path, contents, max_bytes)
    try:
        _join(session, recording.name)
        try:
            yield recording
        finally:
            with contextlib.suppress(NnpaError):  # the connection may be lost already
                _join(session, "")
    finally:
        recording.stop()
        if recording.problem is not None:
            text = f"{recording.path}: the trace is not complete: {recording.problem}"
            warnings.warn(text, stacklevel=3)


def _join(session: OpenSession, name: str) -> None:
    """Record a session in a trace from now on; an empty name ends that."""
    session.update()  # runs what a pipeline has queued
    request = UpdateSessionRequest(session=SessionOptions(name=session.name, trace=name))
    request.update_mask.paths.append("trace")
    joined = session.transport.unary(UPDATE_SESSION, request)
    if joined.trace != name:
        raise NnpaError(f"trace: nnpa-server {joined.server_version} does not record the session")


def run_program(
    recording: Recording,
    target: str,
    command: Sequence[str],
    credentials: Credentials | None = None,
) -> int:
    """Run a program whose sessions join a recording at a server, and return its exit code.

    The program gets the same `credentials`. As in a shell, the code of a program that a signal
    ended is 128 plus the signal's number. Raises OSError for a program that cannot be started.
    """
    recorder = Recorder(target, recording.name, recording.ticket)
    environment = program_environment(recorder, library_folder(), credentials)
    with subprocess.Popen(command, env=environment) as program:
        code = program.wait()
    return code if code >= 0 else 128 - code
