# SPDX-License-Identifier: Apache-2.0
"""The server as a whole: listeners, health, reflection, and a graceful end."""

import gc
import logging
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from nnpa.zdnn.v1.trace_pb2_grpc import add_TraceServiceServicer_to_server
from nnpa_emulator import widened
from nnpa_emulator.kernels import use_reference

from nnpa_server import mli, network, open_inference
from nnpa_server.accelerator import (
    SERVICE,
    TRACE_SERVICE,
    AcceleratorService,
    TraceService,
    add_to,
    conversation_of,
)
from nnpa_server.config import OVERSIZE_BYTES, Config, is_local
from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.repository import Repository
from nnpa_server.rpc import core_log
from nnpa_server.rpc.interceptor import Interceptor
from nnpa_server.rpc.lazy import Lazy
from nnpa_server.rpc.signals import Signals
from nnpa_server.rpc.unix_frames import SUFFIX, PlainListener
from nnpa_server.sandbox.confinement import NotConfined
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.store import Store
from nnpa_server.sessions.tokens import Tokens, TokensInvalid
from nnpa_server.tuning import process, warmup

if TYPE_CHECKING:
    from nnpa_server.open_inference.listener import InferenceListener
    from nnpa_server.rpc.prometheus import Exposition

_log = logging.getLogger("nnpa.server")
_HEALTHY = (SERVICE, TRACE_SERVICE, mli.SERVICE, network.SERVICE, "")
_REFLECTED = (
    SERVICE,
    TRACE_SERVICE,
    mli.SERVICE,
    network.SERVICE,
    open_inference.SERVICE,
    health.SERVICE_NAME,
    reflection.SERVICE_NAME,
)
_GRACE = 0.5  # seconds that calls refused or cut off while draining have for their last words


class CannotListen(Exception):
    """A listener could not be opened; the text says which and why."""


