# SPDX-License-Identifier: Apache-2.0
"""The networks of one session: they run on its machine, count in its quota and end with it."""

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from nnpa.network.v1 import network_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Guest
from nnpa_network.client_api.activations import Activations
from nnpa_network.client_api.creation import Provenance
from nnpa_network.client_api.errors import AiError
from nnpa_network.client_api.instances import Instances
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.report import Version
from nnpa_network.importing.plan import Plan
from nnpa_network.program import AcceleratorStep, Program
from nnpa_network.running.results import Violation

from nnpa_server.accelerator.messages import SERVER_VERSION
from nnpa_server.errors import CallRefused, invalid
from nnpa_server.network.memory import NetworkMemory
from nnpa_server.network.messages import read_caller, read_options
from nnpa_server.network.pools import Pools
from nnpa_server.network.workers import Workers, make_workers
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.metrics import model_run
from nnpa_server.sessions.store import Session

MAX_NETWORKS = 64  # of a session; source: nnpa/network/v1/network.proto
MAX_SHARED_NAME = 64
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HANDLE_BYTES = 12


class Hosted:
    """The networks of a session, and the activations that several networks share."""

    def __init__(self, session: Session) -> None:
        self.memory = NetworkMemory(session)
        self.instances = Instances(
            MAX_NETWORKS, lambda: f"networks/{secrets.token_urlsafe(_HANDLE_BYTES)}"
        )
        self._session = session
        self._shared: dict[str, Activations] = {}
        self._workers: Workers | None = None

    def close(self) -> None:
        """End the workers and drop all networks, at the end of the session."""
        if self._workers is not None:
            self._workers.close()
        self.instances.clear()
        self._shared.clear()

    def workers(self, pools: Pools | None) -> Workers:
        """Return the session's workers, whose jobs may take the rest of its quota."""
        if self._workers is None:
            memory = self.memory
            self._workers = make_workers(pools, memory.require, memory.room, memory.allocate)
        return self._workers

    def create(
        self,
        header: pb.CreateNetworkHeader,
        signature: str,
        make: Callable[[Guest], Plan],
        context: Context,
    ) -> str:
        """Create a network and return its handle; raise `NetworkRefused`."""
        options, caller = read_options(header.options), read_caller(header)
        provenance = provenance_of(read_c_name(header))
        with self.memory.running(context):
            before = self.instances.all()
            handle = self.instances.create(
                signature, lambda: make(self.memory.guest()), provenance, options, caller
            )
            if handle not in before:
                try:
                    self.count(handle)
                except CallRefused:
                    self.instances.destroy(handle)
                    raise
            return handle

    def count(self, handle: str) -> None:
        """Count the bytes that a network holds now, with the session held."""
        network = self.instances.find(handle)
        if network is not None:
            self.memory.keep(handle, network.nbytes)

    def find(self, handle: str) -> Network:
        """Return a network; raise CallRefused for an unknown handle."""
        network = self.instances.find(handle)
        if network is None:
            text = "the session has no network of this handle: it was destroyed, or never created"
            reason, value = wire.ERROR_REASON_NETWORK_NOT_FOUND, handle[:64]
            raise CallRefused(reason, text, field="network", network=value)
        return network

    def destroy(self, handle: str) -> AiError:
        """Destroy a network, and end the workers after the last one; return the error, if any."""
        error = self.instances.destroy(handle)
        if not error:
            with self._session.lock:
                if not self._session.closed:
                    self.memory.keep(handle, 0)
            if self._workers is not None and not self.instances.all():
                self._workers.end_idle()
        return error

    def note(self, calls: Mapping[str, int], violations: Iterable[Violation]) -> None:
        """Count the calls and warnings of a run in the audit log and the metrics."""
        session = self._session
        session.trail.operations += sum(calls.values())
        if session.metrics is not None:
            warned = Counter((violation.verb, violation.status) for violation in violations)
            session.metrics.network(session.trail.machine, calls, warned)

    def model_run(self, network: Network) -> AbstractContextManager[None]:
        """Return a context that makes a span of a network's run, where there are spans."""
        session = self._session
        return model_run(session.metrics, network.provenance.c_name, session.trail.machine)

    def shared(self, name: str, size: int) -> Activations | None:
        """Return the activations shared under a name, or None for no name.

        The first use creates them with `size` bytes. The session must be held.
        """
        if not name:
            return None
        if len(name) > MAX_SHARED_NAME:
            text = f"{len(name)} characters"
            raise invalid("shared_activations", text, f"at most {MAX_SHARED_NAME}")
        if name not in self._shared:
            self.memory.keep(f"activations {name}", size)
            self._shared[name] = Activations(size)
        return self._shared[name]


def calls_of(program: Program, times: int) -> Counter[str]:
    """Return the number of calls of each zDNN function in `times` runs of a program."""
    verbs = Counter(step.verb for step in program.steps if isinstance(step, AcceleratorStep))
    return Counter({verb: count * times for verb, count in verbs.items()})


def read_c_name(header: pb.CreateNetworkHeader) -> str:
    """Return the C name of a request."""
    name = header.c_name or "network"
    if _C_NAME.fullmatch(name) is None:
        raise invalid("header.c_name", repr(name[:80]), "a C identifier of at most 64 characters")
    return name


def provenance_of(c_name: str) -> Provenance:
    """Return the provenance of a network that is compiled now, for its reports."""
    numbers = [int(number) for number in re.findall(r"\d+", SERVER_VERSION)[:3]]
    version = Version(*[*numbers, 0, 0, 0][:3])
    now = time.time()
    stamp = time.strftime("%b %e %Y %H:%M:%S", time.gmtime(now))  # as C's __DATE__ and __TIME__
    return Provenance(c_name, version, f"nnpa {SERVER_VERSION}", stamp, stamp, now)


def hosted_by(session: Session) -> Hosted:
    """Return the networks of a session, without a lock, so that it works during a run."""
    held = session.holdings.get("networks")
    if held is None:
        held = session.holdings.setdefault("networks", Hosted(session))
    session.require_open()
    assert isinstance(held, Hosted)
    return held
