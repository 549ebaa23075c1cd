# SPDX-License-Identifier: Apache-2.0
"""Owners of published models and their rights; loads of one name, and which of them counts."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from typing import Any, NoReturn

import pytest
from nnpa_server.errors import CallRefused
from nnpa_server.open_inference import sources
from nnpa_server.open_inference.changes import Change, Changes
from nnpa_server.open_inference.loading import Loader
from nnpa_server.open_inference.owners import OPERATOR, may_change, require_owner
from nnpa_server.open_inference.repository import Repository, State
from nnpa_server.open_inference.sources import Options, Source
from nnpa_server.sessions.tokens import Token, set_caller


class ModelInvalid(Exception):
    """The compiler of these tests raises it."""


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """Calls of these tests have no token when they end."""
    yield
    set_caller(None)


def be(name: str, *, is_admin: bool = False) -> None:
    """Make all later calls with a token."""
    set_caller(Token(name, b"", frozenset(), 0.0, {}, is_admin))


@pytest.mark.parametrize("owner", ["alice", "", OPERATOR])
def test_admins_and_servers_without_tokens_may_change_everything(owner: str) -> None:
    """An admin may change any model; without tokens every caller may."""
    set_caller(None)
    assert may_change(owner)
    be("root", is_admin=True)
    assert may_change(owner)


def test_a_token_may_change_its_own_models() -> None:
    """A holder may change its own models, and not models of other holders or the operator."""
    be("alice")
    assert may_change("alice")
    require_owner("free", None)
    for owner, whose in (("bob", "another"), ("", "another"), (OPERATOR, "the operator")):
        with pytest.raises(CallRefused, match=f"model m is {whose}.*'s, must be") as caught:
            require_owner("m", owner)
        assert caught.value.name == "MODEL_NOT_OWNED"
        assert caught.value.metadata.keys() == {"field", "value", "limit"}
        assert "bob" not in str(caught.value)


def start_loads(loader: Loader, owner: str, *names: str) -> list[threading.Thread]:
    """Have a holder load models, each in a thread whose compilation does not end."""

    def load(name: str) -> None:
        be(owner)
        with pytest.raises(ModelInvalid):
            loader.load(name, "{}", {"file:1/model.onnx": b"slow"})

    threads = [threading.Thread(target=load, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    return threads


def test_one_token_leaves_places_to_others() -> None:
    """A holder's slow loads take half of the places, and all together take them all."""
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def compile_slowly(_data: bytes, _options: Options, _limit: int) -> NoReturn:
        begun.release()
        assert go_on.wait(60)
        raise ModelInvalid

    loader = Loader(
        Repository(64), compile_slowly, None, 1 << 20, None, lambda _models: nullcontext()
    )
    threads = start_loads(loader, "alice", "a", "b", "c", "d")
    for _ in threads:
        assert begun.acquire(timeout=60)
    be("alice")
    with pytest.raises(CallRefused, match="max_own_loads is 4, and 4 are") as caught:
        loader.load("e", "{}", {"file:1/model.onnx": b"slow"})
    assert caught.value.name == "CALL_QUOTA_EXCEEDED"
    more = start_loads(loader, "bob", "f", "g", "h", "i")
    for _ in more:
        assert begun.acquire(timeout=60)
    be("carol")
    with pytest.raises(CallRefused, match="max_loads is 8, and 8 are"):
        loader.load("j", "{}", {"file:1/model.onnx": b"slow"})
    go_on.set()
    for thread in (*threads, *more):
        thread.join(60)
    with pytest.raises(ModelInvalid):
        loader.load("j", "{}", {"file:1/model.onnx": b"slow"})


def test_an_unload_before_a_load_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that an unload ends before it is in the index leaves no trace there."""

    def compile_nothing(_data: bytes, _options: Options, _limit: int) -> NoReturn:
        raise ModelInvalid

    def from_request(*arguments: Any) -> Source:
        loader.unload("m")
        return read(*arguments)

    repository, read = Repository(64), sources.from_request
    loader = Loader(repository, compile_nothing, None, 1 << 20, None, lambda _models: nullcontext())
    monkeypatch.setattr(sources, "from_request", from_request)
    with pytest.raises(ModelInvalid):
        loader.load("m", "{}", {"file:1/model.onnx": b"model"})
    assert [(entry.state, entry.reason) for entry in repository.index()] == [
        (State.UNAVAILABLE, "unloaded")
    ]


def under_way(changes: Changes, *loads: Change) -> ExitStack:
    """Begin loads, in order."""
    stack = ExitStack()
    for load in loads:
        stack.enter_context(changes.under_way(load))
    return stack


def test_the_load_that_began_last_counts() -> None:
    """A load supersedes earlier loads of its name, and no others."""
    changes = Changes()
    first, second, third, unrelated = (
        Change(name, "", yields=False) for name in ("m", "m", "m", "other")
    )
    with under_way(changes, first, unrelated, second, third):
        assert changes.supersede("m", second)
        assert [load.is_superseded for load in (first, second, third, unrelated)] == [
            True, False, False, False,
        ]  # fmt: skip


def test_loads_of_what_was_on_disk_yield() -> None:
    """A load that read the disk has no effect after a change that took effect meanwhile."""
    changes = Changes()
    brought, saved = Change("m", "", yields=False), Change("m", "")
    with under_way(changes, brought, saved):
        assert changes.supersede("m", brought)
    assert saved.is_superseded


def test_an_unload_ends_what_loads() -> None:
    """An unload supersedes all running loads of its name; ended loads do not count."""
    changes = Changes()
    ended, load = Change("m", "", yields=False), Change("m", "", yields=False)
    with under_way(changes, ended):
        pass
    with under_way(changes, load):
        assert changes.supersede("m")
        assert not changes.supersede("other")
    assert (ended.is_superseded, load.is_superseded) == (False, True)
    assert not changes.supersede("m")


def test_nobody_ends_loads_of_others() -> None:
    """A holder's unload leaves the loads of other holders alone."""
    changes = Changes()
    load = Change("m", "alice", yields=False)
    with under_way(changes, load):
        be("bob")
        assert not changes.supersede("m")
        assert not load.is_superseded
        be("alice")
        assert changes.supersede("m")
        assert load.is_superseded
