# SPDX-License-Identifier: Apache-2.0
"""Sessions: a guest on an emulated machine, and how to get one."""

import contextlib
import weakref
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport
from nnpa.zdnn.v1.tensor_pb2 import TensorDesc

from nnpa_client._guest.at_exit import close_at_exit
from nnpa_client._guest.call import Call
from nnpa_client._guest.guest import Guest
from nnpa_client._guest.options import (
    AccumulateOption,
    LogLevelOption,
    NumericsOption,
    ProgramCheckOption,
    session_options,
)
from nnpa_client._guest.pipeline import Pipeline
from nnpa_client._server.lease import Lease
from nnpa_client._server.methods import DELETE_SESSION, GET_SESSION, UPDATE_SESSION
from nnpa_client._server.private_server import PrivateServer
from nnpa_client._server.transport import Transport
from nnpa_client._server.waiting import create_session
from nnpa_client._values.arrays import ArrayLike
from nnpa_client._values.display import machine_name, session_facts, table
from nnpa_client._values.fields import message_of
from nnpa_client.errors import NnpaError, TransportError
from nnpa_client.ztensor import Ztensor, _lifecycle, _transfer

__tracebackhide__ = True  # pytest shows the line that called, not these

__all__ = ["Pipeline", "Session", "current_session", "entered_session"]

if TYPE_CHECKING:
    from typing import Unpack

    from nnpa_client.faults import FaultRule, Faults, Rule
    from nnpa_client.network.calls import Model
    from nnpa_client.network.hosted import LoadOptions, Network
    from nnpa_client.trace import Recording, TracePath

_entered: ContextVar[tuple["Session", ...]] = ContextVar("nnpa_sessions", default=())


def entered_session() -> "Session | None":
    """Return the session of the innermost `with session:`, or None outside of any."""
    sessions = _entered.get()
    return sessions[-1] if sessions else None


def current_session() -> "Session":
    """Return the session of the innermost `with session:`; raise NnpaError outside of any."""
    session = entered_session()
    if session is None:
        raise NnpaError("no session is open here: put the call inside `with session:`")
    return session


