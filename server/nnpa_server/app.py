# SPDX-License-Identifier: Apache-2.0
"""The whole server: its services, listeners, health, reflection, and its drain."""

import gc
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from nnpa.zdnn.v1.trace_pb2_grpc import add_TraceServiceServicer_to_server
from nnpa_emulator import widened
from nnpa_emulator.kernels import use_reference
from nnpa_emulator.kernels.jit import compile_by

from nnpa_server import instruction, mli, network, open_inference
from nnpa_server.accelerator import (
    SERVICE,
    TRACE_SERVICE,
    AcceleratorService,
    TraceService,
    add_to,
    conversation_of,
)
from nnpa_server.accelerator.messages import SERVER_VERSION
from nnpa_server.config import Config, kernel_folder, kernels_are_cached
from nnpa_server.errors import CallRefused
from nnpa_server.instruction import InstructionService
from nnpa_server.logs import flush
from nnpa_server.open_inference.repository import Repository
from nnpa_server.open_inference.saved_models import SavedModels, StateInvalid
from nnpa_server.rpc import core_log
from nnpa_server.rpc.admission import AdmittingPool, MessageWaits
from nnpa_server.rpc.budget import CALL_BYTES, Budget, UnderWay
from nnpa_server.rpc.callers import name_of
from nnpa_server.rpc.interceptor import Interceptor
from nnpa_server.rpc.lazy import Lazy
from nnpa_server.rpc.listening import FIRST_WINDOW, CannotListen, listen, make_way, server_options
from nnpa_server.rpc.methods import Conversation
from nnpa_server.rpc.newcomers import Newcomers
from nnpa_server.rpc.public_calls import MAX_MESSAGE, PublicCalls
from nnpa_server.rpc.readiness import Readiness
from nnpa_server.rpc.reading import Drain
from nnpa_server.rpc.signals import Signals, end_in_time, end_now, wait_for_quiet
from nnpa_server.rpc.sockets import find_lost_hosts
from nnpa_server.rpc.unix_frames import SUFFIX, PlainListener
from nnpa_server.sandbox.confinement import NotConfined
from nnpa_server.sessions.cancellation import Metadata
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.shared_objects import ObjectAccess, remove_orphans
from nnpa_server.sessions.spans import Spans, TelemetryMissing
from nnpa_server.sessions.store import Store
from nnpa_server.sessions.tokens import Tokens, TokensInvalid
from nnpa_server.tuning import process
from nnpa_server.tuning.background import BackgroundCompiler

if TYPE_CHECKING:
    from nnpa_page import Endpoint

    from nnpa_server.open_inference.composition import Models
    from nnpa_server.page import SessionPage

