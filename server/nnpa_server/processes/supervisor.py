# SPDX-License-Identifier: Apache-2.0
"""Run several server processes as one server: with common addresses, drain and quota.

A router, Envoy, sends the calls of a session to its process. A process that dies is restarted; only
its sessions are lost.
"""

import logging
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from nnpa_server.config import Config
from nnpa_server.processes import envoy
from nnpa_server.processes.members import Member, end, member_config, quota_socket
from nnpa_server.processes.router import Router
from nnpa_server.rpc.listening import CannotListen, require_free
from nnpa_server.rpc.signals import PARENT_ENDED, Signals
from nnpa_server.sessions.quota import QuotaCounter
from nnpa_server.tuning import process

_log = logging.getLogger("nnpa.server")
_CHECK_SECONDS = 0.5  # between two looks at processes
_OVERTIME = 1.0  # seconds beyond the drain until processes are killed


def supervise(config: Config, log_level: str, program: str) -> int:
    """Run `config.processes` servers behind Envoy at the path `program`; return the exit code."""
    process.raise_descriptor_limit()
    reload = [signal.SIGHUP] if config.tokens is not None else []
    signals = Signals(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *reload)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-")))
        quota = QuotaCounter(quota_socket(folder), config.limits.max_sessions)
        opened.callback(quota.server_close)
        try:
            configs = [member_config(config, number, folder) for number in range(config.processes)]
            listeners = _listeners(config, configs)
            members = [Member(number, own, log_level) for number, own in enumerate(configs)]
            opened.callback(_kill, members)
            if not all(member.is_ready() for member in members):
                return 1  # the process has said why
            router = Router(config, listeners, folder, program)
            opened.callback(router.stop)
            _expose(config, members, opened)
        except CannotListen as error:
            print(f"nnpa-server: {error}", file=sys.stderr)
            return 1
        _say_ready(config, router)
        if config.exit_with_parent:
            signals.watch_parent()
        _watch(signals, members, router)
        _drain(signals, members, config.drain_delay + config.drain_timeout + _OVERTIME)
        return 1 if router.has_ended else 0


def _listeners(config: Config, configs: Sequence[Config]) -> list[envoy.Listener]:
    """Return the router's listeners before the sockets of `configs`; raise CannotListen."""
    mains = [member.listen[0] for member in configs]
    listeners = [
        envoy.Listener(f"main-{index}", require_free(address), mains)
        for index, address in enumerate(config.listen)
    ]
    if config.health_listen:
        sockets = [member.health_listen for member in configs]
        address = require_free(config.health_listen)
        listeners.append(envoy.Listener("health", address, sockets, own_limit=True))
    return listeners


def _expose(config: Config, members: Sequence[Member], opened: ExitStack) -> None:
    """Open the endpoint of the metrics of all processes."""
    if not config.metrics:
        return
    from nnpa_server.processes.metrics import MembersCollector  # needed for this flag only
    from nnpa_server.rpc.prometheus import expose

    opened.callback(expose(config, MembersCollector(members)).close)


def _say_ready(config: Config, router: Router) -> None:
    """Print the lines that a single process prints."""
    ready = [("listening", f"main-{index}", text) for index, text in enumerate(config.listen)]
    ready += [("health", "health", config.health_listen)]
    for kind, name, text in ready:
        if text:
            port = router.addresses[name].rpartition(":")[2]  # which may have been picked
            address = text if text.startswith("unix:") else f"{text.rpartition(':')[0]}:{port}"
            print(f"nnpa-server {kind} on {address}", flush=True)


def _watch(signals: Signals, members: Sequence[Member], router: Router) -> int:
    """Restart processes that die until a signal asks for the end; return its number."""
    while not router.has_ended:
        number = signals.wait(_CHECK_SECONDS)
        if number == signal.SIGHUP:
            end(members, signal.SIGHUP)
        elif number not in (0, signal.SIGCHLD):
            return number
        for member in members:
            member.start_again()
    _log.error("the router has ended: so do the processes")
    return PARENT_ENDED


def _drain(signals: Signals, members: Sequence[Member], seconds: float) -> None:
    """Drain all processes; kill them at a second signal or after `seconds`."""
    _log.info("draining %d processes", len(members))
    until = time.monotonic() + seconds
    end(members)
    while any(member.process.poll() is None for member in members):
        left = until - time.monotonic()
        if left <= 0:
            _kill(members)
        if signals.wait(max(0.01, min(left, _CHECK_SECONDS))) in (signal.SIGTERM, signal.SIGINT):
            end(members)


def _kill(members: Sequence[Member]) -> None:
    """Kill the processes that still run, and wait for their end."""
    end(members, signal.SIGKILL)
    for member in members:
        member.process.wait()
