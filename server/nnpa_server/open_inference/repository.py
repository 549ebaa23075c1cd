# SPDX-License-Identifier: Apache-2.0
"""Published models by name and version, with their states.

A version that is being replaced serves until the new one is ready.
Source of the states: Triton, "Model Repository Extension".
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused

if TYPE_CHECKING:
    from nnpa_network.importing.plan import (
        Plan,  # its modules import onnx, which not every server has
    )
    from nnpa_network.program import Port
    from nnpa_network.running.executor import ProgramRunner

MAX_NAME = 256
MAX_DROPPED = 16
"""The number of dropped programs of a plan after which the log has a line."""
_log = logging.getLogger("nnpa.models")


def executor_of(plan: "Plan", shapes: Mapping[str, tuple[int, ...]]) -> "ProgramRunner":
    """Return the executor for inputs of these shapes; raise ModelRefused, CallRefused.

    Log a warning if the plan drops programs again and again.
    """
    before = plan.dropped
    executor = plan.executor(shapes)
    if plan.dropped // MAX_DROPPED > before // MAX_DROPPED:
        text = (
            "model %r: %d programs were thrown away for other shapes of its inputs, and are "
            "compiled anew when those come again: pad free dims to few sizes"
        )
        _log.warning(text, plan.name[:MAX_NAME], plan.dropped)
    return executor


class State(StrEnum):
    """The state of a model in the index."""

    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"


class Statistics:
    """The statistics of a version's requests, in the protocol's message."""

    def __init__(self) -> None:
        self._all = pb.ModelStatistics()
        self._batches: dict[int, pb.InferBatchStatistics] = {}
        self._lock = threading.Lock()

    def succeeded(self, batch: int, began: int, infer: int, output: int, ended: int) -> None:
        """Count a request of `batch` elements, by the times of its parts in nanoseconds."""
        with self._lock:
            if batch not in self._batches and len(self._batches) < _MAX_BATCHES:
                self._batches[batch] = self._all.batch_stats.add(batch_size=batch)
            stats = self._all.inference_stats
            _add(stats.success, ended - began)
            _add(stats.queue, 0)
            counted: list[pb.InferStatistics | pb.InferBatchStatistics] = [stats]
            if batch in self._batches:
                counted.append(self._batches[batch])
            for durations in counted:
                _add(durations.compute_input, infer - began)
                _add(durations.compute_infer, output - infer)
                _add(durations.compute_output, ended - output)
            self._all.inference_count += batch
            self._all.execution_count += 1
            self._all.last_inference = round(time.time() * 1000)

    def failed(self, ns: int) -> None:
        """Count a request that ended with an error."""
        with self._lock:
            _add(self._all.inference_stats.fail, ns)

    def copy_to(self, message: pb.ModelStatistics) -> None:
        """Copy the statistics to a message, with batches in the order of their sizes."""
        with self._lock:
            message.MergeFrom(self._all)
        for name in _DURATIONS:  # set, even if 0
            getattr(message.inference_stats, name).SetInParent()
        message.batch_stats.sort(key=lambda stats: stats.batch_size)


_MAX_BATCHES = 128  # batch sizes with a statistic of their own
_DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


def _add(duration: pb.StatisticDuration, ns: int) -> None:
    duration.count += 1
    duration.ns += ns


@dataclass(slots=True, eq=False)
class Model:
    """One version of a network; `properties` are part of its configuration.

    A published version that is UNAVAILABLE takes requests, and becomes READY when one succeeds.
    `inputs` are the plan's inputs with the sizes in the configuration; -1 is a free dim.
    """

    name: str
    version: str
    plan: "Plan"
    inputs: "tuple[Port, ...]"
    properties: Mapping[str, str]
    owner: str
    state: State
    reason: str
    statistics: Statistics = field(default_factory=Statistics)


Entry: TypeAlias = pb.RepositoryIndexResponse.ModelIndex
"""A row of the index."""


class Repository:
    """The published models of a server, at most `max_models` versions."""

    def __init__(self, max_models: int, freed: Callable[[], object] = int) -> None:
        self._max_models, self._freed = max_models, freed
        self._lock = threading.RLock()
        self._models: dict[str, dict[str, Model]] = {}
        self._absent: dict[str, Entry] = {}

    def publish(self, models: Sequence[Model]) -> None:
        """Publish versions of one network in place of its present versions; all or none."""
        name, offered = models[0].name, {model.version: model for model in models}
        with self._lock:
            before = self._models.get(name, {})
            held = sum(map(len, self._models.values())) - len(before)
            if held + len(offered) > self._max_models:
                raise too_many(self._max_models)
            self._models[name] = offered
            self._absent.pop(name, None)
        _end(before)
        self._freed()

    def note_success(self, model: Model) -> None:
        """Make a published version ready, after a request to it succeeded."""
        with self._lock:
            is_offered = self._models.get(model.name, {}).get(model.version) is model
            if is_offered and model.state != State.READY:
                model.state, model.reason = State.READY, ""
                _log.info("model %s version %s is ready: it ran", model.name, model.version)

    def require_room(self, name: str, versions: int, owner: str, quota: int | None = None) -> None:
        """Raise CallRefused for more versions than the server or the owner's `quota` allows."""
        with self._lock:
            beside = [
                model
                for held_name, held in self._models.items()
                if held_name != name
                for model in held.values()
            ]
        if len(beside) + versions > self._max_models:
            raise too_many(self._max_models)
        own = sum(model.owner == owner for model in beside)
        if quota is not None and own + versions > quota:
            raise too_many(quota)

    def owner(self, name: str) -> str | None:
        """Return the owner of a published network, or None if it is not published."""
        with self._lock:
            versions = self._models.get(name)
        return None if versions is None else next(iter(versions.values())).owner

    def withdraw(self, name: str) -> bool:
        """Withdraw a network, whose runs finish; return False if it was not published."""
        with self._lock:
            before = self._models.pop(name, None)
            if before is None:
                return False
            self.note(name, State.UNAVAILABLE, "unloaded")
        _end(before)
        self._freed()
        return True

    def note(self, name: str, state: State, reason: str = "") -> None:
        """Record the state of a network that is not published."""
        with self._lock:
            if name in self._models:
                return
            if len(self._absent) >= _MAX_ABSENT and name not in self._absent:
                del self._absent[next(iter(self._absent))]
            self._absent[name] = Entry(name=name, state=state, reason=reason)

    def forget(self, name: str) -> None:
        """Drop the record of a network that is not published."""
        with self._lock:
            self._absent.pop(name, None)

    def find(self, name: str, version: str = "") -> Model:
        """Return a published version; an empty `version` means the newest."""
        with self._lock:
            versions = self._models.get(name)
            absent = self._absent.get(name)
        if versions is None:
            raise _unavailable(absent) if absent else not_found(name)
        model = versions.get(version or max(versions, key=int))
        if model is None:
            raise not_found(name, version, f"its versions are {', '.join(sorted(versions))}")
        return model

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the published versions of a network, the oldest first."""
        with self._lock:
            versions = self._models.get(name, {})
        return tuple(sorted(versions, key=int))

    def models(self) -> list[Model]:
        """Return every published version, ordered by name and version."""
        with self._lock:
            names = sorted(self._models)
            return [
                self._models[name][version]
                for name in names
                for version in sorted(self._models[name])
            ]

    def index(self) -> list[Entry]:
        """Return the entries of published and recorded models, ordered by name and version."""
        with self._lock:
            absent = list(self._absent.values())
        offered = [
            Entry(name=model.name, version=model.version, state=model.state, reason=model.reason)
            for model in self.models()
        ]
        return sorted(offered + absent, key=lambda entry: (entry.name, entry.version))

    def summary(self) -> str:
        """Return the number of ready models and of all models in the index, as text."""
        index = self.index()
        ready = {entry.name for entry in index if entry.state == State.READY}
        return f"{len(ready)} of {len({entry.name for entry in index})} models"


_MAX_ABSENT = 1024  # names remembered of networks that are not offered


def _end(models: Mapping[str, Model]) -> None:
    for model in models.values():
        model.state = State.UNAVAILABLE
        model.plan.retire()


def _unavailable(entry: Entry) -> CallRefused:
    why = f", {entry.reason}" if entry.reason else ""
    return CallRefused(
        wire.ERROR_REASON_MODEL_UNAVAILABLE,
        f"model {entry.name} is {entry.state.lower()}{why}",
        model=entry.name,
        state=entry.state,
        why=entry.reason,
    )


def not_found(name: str, version: str = "", hint: str = "") -> CallRefused:
    """Return the error for a model or version that the server does not have."""
    which = f"model {name[:MAX_NAME]}" + (f" version {version[:64]}" if version else "")
    return CallRefused(
        wire.ERROR_REASON_MODEL_NOT_FOUND,
        f"{which} does not exist{f': {hint}' if hint else ''}",
        model=name[:MAX_NAME],
        version=version[:64],
    )


def too_many(limit: int) -> CallRefused:
    """Return the error for one more model than the server or owner may have."""
    return CallRefused(
        wire.ERROR_REASON_MODEL_QUOTA_EXCEEDED,
        f"max_models is {limit}, and {limit} are loaded: unload some",
        field="max_models",
        value=limit + 1,
        limit=limit,
    )