class Server:
    """One server process: `start`, then `drain`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics() if config.metrics else None
        self.store = Store(config.limits, config.max_session_calls, process.give_back, self.metrics)
        self.tokens = None if config.tokens is None else Tokens(config.tokens)
        self.interceptor = Interceptor(
            config.max_streams,
            config.max_conversations,
            config.limits.idle_timeout,
            self.tokens,
            self.metrics,
            config.limits.max_message,
        )
        self.health = health.HealthServicer()
        threads = config.workers + config.max_conversations
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="call")
        self._grpc = grpc.server(
            self._pool, interceptors=[self.interceptor], options=_options(config)
        )
        self.accelerator = AcceleratorService(
            self.store,
            config.shared_memory,
            config.allow_faults,
            shortcuts=config.shortcuts,
        )
        add_to(self._grpc, self.accelerator)
        self.plain = PlainListener(
            self.interceptor.around_conversation(
                f"/{SERVICE}/ExecuteStream", conversation_of(self.accelerator)
            ),
            config.max_conversations,
            config.limits.max_message,
            config.limits.idle_timeout,
        )
        self.traces = self.accelerator.traces
        add_TraceServiceServicer_to_server(TraceService(self.traces), self._grpc)
        self.mli = mli.add_to(self._grpc, config.limits, config.max_session_calls)
        self.exposition: Exposition | None = None
        self.listener: InferenceListener | None = None
        self.inference_address = ""
        self.repository = Repository(config.max_models)
        self.pool = network.make_pool(config.sandbox)
        self._offer_models()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._grpc)
        reflection.enable_server_reflection(_REFLECTED, self._grpc)

    def _offer_models(self) -> None:
        config, self.models_ready = self.config, threading.Event()
        self.models = Lazy(
            lambda: open_inference.make_models(
                config,
                self.repository,
                self.metrics,
                self.models_ready,
                config.shortcuts,
                None if self.pool is None else network.compile_in(self.pool, config.shortcuts),
            )
        )
        handlers = open_inference.handlers_of(lambda: self.models.get().service)
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(open_inference.SERVICE, handlers),)
        )
        self._inference_handlers = handlers
        network.add_to(
            self._grpc,
            self.store,
            self.repository,
            lambda: None if config.no_model_control else self.models.get().loader,
            config.shortcuts,
            self.pool,
        )

    def load_models(self) -> None:
        """Load the models of the operator's folder, then say that the server is ready for more."""
        try:
            if self.config.models is not None:
                self.models.get().loader.load_folder()
        except Exception:
            _log.exception("the models of %s are not all loaded", self.config.models)
        self.models_ready.set()
        self.health.set(open_inference.SERVICE, health_pb2.HealthCheckResponse.SERVING)

    def start(self) -> tuple[str, ...]:
        """Listen and serve; return the addresses, with the ports that were picked."""
        addresses = tuple(self._listen(address) for address in self.config.listen)
        self._listen_plainly(
            [Path(address[5:]) for address in addresses if address.startswith("unix:")]
        )
        self._expose()
        if self.config.inference_listen:
            self.inference_address = self._listen_for_inference()
        if "lazy-services" not in self.config.shortcuts:
            self._construct_services()
        self._grpc.start()
        for name in _HEALTHY:
            self.health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if self.config.models is None:
            self.load_models()
        else:
            threading.Thread(target=self.load_models, name="models", daemon=True).start()
        return addresses

    def _construct_services(self) -> None:
        """Construct what is otherwise constructed by the first call, or left out by it."""
        for construct in (self.models.get, self.mli.get):
            try:
                construct()
            except (ImportError, CallRefused) as error:
                _log.info("a service is not installed: %s", error)

    def _listen_plainly(self, sockets: Sequence[Path]) -> None:
        """Open a plain socket beside each of gRPC's; clients use all of them or none.

        They are a help and no promise: what hinders one is logged.
        """
        for path in sockets:
            beside = path.with_name(path.name + SUFFIX)
            try:
                _make_way(f"unix:{beside}")
                self.plain.start(beside)
            except (OSError, CannotListen) as error:
                _log.info("no plain socket beside %s: %s", path, error)
                return
        self.accelerator.plain_suffix = SUFFIX

    def _expose(self) -> None:
        """Open the endpoint of the metrics; over TLS where others can reach it."""
        address = self.config.metrics
        if self.metrics is None:
            return
        from nnpa_server.rpc.prometheus import expose  # what it needs is for this flag only

        tls = None if is_local(address) else self.config.tls
        try:
            self.exposition = expose(address, self.metrics, self.store, tls)
        except OSError as error:
            text = error.strerror or "is it in use?"
            raise CannotListen(f"cannot serve metrics on {address}: {text}") from error
        scheme = "http" if tls is None else "https"
        _log.info("metrics at %s://%s/metrics", scheme, self.exposition.address)

    def _listen(self, address: str) -> str:
        def bind(credentials: grpc.ServerCredentials | None) -> int:
            if credentials is None:
                return self._grpc.add_insecure_port(address)
            return self._grpc.add_secure_port(address, credentials)

        return self._bound(address, bind)

    def _listen_for_inference(self) -> str:
        from nnpa_server.open_inference.listener import InferenceListener  # imports asyncio

        service, around = open_inference.SERVICE, self.interceptor.around
        handlers = {
            name: around(f"/{service}/{name}", handler)
            for name, handler in self._inference_handlers.items()
        }
        listener = self.listener = InferenceListener(
            handlers, self._pool, self.models.get().is_quick, _options(self.config)
        )
        address = self.config.inference_listen
        return self._bound(address, lambda credentials: listener.start(address, credentials))

    def _bound(self, address: str, bind: Callable[[grpc.ServerCredentials | None], int]) -> str:
        """Listen on an address, over TLS if it is TCP and there is a certificate."""
        _make_way(address)
        on_tls = self.config.tls is not None and not address.startswith("unix:")
        try:
            port = bind(_credentials(self.config) if on_tls else None)
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {address}: is it in use?") from error
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    def reload_tokens(self) -> None:
        """Read the file of tokens; keep the tokens of before if it cannot be used."""
        if self.tokens is None:
            return
        try:
            self.tokens.reload()
            _log.info("%d tokens are known", len(self.tokens))
        except TokensInvalid as error:
            _log.error("tokens stay as they were: %s", error)

    def drain(self) -> bool:
        """Refuse new calls, let running ones finish, end; tell whether all of them finished.

        Sessions that are still open are logged, and freed.
        """
        self.interceptor.refuse_calls()
        for name in (*_HEALTHY, open_inference.SERVICE):
            self.health.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
        _log.info("draining, for at most %g s", self.config.drain_timeout)
        finished = self.interceptor.wait_for_calls(self.config.drain_timeout)
        self.interceptor.hang_up()
        self.traces.close()
        if self.pool is not None:
            self.pool.close()
        stopped = self._grpc.stop(_GRACE)
        if self.listener is not None:
            self.listener.stop(_GRACE)
        self.plain.stop(_GRACE)
        stopped.wait()
        self.interceptor.close()
        _log.info("left in the store: %s", self.store.counts())
        self.store.close()
        models = self.models.peek()
        if models is not None and models.regions is not None:
            models.regions.close()
        if self.exposition is not None:
            self.exposition.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        return finished


