# SPDX-License-Identifier: Apache-2.0
"""Tasks on a Ray cluster that runs already and that its users trust.

The initial state of workers travels by value, compiled kernels as Ray's working directory; workers
read the files of their node, under the same path. A lost worker or node counts as one death of its
task, as in the local pool.
"""

import os
import re
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Generic, Self, TypeVar
from uuid import uuid4

from nnpa_server.config import kernel_cache, kernel_folder, leave_out_telemetry
from nnpa_wire.installation import pip_install

from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import Death
from nnpa_tools.evaluation.tuning import tune

_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>[^\s/:]+|\[[\da-fA-F:]+\]):(?P<port>\d{1,5})")
_CONNECT_SECONDS, _ANSWER_SECONDS, _LOOK_SECONDS = 10.0, 60.0, 30.0
_MAX_PORT = 65535
_NEEDS_RAY = pip_install("ray")
Answer = TypeVar("Answer")
Worker = Callable[[Any], Answer]
"""A function that answers to pieces of work; a process of a node keeps it."""


class ClusterError(ValueError):
    """The cluster cannot be used; the text says why."""


def node_error(error: object, advice: str) -> ClusterError:
    """Return the error of a worker that cannot work on its node; it names the node."""
    return ClusterError(f"node {socket.gethostname()}: {error}: {advice}")


@dataclass(frozen=True, slots=True)
class Shipment:
    """The initial state of a worker in the cluster's store; `folder` is for relative paths."""

    key: str
    reference: Any = field(compare=False, repr=False)
    folder: str = field(compare=False)


class RayCluster(Generic[Answer]):
    """Workers of a Ray cluster, created by `begin`: `jobs` parallel tasks, or two for each CPU.

    `piece` returns the task for rows. Raises `ClusterError` without Ray, and for an address where
    no cluster with a CPU answers.
    """

    def __init__(
        self,
        address: str,
        jobs: int | None,
        begin: Callable[[], Worker[Answer]],
        piece: Callable[[Rows], Any],
    ) -> None:
        self._address, self._ray = address, _connected(address)
        self._places = jobs or 2 * self._cores()
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(work)
        self._running: dict[Any, Rows] = {}
        self._piece = piece
        self._shipment = Shipment(uuid4().hex, self._ray.put(begin), str(Path.cwd()))
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        self._kept.enter_context(redirect_stdout(StringIO()))  # Ray prints that workers died
        self._kept.callback(self._ray.shutdown)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._kept.close()

    @property
    def places(self) -> int:
        """The number of jobs, or two for each CPU, so that no CPU waits for its next task."""
        return self._places

    def submit(self, rows: Rows) -> None:
        """Send the task for rows to a worker."""
        self._running[self._task.remote(self._shipment, self._piece(rows))] = rows

    def next(self) -> tuple[Rows, Answer | Death]:
        """Wait for an answer; raise a worker's error, or `ClusterError` if no worker can start."""
        errors: Any = import_module("ray.exceptions")
        reference = self._finished()
        rows = self._running.pop(reference)
        try:
            answer: Answer = self._ray.get(reference)
        except errors.RuntimeEnvSetupError as error:
            text = f"a node cannot take over compiled kernels: {_first_line(error)}"
            raise ClusterError(f"--ray {self._address}: {text}") from error
        except errors.RayTaskError as error:
            raise _cause(error) from error
        except errors.RayError as error:
            return rows, Death(type(error).__name__)
        return rows, answer

    def _finished(self) -> Any:
        """Return a task that has ended; raise `ClusterError` when no node with a CPU is left."""
        while True:
            done, _running = self._ray.wait(list(self._running), timeout=_LOOK_SECONDS)
            if done:
                return done[0]
            self._cores()

    def _cores(self) -> int:
        cores = int(self._ray.cluster_resources().get("CPU", 0))
        if not cores:
            raise ClusterError(f"--ray {self._address}: the cluster has no CPU for tasks")
        return cores


def runtime_environment() -> Mapping[str, Any]:
    """Return Ray's `runtime_env` that gives workers the compiled kernels of this machine.

    Numba uses a kernel that was compiled from the same sources, for the same processor, by the same
    versions; otherwise it compiles it again.
    """
    kernel_cache()
    kernels, switches = kernel_folder(), {"ORT_DISABLE_TELEMETRY": "1"}
    if kernels is None or not any(kernels.glob("*/*.nbi")):
        return {"env_vars": switches}
    place = {"NUMBA_CACHE_DIR": "."}  # of the working directory, where workers begin
    return {"env_vars": {**switches, **place}, "working_dir": str(kernels)}


def _connected(address: str) -> Any:
    """Return Ray, connected to a cluster."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or not 0 < int(parts["port"]) <= _MAX_PORT:
        expected = f"host:port or ray://host:port, a port of 1 to {_MAX_PORT}"
        raise ClusterError(f"--ray {address!r}: expected {expected}")
    leave_out_telemetry()
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as error:
        raise ClusterError(f"--ray needs Ray: {_NEEDS_RAY}") from error
    try:
        listener = parts["host"].strip("[]"), int(parts["port"])
        socket.create_connection(listener, _CONNECT_SECONDS).close()
        if parts["client"] is None:
            _require_cluster(address)
        environment = runtime_environment()
        with warnings.catch_warnings(action="ignore"):  # what fails is said once, below
            ray.init(address, log_to_driver=False, logging_level="ERROR", runtime_env=environment)
    except (OSError, RuntimeError, ValueError) as error:
        text = f"no Ray cluster can be used there: {_first_line(error)}"
        raise ClusterError(f"--ray {address}: {text}") from error
    return ray


def _require_cluster(address: str) -> None:
    """Check the cluster by Ray's own health check, as a failing connection takes minutes."""
    check = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(check, capture_output=True, check=False, timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise ConnectionError(f"no answer in {_ANSWER_SECONDS:.0f} s") from error
    if answer.returncode:
        raise ConnectionError("what listens there is no head node of Ray")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _cause(error: Any) -> Exception:
    """Return the error of a task, or an error that names the package a node lacks."""
    if missing := re.search(r"No module named '([\w.]+)", str(error)):
        text = f"a node of the cluster lacks {missing[1]}: {_NEEDS_RAY} on every node"
        return ClusterError(f"{text}, of the same version")
    cause: object = error.cause
    return cause if isinstance(cause, Exception) else RuntimeError(str(error))


def work(shipment: Shipment, piece: Any) -> Any:
    """Do a piece of work in a worker, which keeps the state of its shipment."""
    return _begun(shipment)(piece)


@lru_cache(maxsize=1)
def _begun(shipment: Shipment) -> Worker[Any]:
    ray: Any = import_module("ray")
    begin: Callable[[], Worker[Any]] = ray.get(shipment.reference)
    tune()
    if Path(shipment.folder).is_dir():
        os.chdir(shipment.folder)
    return begin()
