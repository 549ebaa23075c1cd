# SPDX-License-Identifier: Apache-2.0
"""The client's transport without a network: it calls the server's service directly."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nnpa.mli.v1 import mli_pb2
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import trace_pb2
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport
from nnpa_client._shortcuts import out_of_band_arrays as apart
from nnpa_client._shortcuts.chunks import Download, Upload
from nnpa_client.errors import NnpaError, ProgramCheck, TransportError
from nnpa_server.accelerator import TraceService
from nnpa_server.accelerator.service import AcceleratorService
from nnpa_server.accelerator.streaming import parse_write
from nnpa_server.config import Limits
from nnpa_server.errors import from_exception
from nnpa_server.mli.service import MliService
from nnpa_server.network import make_service
from nnpa_server.open_inference.repository import Repository
from nnpa_server.rpc import codec as server
from nnpa_server.sessions.store import Store

Answer = TypeVar("Answer")


class Waiting:
    """A call whose client waits without a deadline."""

    def is_active(self) -> bool:
        """Tell that the call still runs."""
        return True

    def time_remaining(self) -> float | None:
        """Tell that there is no deadline."""
        return None

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """Tell that nothing follows the answer."""
        return ()

    def set_trailing_metadata(self, trailing_metadata: object) -> None:
        """Send nothing: there is no wire."""

    def peer(self) -> str:
        """Return where the client is."""
        return "in-process"


def as_client_error(error: Exception) -> NnpaError:
    """Return what a client raises for what a service raises."""
    refused = from_exception(error)
    told: NnpaError = TransportError(
        refused.code.name, refused.message, refused.name, refused.metadata
    )
    if refused.name == "PROGRAM_CHECK":
        told = ProgramCheck(refused.message, refused.metadata)
    told.reports = [one for one in refused.details if isinstance(one, SanitizerReport)]
    return told


class InProcessTransport:
    """A server's service in this process; messages are still copied through their wire form."""

    target = "in-process"

    def __init__(self, store: Store) -> None:
        self.calls = 0
        self._service = AcceleratorService(store)
        self._traces = TraceService(self._service.traces)
        self._mli = MliService(Limits(), calls=1)
        self._networks = make_service(store, Repository(4), None)

    def _call(self, method: Callable[..., Answer], request: object) -> Answer:
        self.calls += 1
        try:
            return method(request, Waiting())
        except Exception as error:
            raise as_client_error(error) from error

    def list_machines(self, request: pb.ListMachinesRequest) -> pb.ListMachinesResponse:
        """List one page of machines."""
        return self._call(self._service.ListMachines, request)

    def get_machine(self, request: pb.GetMachineRequest) -> pb.Machine:
        """Get one machine by name or alias."""
        return self._call(self._service.GetMachine, request)

    def create_session(self, request: pb.CreateSessionRequest) -> pb.Session:
        """Create a session."""
        return self._call(self._service.CreateSession, request)

    def get_session(self, request: pb.GetSessionRequest) -> pb.Session:
        """Get a session with its present use."""
        return self._call(self._service.GetSession, request)

    def update_session(self, request: pb.UpdateSessionRequest) -> pb.Session:
        """Change options of a session."""
        return self._call(self._service.UpdateSession, request)

    def delete_session(self, request: pb.DeleteSessionRequest) -> None:
        """Delete a session with its tensors."""
        self._call(self._service.DeleteSession, request)

    def execute(self, listed: apart.Listed) -> apart.Answered:
        """Run operations in order."""
        answered = self._call(self._service.execute, server.parse(apart.serialize(listed)))
        return apart.parse(server.serialize(answered))

    def write_tensor(self, parts: Iterable[Upload]) -> pb.WriteTensorResponse:
        """Fill a tensor: a header, then chunks."""
        uploads = (part if isinstance(part, memoryview) else _parsed(part) for part in parts)
        return self._call(self._service.WriteTensor, uploads)

    def read_tensor(self, request: pb.ReadTensorRequest) -> Iterator[Download]:
        """Read a tensor: a header, then chunks."""
        try:
            yield from self._service.read_parts(request, Waiting())
        except Exception as error:
            raise as_client_error(error) from error

    def list_tensors(self, request: pb.ListTensorsRequest) -> pb.ListTensorsResponse:
        """List one page of a session's tensors."""
        return self._call(self._service.ListTensors, request)

    def run_kernel(self, request: mli_pb2.RunKernelRequest) -> mli_pb2.RunKernelResponse:
        """Run MLI kernels in order."""
        copy = mli_pb2.RunKernelRequest.FromString(request.SerializeToString())
        return self._call(self._mli.RunKernel, copy)

    def list_kernels(self, request: mli_pb2.ListKernelsRequest) -> mli_pb2.ListKernelsResponse:
        """List one page of MLI kernels."""
        return self._call(self._mli.ListKernels, request)

    def network(self, method: str, request: Any) -> Any:
        """Call a method of NetworkService; streams are iterators of messages."""
        answer: Any = self._call(getattr(self._networks, method), request)
        return self._streamed(answer) if hasattr(answer, "__next__") else answer

    def _streamed(self, stream: Any) -> Iterator[Any]:
        try:
            yield from stream
        except GeneratorExit:
            stream.close()
            raise
        except Exception as error:
            raise as_client_error(error) from error

    def record_trace(self, request: trace_pb2.RecordTraceRequest) -> Iterator[Any]:
        """Open a trace: its name, then its records until it ends."""
        return self._streamed(self._call(self._traces.RecordTrace, request))

    def end_trace(self, request: trace_pb2.EndTraceRequest) -> None:
        """End a trace."""
        self._call(self._traces.EndTrace, request)

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _parsed(message: pb.WriteTensorRequest) -> Upload:
    return parse_write(message.SerializeToString())
