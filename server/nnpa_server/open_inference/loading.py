# SPDX-License-Identifier: Apache-2.0
"""Load models: read the file, compile it, warm it up, publish the network.

Loads run side by side. Meanwhile other models, and the version that is being replaced, serve calls.
With `--state`, a client's model is on disk before it is published.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import interruption
from nnpa_emulator.interruption import go_on
from nnpa_network.importing.plan import Plan
from nnpa_network.importing.shapes import first_names
from nnpa_network.program import ModelRefused

from nnpa_server.errors import CallCancelled, CallRefused, from_exception, invalid, too_many_calls
from nnpa_server.open_inference import sources
from nnpa_server.open_inference.changes import Change, Changes
from nnpa_server.open_inference.dims import fix_dims
from nnpa_server.open_inference.owners import OPERATOR, require_owner
from nnpa_server.open_inference.repository import MAX_NAME, Model, Repository, State, not_found
from nnpa_server.open_inference.saved_models import Damaged, SavedModels
from nnpa_server.open_inference.sources import Options, Source
from nnpa_server.open_inference.warming import warm_up
from nnpa_server.sessions import audit
from nnpa_server.sessions.tokens import caller

Compile: TypeAlias = Callable[[bytes, Options, int], Plan]
"""Compiles an ONNX file by options; a bound limits the bytes of values. Raises ModelRefused."""
Share: TypeAlias = Callable[[int], AbstractContextManager[None]]
"""Returns a context in which a number of models may be loaded by shared workers."""

_log = logging.getLogger("nnpa.models")
_MAX_LOADS = 8  # loads of clients at a time
_MAX_OWN_LOADS = 4  # of one token
SAVED_LOAD_TIMEOUT, SAVED_LOADS_TIMEOUT = 60.0, 300.0
"""Seconds that the start waits for one saved model, and for all of them."""
SAVED_LOAD_DEADLINE = 300.0
"""Seconds after which the load of a saved model is given up, if it runs in a worker."""


@dataclass(eq=False)
class Loader:
    """Loads and unloads models from a folder, from requests and from `saved`."""

    repository: Repository
    compile: Compile
    folder: Path | None
    limit: int
    saved: SavedModels | None
    share: Share

    def __post_init__(self) -> None:
        self._changes = Changes()
        self._loads = Counter[str]()  # of clients, under way, by token
        self._loads_lock = threading.Lock()

    def note_folder(self) -> list[str]:
        """Add the folder's models to the index; return their names."""
        if self.folder is None:
            return []
        names = list(sources.scan(self.folder))
        listed = {entry.name for entry in self.repository.index()}
        for name in names:
            if name not in listed:
                self.repository.note(name, State.UNAVAILABLE, "not loaded")
        return names

    def load_folder(self) -> None:
        """Load every model of the folder; log failures, and show them in the index."""
        names = self.note_folder()
        with self.share(len(names)):
            for name in names:
                self._load_at_start(name, OPERATOR, partial(self._source, name, "", {}))

    def load_saved(self) -> None:
        """Load every saved model; log failures, and show them in the index.

        A load that takes too long continues in its thread.
        """
        if not _ends_within(SAVED_LOADS_TIMEOUT, self._load_all_saved):
            text = "saved models still load after %g s: the start does not wait for them"
            _log.warning(text, SAVED_LOADS_TIMEOUT)

    def _load_all_saved(self) -> None:
        operators = self.note_folder()
        for name in [] if self.saved is None else self.saved.names():
            if name in operators:
                _log.warning("saved model %s is left out: the folder has its name", name)
                continue
            if not _ends_within(SAVED_LOAD_TIMEOUT, partial(self._load_saved, name)):
                text = "saved model %s still loads after %g s: the start does not wait for it"
                _log.warning(text, name, SAVED_LOAD_TIMEOUT)

    def _load_saved(self, name: str) -> None:
        """Load a saved model, in a thread of its own."""
        interruption.thread.check = partial(
            _require_time, name, time.monotonic() + SAVED_LOAD_DEADLINE
        )
        self._load_at_start(name, None, partial(self._saved_source, name, ""))

    def _load_at_start(self, name: str, owner: str | None, source_of: Callable[[], Source]) -> None:
        """Load a model; log its failure, which does not affect other models."""
        try:
            owner = owner or self._owner(name) or ""
            self._load(Change(name, owner), source_of, at_start=True)
        except Exception as error:
            refused = from_exception(error)
            self.repository.note(name, State.UNAVAILABLE, refused.message)
            _log.warning("model %s is not loaded: %s", name, refused.message)
            if "correlation_id" in refused.metadata:
                number = refused.metadata["correlation_id"]
                _log.error("model %s: correlation id %s", name, number, exc_info=error)

    def load(
        self,
        name: str,
        override: str,
        files: Mapping[str, bytes],
        *,
        new: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Load a model and publish it, in place of the model of this name unless it is `new`.

        Raise CallRefused, also if the caller does not own the model of this name. `check` is called
        every few milliseconds; if it raises, nothing is published.
        """
        with self._place():
            source_of = partial(self._source, name, override, files)
            interruption.thread.check = check
            try:
                self._load(Change(name, caller().name, yields=not files), source_of, is_new=new)
            finally:
                interruption.thread.check = None
        audit.model_changed("model_published", name, caller().name)

    @contextmanager
    def _place(self) -> Generator[None]:
        """Hold a place for a client's load; raise CallRefused if there is none."""
        owner = caller().name
        with self._loads_lock:
            if owner and self._loads[owner] >= _MAX_OWN_LOADS:
                raise too_many_calls("max_own_loads", _MAX_OWN_LOADS)
            if self._loads.total() >= _MAX_LOADS:
                raise too_many_calls("max_loads", _MAX_LOADS)
            self._loads[owner] += 1
        try:
            yield
        finally:
            with self._loads_lock:
                self._loads -= Counter((owner,))

    def _source(self, name: str, override: str, files: Mapping[str, bytes]) -> Source:
        if files:
            if sources.NAME.fullmatch(name) is None:
                raise invalid("model_name", repr(name[:80]), "1 to 64 of A-Z a-z 0-9 . _ -")
            return sources.from_request(name, override, files, caller().name)
        source = None
        if self.folder is not None:
            with sources.reading(name):
                source = sources.from_folder(self.folder, name, override)
        if source is None and self.saved is not None and self.saved.owner(name) is not None:
            source = self._saved_source(name, override)
        if source is None and self.folder is None:
            text = "config and file:<version>/model.onnx, for the server has no --models folder"
            raise invalid(f"model {name}", "a name only", f"with {text}")
        if source is None:
            self.repository.forget(name)
            raise not_found(name, "", "the folder has no model of this name")
        return source

    def _saved_source(self, name: str, override: str) -> Source:
        assert self.saved is not None
        try:
            return sources.from_saved(self.saved.read(name), override)
        except (Damaged, OSError) as error:
            text = f"model {name}: its file in --state is damaged: {error}"
            reason = wire.ERROR_REASON_MODEL_UNAVAILABLE
            raise CallRefused(reason, text, model=name, state=State.UNAVAILABLE) from error

    def _load(
        self,
        change: Change,
        source_of: Callable[[], Source],
        *,
        is_new: bool = False,
        at_start: bool = False,
    ) -> None:
        """Load the model that `source_of` reads; at the start, write nothing to disk."""
        name = change.name
        with self._changes.under_way(change):
            source = source_of()
            versions = source.chosen()
            self._require_free(name, len(versions), is_new)
            if self.saved is not None and source.owner != OPERATOR and not at_start:
                size = sources.to_save(source).size
                self.saved.require_room(name, size, source.owner, _quota("max_state_bytes"))
            self._note(change, State.LOADING)
            try:
                models = [self._make(source, *version) for version in versions.items()]
                go_on()
                with self._changes.lock:
                    self._require_free(name, len(models), is_new)
                    if not change.is_superseded:
                        self._publish(change, source, models, at_start)
            except Exception as error:
                self._note(change, State.UNAVAILABLE, _why(error))
                raise

    def _note(self, change: Change, state: State, why: str = "") -> None:
        """Show the state of a load in the index, unless the load is superseded."""
        with self._changes.lock:
            if not change.is_superseded:
                self.repository.note(change.name, state, why)

    def _publish(
        self, change: Change, source: Source, models: Sequence[Model], at_start: bool
    ) -> None:
        """Publish models; save a client's models first."""
        if self.saved is not None and not at_start:
            if source.owner == OPERATOR:
                self.saved.remove(source.name)
            else:
                self.saved.save(sources.to_save(source), _quota("max_state_bytes"))
        self.repository.publish(models)
        self._changes.supersede(source.name, change)
        for model in models:
            if model.state != State.READY:
                text = "model %s version %s is not ready: %s"
                _log.warning(text, model.name, model.version, model.reason)
                continue
            facts = "; ".join(f"{key} {value}" for key, value in model.properties.items())
            _log.info("model %s version %s is ready: %s", model.name, model.version, facts)

    def _require_free(self, name: str, versions: int, is_new: bool) -> None:
        """Refuse versions that the caller may not publish, or for which there is no room."""
        is_saved = self.saved is not None and self.saved.owner(name) is not None
        if is_new and (is_saved or self.repository.versions(name)):
            text = f"{name[:MAX_NAME]!r} names a published model"
            raise CallRefused(wire.ERROR_REASON_MODEL_EXISTS, text, model=name[:MAX_NAME])
        require_owner(name, self._owner(name))
        self.repository.require_room(name, versions, caller().name, _quota("max_models"))

    def _owner(self, name: str) -> str | None:
        """Return the owner of a name, or None if no model has it."""
        owner = self.repository.owner(name)
        if owner is None and self.folder is not None:
            owner = OPERATOR if name in sources.scan(self.folder, name) else None
        if owner is None and self.saved is not None:
            owner = self.saved.owner(name)
        return owner

    def _make(self, source: Source, version: str, contents: Path | bytes) -> Model:
        with sources.reading(source.name):
            data = sources.read(contents, self.limit, source.name)
        options = sources.options_of(source.config)
        try:
            plan = self.compile(data, options, self.limit)
            inputs = fix_dims(source.config, plan.inputs)
            warmed = warm_up(plan, inputs, self.limit)
        except ModelRefused as error:
            text = f"model {source.name}: {error}"
            facts = {"node": error.node, "why": error.reason}
            raise CallRefused(wire.ERROR_REASON_MODEL_INVALID, text, **facts) from error
        properties = {"machine": options.machine, "placement": options.placement, **warmed.facts}
        if plan.optional:
            properties["optional_inputs"] = first_names(plan.optional)
        state = State.UNAVAILABLE if warmed.failure else State.READY
        return Model(
            source.name, version, plan, inputs, properties, source.owner, state, warmed.failure
        )

    def unload(self, name: str) -> None:
        """Withdraw a model, remove it from disk, and supersede loads of its name.

        Raise CallRefused for an unknown model, or one of another owner; a model that is unloaded
        already is no error.
        """
        with self._changes.lock:
            require_owner(name, self._owner(name))
            is_removed = self.saved is not None and self.saved.remove(name)
            is_removed = self._changes.supersede(name) or is_removed
            if not self.repository.withdraw(name):
                if not is_removed and name not in {e.name for e in self.repository.index()}:
                    raise not_found(name)
                if is_removed:
                    self.repository.note(name, State.UNAVAILABLE, "unloaded")
        audit.model_changed("model_unloaded", name, caller().name)


def _ends_within(seconds: float, work: Callable[[], None]) -> bool:
    """Run in a new thread; return False if it takes longer, and let it continue."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _require_time(name: str, deadline: float) -> None:
    """Raise CallRefused after the deadline of a load."""
    if time.monotonic() > deadline:
        text = f"model {name}: to load it takes more than {SAVED_LOAD_DEADLINE:g} s"
        raise CallRefused(wire.ERROR_REASON_MODEL_UNAVAILABLE, text, model=name)


def _why(error: Exception) -> str:
    """Return the reason of a failed load for the index."""
    if isinstance(error, CallCancelled):
        return "its client left while it was loaded"
    return from_exception(error).message


def _quota(name: str) -> int | None:
    """Return a quota of the caller's token, or None if the token has none of its own."""
    return caller().quotas.get(name)