def _options(config: Config) -> Sequence[tuple[str, int]]:
    # Sources: gRPC core channel arguments (grpc/impl/channel_arg_names.h).
    return (
        ("grpc.max_receive_message_length", config.limits.max_message + OVERSIZE_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    )


def _credentials(config: Config) -> grpc.ServerCredentials:
    tls = config.tls
    assert tls is not None
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], tls.client_ca, tls.client_ca is not None
    )


def _make_way(address: str) -> None:
    """Remove a socket that a dead server left, and refuse to take a live one's."""
    path = Path(address.removeprefix("unix:"))
    if not address.startswith("unix:") or not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise CannotListen(f"cannot listen on {address}: another server does")


def serve(config: Config) -> int:
    """Run until a signal or the parent's end; return the exit code."""
    is_tuned = "process-tuning" in config.shortcuts
    if "compiled-kernels" not in config.shortcuts:
        use_reference()
    if "widened-operands" not in config.shortcuts:
        widened.disable()
    process.pin_blas()
    if is_tuned:
        process.tune_malloc()
        process.tune_interpreter()
    ended = threading.Event()
    reload = [signal.SIGHUP] if config.tokens is not None else []
    signals = Signals(signal.SIGTERM, signal.SIGINT, *reload)
    try:
        server = Server(config)
        if "warm-up" in config.shortcuts:
            services = server.models.get, server.mli.get
            warmup.start(ended, server.interceptor.last_busy, services)
        addresses = server.start()
    except (CannotListen, NotConfined, TokensInvalid) as error:
        print(f"nnpa-server: {error}", file=sys.stderr)
        return 1
    if server.metrics is not None or config.json_log:
        core_log.follow(_unheard if server.metrics is None else server.metrics.refused)
    for address in addresses:
        print(f"nnpa-server listening on {address}", flush=True)
    if server.inference_address:
        print(f"nnpa-server inference on {server.inference_address}", flush=True)
    if config.exit_with_parent:
        signals.watch_parent()
    if is_tuned:
        process.tune_collector()
    else:
        gc.enable()
    while signals.wait() == signal.SIGHUP:
        server.reload_tokens()
    ended.set()
    finished = server.drain()
    _log.info("ended, %s; %s", "all calls finished" if finished else "calls were cut off",
              _summary(server.interceptor.counts))  # fmt: skip
    return 0


def _unheard(_reason: str) -> None:
    """Count nothing: there are no metrics."""


def _summary(counts: Counter[tuple[str, str]]) -> str:
    """Say how many calls ended how, for the last line of the log."""
    by_status: Counter[str] = Counter()
    for (_, status), count in counts.items():
        by_status[status] += count
    return (
        " ".join(f"{status}={count}" for status, count in sorted(by_status.items())) or "no calls"
    )