_log = logging.getLogger("nnpa.server")
_SERVICES = (SERVICE, TRACE_SERVICE, instruction.SERVICE, mli.SERVICE, network.SERVICE)
_REFLECTED = (*_SERVICES, open_inference.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
_GRACE = 0.3  # seconds that calls refused or cut off while draining have for their last words
_WAITING_BYTES = 256 << 20  # of calls that wait for a thread: one connection's have room in half
_MIN_WAIT = 1.0  # seconds that the message of a call has, however many calls wait for theirs
_END_TIMEOUT = 0.1  # seconds beyond the grace of calls until gRPC has ended


class Server:
    """One server process: `start`, then `drain`."""

    def __init__(self, config: Config, compiler: BackgroundCompiler | None = None) -> None:
        self.config, limits = config, config.limits
        self.spans = Spans(SERVER_VERSION) if config.telemetry else None
        self.metrics = Metrics(self.spans) if config.metrics or config.telemetry else None
        calls = config.max_session_calls
        self.store = Store(
            limits, calls, process.give_back, self.metrics, config.quota, remove_orphans
        )
        self.tokens = None if config.tokens is None else Tokens(config.tokens)
        self.newcomers = Newcomers(config.max_accepted)
        timeout = config.message_timeout
        self.under_way = UnderWay(
            limits.max_bytes_under_way, limits.max_message, timeout, process.give_back
        )
        count_waiting = self.under_way.budget.count_waiting
        self.interceptor = Interceptor(
            config.max_streams,
            config.max_conversations,
            limits.idle_timeout,
            self.tokens,
            self.metrics,
            limits.max_message,
            0.0 if config.access_log else config.slow,
            MessageWaits(config.workers, _MIN_WAIT, timeout, process.give_back, count_waiting),
            self.under_way,
            PublicCalls(timeout, process.give_back),
            self.newcomers.let_in,
            self.spans,
        )
        self.readiness = Readiness(_SERVICES, open_inference.SERVICE)
        self._health_server: grpc.Server | None = None
        self._pool = AdmittingPool(
            config.max_threads,
            "call",
            Budget(_WAITING_BYTES),
            FIRST_WINDOW + CALL_BYTES,
            None if self.tokens is None else partial(_name_caller, self.tokens),
            config.max_conversations,
        )
        self._grpc = grpc.server(
            self._pool, interceptors=[self.interceptor], options=server_options(config)
        )
        objects = ObjectAccess.of(config)
        self.accelerator = AcceleratorService(
            self.store, objects, config.allow_faults, shortcuts=config.shortcuts
        )
        add_to(self._grpc, self.accelerator)
        instructions = InstructionService(self.store, objects is not None)
        instruction.add_to(self._grpc, instructions)
        self.traces = self.accelerator.traces
        add_TraceServiceServicer_to_server(TraceService(self.traces), self._grpc)
        self.mli = mli.add_to(self._grpc, limits, calls)
        self.listening: list[tuple[str, str]] = []  # kinds and addresses, for standard output
        self._endpoints: list[Endpoint | SessionPage] = []
        self.is_draining = False
        self.repository = Repository(config.max_models, self.store.return_memory)
        state = config.state
        self.saved = None if state is None else SavedModels(state, config.max_state_bytes)
        self.pools = network.make_pools(
            config.sandbox, config.shortcuts, limits.all_bytes, compiler
        )
        self.models = Lazy(self._make_models)
        open_inference.add_to(self._grpc, lambda: self.models.get().service)
        conversations = {
            f"/{SERVICE}/ExecuteStream": conversation_of(self.accelerator),
            instruction.STREAM: instruction.conversation_of(instructions),
            network.INFER: self._offer_networks(),
        }
        self.plain = PlainListener(
            self.interceptor.around_conversations(conversations),
            config.max_plain_sockets,
            limits.max_message,
            limits.idle_timeout,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self.readiness.health, self._grpc)
        if config.offers_reflection:
            reflection.enable_server_reflection(_REFLECTED, self._grpc)

    def _make_models(self) -> "Models":
        from nnpa_server.open_inference.composition import Models  # imports the network runtime

        pools, shortcuts = self.pools, self.config.shortcuts
        return Models(
            self.config,
            self.repository,
            self.metrics,
            self.readiness.is_ready,
            self.saved,
            network.compile_in(pools, shortcuts),
            network.share_in(pools),
        )

    def _offer_networks(self) -> Conversation:
        return network.add_to(
            self._grpc,
            self.store,
            self.repository,
            lambda: None if self.config.no_model_control else self.models.get().loader,
            self.config.shortcuts,
            self.pools,
        )

    @property
    def _has_models(self) -> bool:
        """Whether there are models to load at the start."""
        return self.config.models is not None or bool(self.saved and self.saved.names())

    def load_models(self) -> None:
        """Load the operator's and the saved models, then set the state to ready.

        If loading cannot begin, the server stays unready. A model that fails is logged.
        """
        try:
            if self._has_models:
                self.models.get().loader.load_folder()
                self.models.get().loader.load_saved()
        except Exception:
            _log.exception("not ready: the models of --models and --state cannot be loaded")
            return
        self.readiness.be_ready()
        if self._has_models:
            _log.info("ready: %s", self.repository.summary())

    def start(self) -> tuple[str, ...]:
        """Listen and serve; return the addresses of --listen with their actual ports."""
        addresses = tuple(
            listen(self._grpc, address, self.config) for address in self.config.listen
        )
        self._listen_plainly(
            [Path(address[5:]) for address in addresses if address.startswith("unix:")]
        )
        self.listening += [("listening", address) for address in addresses]
        if self.config.health_listen:
            self.listening.append(("health", self._listen_for_health()))
        served = [address for _kind, address in self.listening]
        self.newcomers.watch(*served)
        find_lost_hosts(served)
        self._serve_over_http()
        if "lazy-services" not in self.config.shortcuts:
            self._construct_services()
        self._grpc.start()
        self.readiness.listen()
        if not self._has_models:
            self.load_models()
        else:
            threading.Thread(target=self.load_models, name="models", daemon=True).start()
        return addresses

    def _construct_services(self) -> None:
        """Construct the services that the first call constructs otherwise."""
        for construct in (self.models.get, self.mli.get):
            try:
                construct()
            except (ImportError, CallRefused) as error:
                _log.info("a service is not installed: %s", error)

    def _listen_plainly(self, sockets: Sequence[Path]) -> None:
        """Open a plain socket beside each of gRPC's Unix sockets.

        If one of them cannot be opened, log why, and tell clients of none.
        """
        for path in sockets:
            beside = path.with_name(path.name + SUFFIX)
            try:
                make_way(f"unix:{beside}")
                self.plain.start(beside)
            except (OSError, CannotListen) as error:
                _log.info("no plain socket beside %s: %s", path, error)
                return
        self.accelerator.plain_suffix = self.config.socket_suffix + SUFFIX

    def _serve_over_http(self) -> None:
        """Open the endpoints of metrics and page, imported only if their flags are set."""
        if self.metrics is not None and self.config.metrics:
            from nnpa_server.rpc.prometheus import Collector, expose

            exposition = expose(self.config, Collector(self.metrics, self.store))
            self._endpoints.append(exposition)
            if self.config.quota:  # one of several processes, whose parent asks for it
                self.listening.append(("metrics", exposition.address))
        if self.config.page:
            from nnpa_server.page import SessionPage

            page = SessionPage(self.config, self.store, self.tokens)
            self._endpoints.append(page)
            self.listening.append(("page", page.url))

    def _listen_for_health(self) -> str:
        """Open the listener for health, with connections, threads and bounds of its own."""
        calls = PublicCalls(self.config.message_timeout)
        most = ("grpc.max_receive_message_length", MAX_MESSAGE)
        options = (*server_options(self.config)[1:], most)
        server = self._health_server = grpc.server(
            calls.pool, interceptors=[calls], options=options
        )
        health_pb2_grpc.add_HealthServicer_to_server(self.readiness.health, server)
        bound = listen(server, self.config.health_listen, self.config)
        server.start()
        return bound

    def reload_tokens(self) -> None:
        """Read the file of tokens again; keep the old tokens if it is invalid."""
        if self.tokens is None:
            return
        try:
            self.tokens.reload()
            _log.info("%d tokens are known", len(self.tokens))
        except TokensInvalid as error:
            _log.error("tokens stay as they were: %s", error)

    def refuse_calls(self) -> None:
        """Refuse new calls from now on, and publish the drain by health. May be repeated."""
        if self.is_draining:
            return
        self.is_draining = True
        self.interceptor.refuse_calls()
        _log.info("draining, for at most %g s", self.config.drain_timeout)
        self.readiness.drain()

    def drain(self) -> bool:
        """Refuse new calls, wait for running ones, and end; return True if all of them finished.

        Open sessions are logged and freed.
        """
        self.refuse_calls()
        until = time.monotonic() + self.config.drain_timeout
        finished = self.interceptor.wait_for_calls(self.config.drain_timeout)
        self.interceptor.hang_up()
        wait_for_quiet(self.interceptor.last_busy, until)
        self.traces.close()
        if self.pools is not None:
            self.pools.close()
        self.store.end_holds(Drain.refusal())
        stopped = self._grpc.stop(_GRACE)
        self.plain.stop(_GRACE)
        stopped.wait(_GRACE + _END_TIMEOUT)
        if self._health_server is not None:
            self._health_server.stop(0)
        self.interceptor.close()
        self.newcomers.close()
        _log.info("left in the store: %s", self.store.counts())
        self.store.close()
        if (models := self.models.peek()) is not None and models.regions is not None:
            models.regions.close()
        if self.saved is not None:
            self.saved.close()
        for endpoint in self._endpoints:
            endpoint.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self.spans is not None:
            self.spans.close()
        return finished


def _name_caller(tokens: Tokens, metadata: Metadata, peer: str) -> str | None:
    """Return the name of a call's caller, or None if the call shows no valid token."""
    try:
        return name_of(tokens.find(metadata).name, peer)
    except CallRefused:
        return None


def _choose_kernels(shortcuts: frozenset[str]) -> BackgroundCompiler | None:
    """Set how kernels compute: by references, by references until compiled, or compiled."""
    if "compiled-kernels" not in shortcuts:
        use_reference()
        return None
    if "warm-up" not in shortcuts:
        return None
    compiler = BackgroundCompiler(kernel_folder(), has_kernels=kernels_are_cached())
    compile_by(compiler)
    return compiler


def serve(config: Config) -> int:
    """Run until a signal or the parent's end; return the exit code."""
    is_tuned = "process-tuning" in config.shortcuts
    compiler = _choose_kernels(config.shortcuts)
    if "widened-operands" not in config.shortcuts:
        widened.disable()
    process.pin_blas()
    if is_tuned:
        process.tune_interpreter()
        process.tune_scheduler()
    config = replace(config, descriptors=process.raise_descriptor_limit())
    if config.max_accepted < config.max_connections:
        text = "%d connections at a time, not %d: the process may open %d files (ulimit -n)"
        _log.warning(text, config.max_accepted, config.max_connections, config.descriptors)
    reload = [signal.SIGHUP] if config.tokens is not None else []
    signals = Signals(signal.SIGTERM, signal.SIGINT, *reload)
    try:
        server = Server(config, compiler)
        server.start()
    except (CannotListen, NotConfined, StateInvalid, TelemetryMissing, TokensInvalid) as error:
        print(f"nnpa-server: {error}", file=sys.stderr)
        return 1
    if server.metrics is not None or config.json_log or core_log.may_block():
        core_log.follow(server.metrics.refused if server.metrics else lambda _reason: None)
    flush()  # readers of the lines below may read the log then
    for kind, address in server.listening:
        print(f"nnpa-server {kind} on {address}", flush=True)
    if config.exit_with_parent:
        signals.watch_parent()
    if is_tuned:
        process.tune_collector()
    else:
        gc.enable()
    while (reason := signals.wait()) == signal.SIGHUP:
        server.reload_tokens()
    signals.delay(reason, config.drain_delay, server.readiness.drain)
    server.refuse_calls()
    end_in_time(signals, reason, config.drain_timeout, server.interceptor.reports.log.write)
    finished = server.drain()
    _log.info("ended, %s; %s", "all calls finished" if finished else "calls were cut off",
              server.interceptor.reports.summary())  # fmt: skip
    if not finished:
        end_now()
    return 0
