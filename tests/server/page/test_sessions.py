# SPDX-License-Identifier: Apache-2.0
"""The views of sessions: whose they are, what they hold and run; they look and do no more."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa_client import connect
from nnpa_emulator import dlfloat
from nnpa_page import Refusal, Visitor
from nnpa_server.accelerator import composition
from nnpa_server.accelerator.execute import path_of
from nnpa_server.accelerator.observers.recent_calls import HOLDING
from nnpa_server.accelerator.seams import CallPath
from nnpa_server.page import SessionPage, watching
from nnpa_server.page.sessions import Sessions
from nnpa_server.page.watching import Watches
from nnpa_server.sessions.store import Session, session_tag

from tests.server.conftest import CONFIG, Running
from tests.server.page.serving import PageServer, serving_page
from tests.server.process import wait_until
from tests.server.wire import init, load, op, refused

DATA = np.array([[[[1.5, -2.0, 0.0], [0.5, 3.0, 1e9]]]], np.float32)
OPERATOR = Visitor(is_operator=True)


class Looking:
    """The views over the store of a running server, and one session of it."""

    def __init__(self, running: Running) -> None:
        self.client = running.client()
        self.store = running.server.store
        self.watches = Watches(CONFIG.shortcuts)
        self.views = Sessions(self.store, self.watches, show_all=False)
        self.tag = session_tag(self.client.session)

    @property
    def session(self) -> Session:
        """The session itself."""
        return next(s for s in self.store.sessions() if s.name == self.client.session)

    def look(self) -> dict[str, Any]:
        """Return the session's view."""
        return dict(self.views.session(OPERATOR, {"session": self.tag}))

    def tensor(self, **query: str) -> dict[str, Any]:
        """Return the view of a tensor."""
        return dict(self.views.tensor(OPERATOR, {"session": self.tag, **query}))


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server, shared by the tests."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def looking(running: Running) -> Iterator[Looking]:
    """A session that may be looked at."""
    look = Looking(running)
    yield look
    look.client.delete()


def functions_of(path: CallPath) -> Mapping[str, str]:
    """Return the names of the functions of a call path, the outermost wrapper of each."""
    names: dict[str, str] = {}
    for seam in fields(path):
        function = getattr(path, seam.name)
        names[seam.name] = getattr(function, "__qualname__", repr(type(function)))
    return names


def test_observes_no_session_that_nobody_looks_at(looking: Looking) -> None:
    """Before the first look and after the last one a session has its plain call path."""
    before = functions_of(path_of(looking.session))
    plain = [wrap for wrap in composition.OBSERVERS if "recent_calls" not in wrap.__module__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "OBSERVERS", tuple(plain))
        composition.compose(looking.session, CONFIG.shortcuts)
    assert functions_of(path_of(looking.session)) == before
    looking.look()
    observed = functions_of(path_of(looking.session))
    assert {name for name in before if before[name] != observed[name]} == {
        "run_step",
        "run_chunked",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "_LEAVE_SECONDS", -1.0)
        looking.watches.leave()
    assert functions_of(path_of(looking.session)) == before
    assert HOLDING not in looking.session.holdings


def test_observes_no_session_for_other_views(looking: Looking, running: Running) -> None:
    """Files and views of other subjects leave a session's call path as it is."""
    before = functions_of(path_of(looking.session))
    page = SessionPage(replace(CONFIG, page="127.0.0.1:0"), running.server.store, None)
    server = PageServer(page.url, running.address, 0)
    for path in ("/", "/data/views", "/data/machines", "/data/sticks?shape=1,1,1,1"):
        assert server.get(path, server.token).status == 200
    looking.client.run(*load(1, DATA))
    assert functions_of(path_of(looking.session)) == before
    page.close()


def test_keeps_observing_while_somebody_looks(looking: Looking) -> None:
    """A session that somebody looked at recently stays observed."""
    looking.look()
    looking.watches.leave()
    assert HOLDING in looking.session.holdings


def test_lists_calls_since_the_first_look(looking: Looking) -> None:
    """Calls are listed newest first with tensors and status; statuses are counted."""
    looking.client.run(*load(1, DATA))
    assert looking.look()["recent"] == []
    looking.client.run(*init(2, 1, 1, 2, 3), op("log", input=1, output=2))
    looking.client.run(*init(3, 1, 1, 1, 1))
    with refused(grpc.StatusCode.ABORTED, "PROGRAM_CHECK"):
        looking.client.run(op("add", input_a=1, input_b=3, output=2))
    view = looking.look()
    assert view["recent"][0]["status"] == "PROGRAM_CHECK"
    assert view["recent"][0]["tensors"] == {"input_a": 1, "input_b": 3, "output": 2}
    logged = next(call for call in view["recent"] if call["op"] == "log")
    assert logged["status"] == "ZDNN_ELEMENT_RANGE_VIOLATION"
    assert view["statuses"]["PROGRAM_CHECK"] == 1
    assert view["statuses"]["ZDNN_ELEMENT_RANGE_VIOLATION"] == 1
    assert all(call["seconds"] > 0 for call in view["recent"])
    assert view["running"] == ""