class Session:
    """A guest on an emulated machine with a zDNN library and its ztensors; see `connect`.

    A context manager: `with session:` makes it the session of `zdnn.*` functions that take no
    ztensor, and closes it at the end. Use one thread at a time, or a session per thread.
    """

    def __init__(
        self,
        transport: Transport,
        options: pb.Session | None = None,
        server: PrivateServer | None = None,
        wait: float = 0.0,
    ) -> None:
        self._transport = transport
        self._server = server
        request = pb.CreateSessionRequest(session=options)
        self._message = create_session(transport, request, wait)
        if options is not None and options.sanitize and not self._message.sanitize:
            transport.unary(DELETE_SESSION, pb.DeleteSessionRequest(name=self._message.name))
            raise NnpaError(f"sanitize: nnpa-server {self._message.server_version} cannot")
        self._guest = Guest(transport, self._message, server)
        self._lease = Lease(transport, self.name) if self._message.lease else None
        if self._lease is not None:
            weakref.finalize(self, self._lease.close).atexit = False
        self._closed = False
        if server is None:
            close_at_exit(self)

    @property
    def name(self) -> str:
        """The resource name, which is a secret: it gives access to the session."""
        return self._message.name

    @property
    def target(self) -> str:
        """The server's address."""
        return self._transport.target

    @property
    def ticket(self) -> str:
        """The routing ticket that a proxy uses to reach the session's server; "" without a proxy.

        Calls over other connections send it as metadata, `nnpa-session-ticket`.
        """
        return self._transport.ticket(self.name)

    @property
    def transport(self) -> Transport:
        """The connection, which `nnpa_client.mli` shares."""
        return self._transport

    @property
    def machine(self) -> pb.Machine:
        """The machine that the session runs on, with its NNPA-QAF query result."""
        return self._message.machine

    @property
    def library(self) -> str:
        """The version of zDNN, for example "1.2.0"."""
        return self._message.library_version

    @property
    def limits(self) -> pb.SessionLimits:
        """The limits of the session: tensors, bytes, sizes of messages, idle time."""
        return self._message.limits

    @property
    def reports(self) -> Sequence[SanitizerReport]:
        """The reports of `connect(sanitize=True)` so far; see `SanitizerWarning`."""
        return () if self._guest.watch is None else tuple(self._guest.watch.reports)

    @property
    def server_version(self) -> str:
        """The version of the server."""
        return self._message.server_version

    def status(self) -> pb.Session:
        """Ask the server for the session as it is now: options, tensor_count, stored_bytes, ..."""
        self._message = self._transport.unary(GET_SESSION, pb.GetSessionRequest(name=self.name))
        return self._message

    def list_tensors(self) -> list[tensors.ZtensorInfo]:
        """List the tensors that the server holds for the session, by ascending id."""
        return self._guest.list_tensors()

    def update(
        self,
        machine: str | pb.MachineSpec | None = None,
        precheck: bool | None = None,
        *,
        status_diag: int | None = None,
        program_check: ProgramCheckOption | None = None,
        log_level: LogLevelOption | None = None,
        log_module: str | None = None,
        numerics: NumericsOption | None = None,
        jitter_seed: int | None = None,
        accumulate: AccumulateOption | None = None,
    ) -> None:
        """Change options; None leaves one as it is. Ztensors stay.

        After a move to another machine the query functions answer from the old query result until
        `init` or `refresh_nnpa_query_result` runs, as on the machine.
        """
        self._guest.flush()
        session, fields = session_options(
            self._transport,
            machine,
            precheck=precheck,
            status_diag=status_diag,
            program_check=program_check,
            log_level=log_level,
            log_module=log_module,
            numerics=numerics,
            jitter_seed=jitter_seed,
            accumulate=accumulate,
        )
        session.name = self.name
        request = pb.UpdateSessionRequest(session=session)
        request.update_mask.paths.extend(fields)
        if fields:
            self._message = self._transport.unary(UPDATE_SESSION, request)

    def close(self) -> None:
        """Delete the session with its ztensors, and end a private server. May be repeated."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(TransportError):
            self._transport.unary(DELETE_SESSION, pb.DeleteSessionRequest(name=self.name))
        if self._lease is not None:
            self._lease.close()
        self._transport.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> "Session":
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_exception: object) -> None:
        _entered.set(tuple(entered for entered in _entered.get() if entered is not self))
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        place = f"at {self.target}, {machine_name(self.machine)}"
        return f"<Session {state} {place}, zDNN {self.library}>"

    def _repr_html_(self) -> str:
        """Return a table of the server's last facts about the session, without its name."""
        return table("Session", {"server at": self.target, **session_facts(self._message)})

    def ztensor(self, array: ArrayLike, layout: int | str | None = None) -> Ztensor:
        """Return a transformed ztensor with the data of a float32, float16 or bfloat16 array.

        Lists of numbers, tensors of torch, and other objects with `__array__` or `__dlpack__`
        become arrays first. `layout` is one of ZDNN_* or its name, such as "NHWC"; by default
        arrays of 1 to 4 dims are ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC.
        """
        return _lifecycle.from_array(self._guest, array, layout)

    def init_ztensor(self, pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc) -> Ztensor:
        """Return a ztensor without a buffer: zdnn_init_ztensor."""
        return _lifecycle.init_ztensor(self._guest, pre_tfrmd_desc, tfrmd_desc)

    def init_quantized_ztensor(
        self, pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc, scale: float, offset: float
    ) -> Ztensor:
        """Return a quantized ztensor without a buffer: zdnn_init_quantized_ztensor."""
        pair = (scale, offset)
        return _lifecycle.init_ztensor(self._guest, pre_tfrmd_desc, tfrmd_desc, pair)

    def init_ztensor_with_malloc(
        self, pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc
    ) -> Ztensor:
        """Return a ztensor with zero-filled sticks: zdnn_init_ztensor_with_malloc."""
        return _lifecycle.allocate(self.init_ztensor(pre_tfrmd_desc, tfrmd_desc))

    def init_quantized_ztensor_with_malloc(
        self, pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc, scale: float, offset: float
    ) -> Ztensor:
        """Return a quantized ztensor with sticks: zdnn_init_quantized_ztensor_with_malloc."""
        ztensor = self.init_quantized_ztensor(pre_tfrmd_desc, tfrmd_desc, scale, offset)
        return _lifecycle.allocate(ztensor)

    def put_ztensor(
        self, structure: tensors.Ztensor, sticks: _transfer.UserArray | None = None
    ) -> Ztensor:
        """Put a ztensor into the session as it stands, unchecked, and return it.

        Use it for ztensors that another session or a machine has written. `structure` has the
        fields of C's structure, `sticks` is the buffer, little-endian, getsize_ztensor bytes, or
        None for NULL.
        """
        ztensor = Ztensor(self._guest, None, self._guest.new_id())
        _transfer.put_ztensor(ztensor, structure, sticks)
        return ztensor

    @contextlib.contextmanager
    def pipeline(self) -> Generator[Pipeline]:
        """Queue the verbs of the block, and run them with one Execute when it ends."""
        results = self._guest.begin()
        try:
            yield Pipeline(results)
        except BaseException:
            self._guest.end(run=False)
            raise
        self._guest.end(run=True)

    def execute(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Run operations of the wire contract as they are, and return their answers.

        An error status raises nothing: see the answer. The calls that an open pipeline has queued
        run before. `new_id` returns ids for new tensors.
        """
        self._guest.flush()
        results = self._guest.execute([Call("", operation) for operation in operations]).whole()
        if self._guest.watch is not None:
            self._guest.watch.keep(results)
        return results

    def load(self, model: "Model | None" = None, **options: "Unpack[LoadOptions]") -> "Network":
        """Host an ONNX model and return it, ready to be called like a function.

        `model` is the path of an ONNX file, its bytes, or an onnx.ModelProto. Keywords as in
        `nnpa_client.network.load`.
        """
        from nnpa_client.network.hosted import load  # which needs this class

        return load(self, model, **options)

    def faults(
        self,
        operation: Callable[..., object] | str | None = None,
        rules: "Sequence[FaultRule]" = (),
        **rule: "Unpack[Rule]",
    ) -> "Faults":
        """Return a context manager that injects faults by `rules`, and by the rule of keywords.

        The keywords are the fields of `nnpa_client.faults.Rule`. The server must have been started
        with --allow-faults.
        """
        from nnpa_client.faults import Faults, make_rule  # which need this class

        keyword_rules = [make_rule(operation, rule)] if rule or operation is not None else []
        return Faults(self, [*rules, *keyword_rules])

    def trace(
        self, path: "TracePath", contents: bool = False, max_bytes: int = 0
    ) -> contextlib.AbstractContextManager["Recording"]:
        """Return a context manager that records the session's calls into a file.

        With `contents` the file also has the contents of tensors. It is cut at `max_bytes`; 0 is
        4 GiB.
        """
        from nnpa_client.trace import record_session  # which needs this class

        return record_session(self, path, contents, max_bytes)

    def new_id(self) -> int:
        """Return an id that no tensor of the session has had."""
        return self._guest.new_id()

    def _ask(self, operation: Operation) -> OperationResult:
        return self._guest.ask(Call(operation.WhichOneof("operation") or "", operation))

    def init(self) -> None:
        """Have the library query the machine anew: zdnn_init."""
        self._guest.submit(Call("init", Operation(init=wire.Init())))

    def is_nnpa_installed(self) -> bool:
        """Return True if the machine has the accelerator: zdnn_is_nnpa_installed."""
        return self._ask(Operation(is_nnpa_installed=wire.IsNnpaInstalled())).boolean

    def is_nnpa_function_installed(self, count: int, *function_codes: int) -> bool:
        """Return True if all functions are installed: zdnn_is_nnpa_function_installed."""
        codes = {"function_codes": list(function_codes), "count": count}
        query = message_of(wire.IsNnpaFunctionInstalled, codes)
        return self._ask(Operation(is_nnpa_function_installed=query)).boolean

    def is_nnpa_parmblk_fmt_installed(self, count: int, *format_codes: int) -> bool:
        """Return True if all formats are installed: zdnn_is_nnpa_parmblk_fmt_installed."""
        codes = {"format_codes": list(format_codes), "count": count}
        query = message_of(wire.IsNnpaParmblkFmtInstalled, codes)
        return self._ask(Operation(is_nnpa_parmblk_fmt_installed=query)).boolean

    def is_nnpa_datatype_installed(self, types_bitmask: int) -> bool:
        """Return True if all data types are installed: zdnn_is_nnpa_datatype_installed."""
        query = message_of(wire.IsNnpaDatatypeInstalled, {"types_bitmask": types_bitmask})
        return self._ask(Operation(is_nnpa_datatype_installed=query)).boolean

    def is_nnpa_layout_fmt_installed(self, layout_bitmask: int) -> bool:
        """Return True if all layout formats are installed: zdnn_is_nnpa_layout_fmt_installed."""
        query = message_of(wire.IsNnpaLayoutFmtInstalled, {"layout_bitmask": layout_bitmask})
        return self._ask(Operation(is_nnpa_layout_fmt_installed=query)).boolean

    def is_nnpa_conversion_installed(self, type: int, format_bitmask: int) -> bool:  # noqa: A002 - zDNN's name
        """Return True if all conversions are installed: zdnn_is_nnpa_conversion_installed."""
        conversion = {"type": type, "format_bitmask": format_bitmask}
        query = message_of(wire.IsNnpaConversionInstalled, conversion)
        return self._ask(Operation(is_nnpa_conversion_installed=query)).boolean

    def get_nnpa_max_dim_idx_size(self) -> int:
        """Return the largest size of any dimension: zdnn_get_nnpa_max_dim_idx_size."""
        return self._ask(Operation(get_nnpa_max_dim_idx_size=wire.GetNnpaMaxDimIdxSize())).number

    def get_max_for_dim(self, dimension: int) -> int:
        """Return the largest size of dimension 1 to 4, else 0: zdnn_get_max_for_dim."""
        query = message_of(wire.GetMaxForDim, {"dimension": dimension})
        return self._ask(Operation(get_max_for_dim=query)).number

    def get_nnpa_max_tensor_size(self) -> int:
        """Return the largest size of a tensor, bytes: zdnn_get_nnpa_max_tensor_size."""
        return self._ask(Operation(get_nnpa_max_tensor_size=wire.GetNnpaMaxTensorSize())).number

    def refresh_nnpa_query_result(self) -> None:
        """Have the library query the machine anew: zdnn_refresh_nnpa_query_result."""
        operation = Operation(refresh_nnpa_query_result=wire.RefreshNnpaQueryResult())
        self._guest.submit(Call("refresh_nnpa_query_result", operation))

    def is_version_runnable(self, ver_num: int) -> bool:
        """Return True if code for a zDNN version can run here: zdnn_is_version_runnable."""
        query = message_of(wire.IsVersionRunnable, {"ver_num": ver_num})
        return self._ask(Operation(is_version_runnable=query)).boolean

    def get_max_runnable_version(self) -> int:
        """Return the highest version that can run here: zdnn_get_max_runnable_version."""
        return self._ask(Operation(get_max_runnable_version=wire.GetMaxRunnableVersion())).number
