# SPDX-License-Identifier: Apache-2.0
"""Rights to change published models, over restarts: owners, operator, admins, quotas."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.saved_models import SavedModel

from tests.server.onnx_models import Caller, request
from tests.server.open_inference.test_state import (
    ALL,
    ANY_PORT,
    CODE,
    MODELS,
    RESULTS,
    ROW,
    keeping,
    load_message,
    operator_of,
    put,
    unload,
)
from tests.server.process import ServerProcess, serving, wait_until
from tests.server.sessions.test_tokens import ALICE, BOB, GONE, bearer, entry, hang_up
from tests.server.wire import refused

ROOT = "r" * 43
TOKENS = "".join((entry("alice", ALICE), entry("bob", BOB), entry("root", ROOT, "admin = true")))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[ServerProcess, Callable[[str], "Owner"]]]:
    """A server with tokens, a model of the operator's, and a folder of state; and its callers."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "div.onnx").write_bytes(MODELS["Div"])
    (tmp_path / "tokens.toml").write_text(TOKENS)
    with guarding(tmp_path) as both:
        yield both


@contextmanager
def guarding(tmp_path: Path) -> Generator[tuple[ServerProcess, Callable[[str], "Owner"]]]:
    """Run a server with tokens; return it and a function from a token to its caller."""
    flags = ("--tokens", f"{tmp_path}/tokens.toml", "--models", f"{tmp_path}/models")
    with serving(tmp_path, *ANY_PORT, "--state", f"{tmp_path}/state", *flags) as server:

        def owner(token: str) -> Owner:
            return Owner(server, token)

        ready = owner(ROOT)
        wait_until(lambda: ready.call("ServerReady", pb.ServerReadyRequest()).ready)
        yield server, owner
        if server.process.poll() is None:
            assert server.stop() == 0


class Owner:
    """Calls of the Open Inference Protocol with a token."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._bearer = bearer(server, token)
        self._caller = Caller(server.address)

    def call(self, method: str, message: Any) -> Any:
        """Call a method."""
        return getattr(self._caller.stub, method)(message, metadata=self._bearer.metadata)

    def load(self, name: str, op: str) -> None:
        """Publish a model."""
        self.call("RepositoryModelLoad", load_message(name, v1=MODELS[op]))

    def load_by_name(self, name: str) -> None:
        """Have the server read a model of its own again."""
        self.call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=name))

    def unload(self, name: str) -> None:
        """Unload a model."""
        self.call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=name))

    def infer(self, name: str) -> bytes:
        """Run a model."""
        answer = self.call("ModelInfer", request(name, x=ROW, y=ROW))
        return bytes(answer.raw_output_contents[0])


def not_owned(name: str) -> Any:
    """Expect a refusal that names the field and the model, and not its owner."""
    return refused(CODE.PERMISSION_DENIED, "MODEL_NOT_OWNED", field="model_name", value=name)


Guarded = tuple[ServerProcess, Callable[[str], Owner]]


@pytest.mark.heavy
def test_owners_change_their_models(guarded: Guarded, tmp_path: Path) -> None:
    """A model's publisher may replace and unload it, also after a restart; others may run it."""
    server, owner = guarded
    alice, bob = owner(ALICE), owner(BOB)
    alice.load("mine", "Add")
    for change in (partial(bob.load, "mine", "Sub"), partial(bob.unload, "mine")):
        with not_owned("mine"):
            change()
    assert alice.infer("mine") == bob.infer("mine") == RESULTS["Add"].tobytes()
    alice.load("mine", "Mul")
    assert server.stop() == 0
    with guarding(tmp_path) as (_, owner):
        alice, bob = owner(ALICE), owner(BOB)
        assert bob.infer("mine") == RESULTS["Mul"].tobytes()
        with not_owned("mine"):
            bob.load("mine", "Sub")
        with not_owned("mine"):
            bob.load_by_name("mine")
        with not_owned("mine"):
            bob.unload("mine")
        alice.load_by_name("mine")
        alice.unload("mine")
        bob.load("mine", "Sub")
        with not_owned("mine"):
            alice.unload("mine")


def test_the_operators_models_are_the_operators(guarded: Guarded) -> None:
    """Models of --models are changed by admins only: not replaced, unloaded or read again."""
    _, owner = guarded
    alice, root = owner(ALICE), owner(ROOT)
    for change in (
        partial(alice.load, "div", "Sub"),
        partial(alice.unload, "div"),
        partial(alice.load_by_name, "div"),
    ):
        with not_owned("div"):
            change()
    root.unload("div")
    with not_owned("div"):
        alice.load("div", "Sub")
    root.load_by_name("div")
    assert alice.infer("div") == RESULTS["Div"].tobytes()