def test_lists_the_contents_of_a_session(looking: Looking) -> None:
    """The list has a session's machine, counts and bytes, under a hash in place of its name."""
    looking.client.run(*load(1, DATA))
    (line,) = [
        line
        for line in looking.views.sessions(OPERATOR, {})
        if line["session"] == session_tag(looking.client.session)
    ]
    assert (line["machine"], line["tensors"], line["bytes"]) == ("telum2", 1, 4096)
    assert looking.client.session not in str(line)
    assert looking.look()["tensors"] == [
        {
            "id": 1,
            "user": "1 x 1 x 2 x 3 ZDNN_NHWC FP32",
            "sticks": "1 x 1 x 2 x 3 ZDNN_NHWC ZDNN_DLFLOAT16",
            "bytes": 4096,
            "transformed": True,
        }
    ]


def test_shows_the_cells_of_a_tensor(looking: Looking) -> None:
    """A tensor's cells are its DLFLOAT16 codes at their places, with values; padding is 0."""
    looking.client.run(*load(1, DATA))
    view = looking.tensor(id="1")
    codes = dlfloat.from_fp32(DATA)[0, 0]
    assert view["cell_values"][:3] == codes[0].tolist()
    assert view["cell_values"][64:67] == codes[1].tolist()
    assert sum(map(bool, view["cell_values"])) == np.count_nonzero(codes)
    assert view["values"][:2] == [1.5, -2.0]
    assert view["values"][66] == float(dlfloat.to_fp32(codes[1, 2:])[0])


def test_shows_no_value_for_a_range_violation(looking: Looking) -> None:
    """A code that is no number has no value."""
    looking.client.run(*load(1, DATA), *init(2, 1, 1, 2, 3), op("log", input=1, output=2))
    values = looking.tensor(id="2")["values"]
    assert values[1] is None
    assert math.isclose(values[0], math.log(1.5), rel_tol=1e-3)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"id": "9"}, "tensor 9 does not exist any more"),
        ({"id": "<b>"}, "id is '<b>', must be 0 to"),
        ({"id": "1", "page": "7"}, "page is '7', must be 0 to 0"),
        ({"id": "1", "session": "00000000"}, "session '00000000' does not exist, or has ended"),
        ({"id": "2"}, "the tensor has no buffer"),
    ],
)
def test_refuses_unknown_tensors(looking: Looking, query: dict[str, str], text: str) -> None:
    """An unknown tensor, page or session is refused in a sentence."""
    looking.client.run(*load(1, DATA), init(2, 1, 1, 2, 3)[0])
    with pytest.raises(Refusal) as caught:
        looking.tensor(**query)
    assert text in caught.value.text


def test_shows_a_busy_session_without_waiting(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an operation runs a session is listed, and its cells are refused."""
    monkeypatch.setattr("nnpa_server.page.sessions._WAIT_SECONDS", 0.01)
    looking.client.run(*load(1, DATA))
    with looking.session.running(None):
        assert looking.look()["recent"] == []
        with pytest.raises(Refusal, match="the session runs an operation"):
            looking.tensor(id="1")
    assert HOLDING not in looking.session.holdings
    looking.look()
    assert HOLDING in looking.session.holdings


def test_does_not_count_looking_as_use(looking: Looking) -> None:
    """Looking does not delay a session's idle timeout, nor count as a call."""
    used, calls = looking.session.last_used, looking.session.trail.calls
    looking.views.sessions(OPERATOR, {})
    looking.look()
    assert (looking.session.last_used, looking.session.trail.calls) == (used, calls)


def test_releases_a_session_that_ends(running: Running) -> None:
    """A session that ends while somebody looks is released, and reported as ended."""
    look = Looking(running)
    look.look()
    session = look.session
    look.client.delete()
    look.watches.leave()
    assert session.holdings == {}
    with pytest.raises(Refusal, match="does not exist, or has ended"):
        look.look()


@pytest.mark.parametrize("show_all", [False, True])
def test_shows_a_holder_its_own_sessions_only(tmp_path: Path, show_all: bool) -> None:
    """A token shows its holder's sessions; the page's own token shows all with --page-all."""
    tokens = tmp_path / "tokens.toml"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "bob")}
    tokens.write_text("".join(f'[tokens.{k}]\nsha256 = "{d}"\n' for k, d in digests.items()))
    flags = ["--tokens", str(tokens), *(["--page-all"] if show_all else [])]
    with serving_page(tmp_path, *flags) as page, connect(page.grpc, token="alice") as session:
        number = session.ztensor(DATA).id
        (line,) = page.get("/data/sessions", "alice").data
        assert line["holder"] == "alice"
        for view in ("session", "tensor"):
            path = f"/data/{view}?session={line['session']}&id={number}"
            assert "error" not in page.get(path, "alice").data
            assert "does not exist" in page.get(path, "bob").data["error"]
        assert page.get("/data/sessions", "bob").data == []
        assert len(page.get("/data/sessions", page.token).data) == show_all


def test_stops_observing_by_itself(
    looking: Looking, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's thread stops observing a session that nobody looks at any more."""
    config = replace(CONFIG, page="127.0.0.1:0")
    page = SessionPage(config, running.server.store, None)
    server = PageServer(page.url, running.address, 0)
    answer = server.get(f"/data/session?session={looking.tag}", server.token)
    assert answer.data["session"] == looking.tag
    assert HOLDING in looking.session.holdings
    monkeypatch.setattr(watching, "_LEAVE_SECONDS", 0.0)
    wait_until(lambda: HOLDING not in looking.session.holdings)
    page.close()
