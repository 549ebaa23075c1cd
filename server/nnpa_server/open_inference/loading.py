# SPDX-License-Identifier: Apache-2.0
"""From a model's bytes to a published network: compile, warm up, publish.

Calls of other models, and of the version that is being replaced, go on.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Guest
from nnpa_emulator.machine import MACHINES
from nnpa_network.program import Array, ModelRefused
from nnpa_network.running.results import StepFailed
from nnpa_network.shortcuts import SHORTCUTS

from nnpa_server.errors import CallRefused, from_exception, too_many_calls
from nnpa_server.open_inference import sources
from nnpa_server.open_inference.reading import run_bytes
from nnpa_server.open_inference.repository import MAX_NAME, Model, Repository, State, not_found
from nnpa_server.open_inference.sources import Options, Source

if TYPE_CHECKING:
    from nnpa_network.importing.plan import Plan
    from nnpa_network.program import Port
    from nnpa_network.running.executor import Executor

Compile: TypeAlias = Callable[[bytes, Options, int], "Plan"]
"""Makes a plan of an ONNX file, with options, of at most so many bytes; raises ModelRefused."""
_log = logging.getLogger("nnpa.models")
_MAX_LOADS = 8  # loads that may wait for their turn
_SEED = 0
_FREE_DIM = 1  # what a dim of any size is in the warm-up


class Loader:
    """Loads and unloads models of a folder, and such as requests bring; one at a time."""

    def __init__(
        self, repository: Repository, compile_model: Compile, folder: Path | None, limit: int
    ) -> None:
        self._repository = repository
        self.compile = compile_model
        self._folder = folder
        self._limit = limit
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MAX_LOADS)

    def note_folder(self) -> list[str]:
        """Enter the names of the folder into the index; return them."""
        if self._folder is None:
            return []
        names = list(sources.scan(self._folder))
        listed = {entry.name for entry in self._repository.index()}
        for name in names:
            if name not in listed:
                self._repository.note(name, State.UNAVAILABLE, "not loaded")
        return names

    def load_folder(self) -> None:
        """Load every model of the folder; failures are logged and entered into the index."""
        for name in self.note_folder():
            try:
                self.load(name, "", {})
            except CallRefused as error:
                self._repository.note(name, State.UNAVAILABLE, error.message)
                _log.warning("model %s is not loaded: %s", name, error.message)

    def load(
        self, name: str, override: str, files: Mapping[str, bytes], *, new: bool = False
    ) -> None:
        """Load a model and publish it in place of what has its name, which a `new` one may not."""
        if not self._waiting.acquire(blocking=False):
            raise too_many_calls("max_loads", _MAX_LOADS)
        try:
            with self._turn:
                if new and self._repository.versions(name):
                    text = f"{name[:MAX_NAME]!r} names a published model"
                    raise CallRefused(wire.ERROR_REASON_MODEL_EXISTS, text, model=name[:MAX_NAME])
                self._load(self._source(name, override, files))
        finally:
            self._waiting.release()

    def _source(self, name: str, override: str, files: Mapping[str, bytes]) -> Source:
        if files:
            if sources.NAME.fullmatch(name) is None:
                raise sources.bad_name(name)
            return sources.from_request(name, override, files)
        if self._folder is None:
            raise sources.no_folder(name)
        source = sources.from_folder(self._folder, name, override)
        if source is None:
            self._repository.forget(name)
            raise not_found(name, "", "the folder has no model of this name")
        return source

    def _load(self, source: Source) -> None:
        name = source.name
        self._repository.require_room(name)
        self._repository.note(name, State.LOADING)
        try:
            models = [
                self._make(source, version, contents)
                for version, contents in source.chosen().items()
            ]
            self._repository.publish(models)
        except Exception as error:
            refused = from_exception(error)
            self._repository.note(name, State.UNAVAILABLE, refused.message)
            raise
        for model in models:
            facts = "; ".join(f"{key} {value}" for key, value in model.properties.items())
            _log.info("model %s version %s is ready: %s", name, model.version, facts)

    def _make(self, source: Source, version: str, contents: Path | bytes) -> Model:
        data = sources.read(contents, self._limit, source.name)
        options = source.options
        try:
            plan = self.compile(data, options, self._limit)
            measured = {**_placement(plan), **_warm_up(plan, self._limit)}
            properties = {"machine": options.machine, **measured}
        except ModelRefused as error:
            text = f"model {source.name}: {error}"
            facts = {"node": error.node, "why": error.reason}
            raise CallRefused(wire.ERROR_REASON_MODEL_INVALID, text, **facts) from error
        return Model(source.name, version, plan, properties)

    def unload(self, name: str) -> None:
        """Withdraw a model; unknown ones are refused, unloaded ones are no error."""
        if not self._waiting.acquire(blocking=False):
            raise too_many_calls("max_loads", _MAX_LOADS)
        try:
            with self._turn:
                self._unload(name)
        finally:
            self._waiting.release()

    def _unload(self, name: str) -> None:
        if not self._repository.withdraw(name):
            names = {entry.name for entry in self._repository.index()}
            if name not in names:
                raise not_found(name)


def _placement(plan: "Plan") -> dict[str, str]:
    """Return how many nodes run on each device, with free dims 1."""
    program = _executor(plan).program
    devices = [node.device for node in program.nodes]
    counts = {device: devices.count(device) for device in ("accelerator", "host", "folded")}
    facts = {f"nodes_{device}": str(count) for device, count in counts.items()}
    functions = sorted({name for node in program.nodes for name in node.functions})
    return {**facts, "functions": ", ".join(functions)}


def _executor(plan: "Plan") -> "Executor":
    return plan.executor({port.name: _shape(port) for port in plan.inputs})


def _shape(port: "Port") -> tuple[int, ...]:
    return tuple(_FREE_DIM if dim < 0 else dim for dim in port.shape)


def _warm_up(plan: "Plan", most: int) -> dict[str, str]:
    """Run once on random numbers, so that kernels are there before a client needs them.

    A model may not take them, where inputs are indices: that is recorded, and no obstacle.
    """
    size = run_bytes(_executor(plan).program)
    if size > most:
        return {"warmup": f"left out: it takes {size} bytes, a run may have {most}"}
    rng = np.random.default_rng(_SEED)
    feeds = {port.name: _sample(rng, port) for port in plan.inputs}
    began = time.perf_counter()
    try:
        result = _executor(plan).run(feeds)
    except StepFailed as error:
        return {"warmup": f"failed on random inputs: {error}"}
    elapsed = 1000 * (time.perf_counter() - began)
    events = f"{len(result.violations)} range violations"
    return {"warmup": f"random inputs, seed {_SEED}: {elapsed:.1f} ms, {events}"}


def _sample(rng: np.random.Generator, port: "Port") -> Array:
    """Return numbers around 0 for floats, 0 and 1 for integers and truths, letters for text."""
    shape = _shape(port)
    if port.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(port.dtype)
    if port.dtype.kind in "USO":
        return np.full(shape, "a", object)
    return rng.standard_normal(shape, np.float32).astype(port.dtype)


def compile_onnx(
    data: bytes, options: Options, limit: int, *, shortcuts: frozenset[str] = SHORTCUTS
) -> "Plan":
    """Compile an ONNX file; needs the packages of the extra `onnx`."""
    try:
        from nnpa_network.importing.onnx_import import ImportOptions
        from nnpa_network.importing.onnx_plan import OnnxPlan
    except ImportError as error:
        text = "this server was installed without the packages for ONNX: pip install 'nnpa[onnx]'"
        raise CallRefused(wire.ERROR_REASON_EXTENSION_NOT_OFFERED, text, field="onnx") from error
    chosen = ImportOptions(
        strict=options.strict,
        saturate=options.saturate,
        offload_integer=options.offload_integer,
        max_bytes=limit,
        shortcuts=shortcuts,
    )
    return OnnxPlan(data, Guest(MACHINES[options.machine]), chosen)