@pytest.mark.heavy
def test_admins_may_change_everything(guarded: Guarded) -> None:
    """An admin replaces and unloads models of others; what an admin publishes is the admin's."""
    server, owner = guarded
    alice, root = owner(ALICE), owner(ROOT)
    alice.load("mine", "Add")
    root.load("mine", "Mul")
    assert alice.infer("mine") == RESULTS["Mul"].tobytes()
    with not_owned("mine"):
        alice.load("mine", "Add")
    root.unload("mine")
    alice.load("mine", "Add")
    wait_until(lambda: server.log_text().count("event=model_") == 4)
    lines = [line.partition("event=")[2] for line in server.log_text().splitlines()]
    assert [line for line in lines if line] == [
        "model_published model=mine token=alice",
        "model_published model=mine token=root",
        "model_unloaded model=mine token=root",
        "model_published model=mine token=alice",
    ]


def test_model_quotas_are_the_tokens(guarded: Guarded, tmp_path: Path) -> None:
    """A token's models and their bytes are bounded by its entry; others, and replacing, go on."""
    server, owner = guarded
    size = len(MODELS["Add"])
    quotas = ("max_models = 2", f"max_state_bytes = {3 * size}")
    tokens = entry("alice", ALICE, *quotas) + entry("bob", BOB)
    (tmp_path / "tokens.toml").write_text(tokens)
    hang_up(server, "2 tokens are known")
    alice, bob = owner(ALICE), owner(BOB)
    alice.load("a", "Add")
    with refused(CODE.RESOURCE_EXHAUSTED, "MODEL_QUOTA_EXCEEDED", field="max_models", limit=2):
        alice.call(
            "RepositoryModelLoad", load_message("b", ALL, v1=MODELS["Add"], v2=MODELS["Mul"])
        )
    big = load_message("a", ALL, v1=MODELS["Add"], v2=bytes(3 * size))
    field = "max_state_bytes"
    with refused(CODE.RESOURCE_EXHAUSTED, "MODEL_QUOTA_EXCEEDED", field=field, limit=3 * size):
        alice.call("RepositoryModelLoad", big)
    alice.load("a", "Mul")
    for name in "bcd":
        bob.load(name, "Sub")


@pytest.mark.heavy
def test_models_of_a_revoked_token_stay(guarded: Guarded, tmp_path: Path) -> None:
    """A withdrawn token's models go on, also over a restart, until an admin removes them."""
    server, owner = guarded
    owner(ALICE).load("mine", "Add")
    kept = entry("bob", BOB) + entry("root", ROOT, "admin = true")
    (tmp_path / "tokens.toml").write_text(kept)
    hang_up(server, "2 tokens are known")
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        owner(ALICE).unload("mine")
    assert server.stop() == 0
    with guarding(tmp_path) as (_, owner):
        bob, root = owner(BOB), owner(ROOT)
        assert bob.infer("mine") == RESULTS["Add"].tobytes()
        for change in (partial(bob.load, "mine", "Sub"), partial(bob.unload, "mine")):
            with not_owned("mine"):
                change()
        root.unload("mine")
        bob.load("mine", "Sub")


@pytest.mark.heavy
def test_models_from_before_tokens_are_an_admins(tmp_path: Path) -> None:
    """Models published without tokens belong to no token; without tokens everybody owns all."""
    with keeping(tmp_path) as (_, caller):
        caller.load("old", MODELS["Add"])
    (tmp_path / "models").mkdir()
    (tmp_path / "tokens.toml").write_text(TOKENS)
    with guarding(tmp_path) as (_, owner):
        with not_owned("old"):
            owner(ALICE).load("old", "Sub")
        owner(ALICE).load("alices", "Sub")
        owner(ROOT).load("old", "Mul")
    with keeping(tmp_path) as (_, caller):
        assert operator_of(caller, "old") == "Mul"
        caller.load("alices", MODELS["Add"])
        unload(caller, "old")


@pytest.mark.heavy
def test_a_damaged_model_is_an_admins(guarded: Guarded, tmp_path: Path) -> None:
    """The owner of a damaged file is unknown: only an admin replaces or removes it."""
    server, owner = guarded
    owner(ALICE).load("mine", "Add")
    assert server.stop() == 0
    (file,) = (tmp_path / "state").glob("*.model")
    file.write_bytes(b"damaged")
    with guarding(tmp_path) as (_, owner):
        for change in (owner(ALICE).unload, owner(BOB).unload):
            with not_owned("mine"):
                change("mine")
        with not_owned("mine"):
            owner(BOB).load("mine", "Sub")
        owner(ROOT).unload("mine")
        owner(BOB).load("mine", "Sub")


@pytest.mark.heavy
def test_expired_tokens_own_on(tmp_path: Path) -> None:
    """A token that has expired owns its models still."""
    (tmp_path / "models").mkdir()
    put(tmp_path, SavedModel("mine", "gone", "{}", {"1": MODELS["Add"]}))
    gone = entry("gone", GONE, "expires = 2020-01-01T00:00:00Z")
    (tmp_path / "tokens.toml").write_text(TOKENS + gone)
    with guarding(tmp_path) as (_, owner):
        with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
            owner(GONE).unload("mine")
        with not_owned("mine"):
            owner(BOB).unload("mine")
        assert owner(BOB).infer("mine") == RESULTS["Add"].tobytes()
