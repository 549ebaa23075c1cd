# SPDX-License-Identifier: Apache-2.0
"""Without shortcuts a client does the same: the same values, statuses and errors."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import ProgramCheck, Session, connect, zdnn
from nnpa_client._server.shortcuts import NAMES, SHORTCUTS, left_out, with_shortcuts
from nnpa_client._server.shortcuts.out_of_band_arrays import OutOfBandArrays
from nnpa_client._server.shortcuts.stream import StreamTransport
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint, plain_shortcuts

from tests.client.server_process import serving

CLIENT = Path(__file__).parents[3] / "client"
CHOICES: list[bool | list[str]] = [True, False, *([name] for name in SHORTCUTS)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a server that has every way to take operations."""
    socket = tmp_path_factory.mktemp("nnpa") / "nnpa.sock"
    with serving([f"unix:{socket}"]) as targets:
        yield targets[0]


def answers(session: Session, size: tuple[int, int]) -> list[bytes]:
    """Return a session's results, alone and in a pipeline, and its error."""
    array = np.arange(size[0] * size[1], dtype=np.float32).reshape(size) % 251
    a, out = session.ztensor(array), np.empty_like(array)
    with session.pipeline():
        zdnn.transform_origtensor(zdnn.mul(session.ztensor(array), a), out)
    with pytest.raises(ProgramCheck) as refused:
        zdnn.add(a, session.ztensor(np.ones((1, 1), np.float32)))
    return [zdnn.add(a, a).numpy().tobytes(), out.tobytes(), str(refused.value).encode()]


@pytest.mark.shortcut
@pytest.mark.parametrize("size", [(2, 3), (130, 200), (600, 2048)])
def test_every_choice_of_shortcuts_answers_alike(target: str, size: tuple[int, int]) -> None:
    """All shortcuts, none, and all but one give the same bytes and the same error."""
    results: list[list[bytes]] = []
    for plain in CHOICES:
        with connect(target, plain=plain) as session:
            results.append(answers(session, size))
    assert all(each == results[0] for each in results)


@pytest.mark.shortcut
def test_what_is_left_out_does_not_run(target: str) -> None:
    """A plain client wraps nothing; a name leaves out that shortcut."""
    bare = GrpcTransport(Endpoint(target))
    assert with_shortcuts(bare, True) is bare
    assert isinstance(with_shortcuts(bare, ["out-of-band-arrays"]), StreamTransport)
    arrays = with_shortcuts(bare, ["stream", "plain-socket"])
    assert isinstance(arrays, OutOfBandArrays)
    assert arrays.inner is bare
    bare.close()


@pytest.mark.parametrize("private", [True, False])
def test_an_unknown_name_is_refused(private: bool) -> None:
    """A name that no shortcut has is an error that lists the shortcuts."""
    refusal = re.escape(f"plain: 'quick', expected some of {', '.join(NAMES)}")
    with pytest.raises(ValueError, match=refusal):
        connect(None if private else "unix:/no/such.sock", plain=["quick"])


def test_clients_know_the_same_names() -> None:
    """Python and libzdnn take the same names, in one order; the tables of the manual show them."""
    rust = (CLIENT / "libzdnn/src/process/shortcuts.rs").read_text(encoding="utf-8")
    assert tuple(re.findall(r'\("([a-z-]+)", (?:Some|None)', rust)) == NAMES
    assert set(SHORTCUTS) < set(NAMES)
    assert left_out(["content-cache"]) == {"content-cache"}
    for page, header in (("python/sessions.md", "of"), ("c/programs.md", "wraps")):
        text = (CLIENT.parent / "deploy/docs" / page).read_text(encoding="utf-8")
        table = text.split(f"| shortcut | {header} |")[1].split("\n\n")[0]
        assert tuple(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == NAMES


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", False),
        ("0", False),
        ("1", True),
        ("stream", ("stream",)),
        (" stream, plain-socket,", ("stream", "plain-socket")),
    ],
)
def test_the_environment_says_what_to_leave_out(
    text: str, plain: bool | Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZDNN_PLAIN is 1 for all shortcuts, or names with commas between them."""
    monkeypatch.setenv("ZDNN_PLAIN", text)
    assert plain_shortcuts() == plain
    monkeypatch.delenv("ZDNN_PLAIN")
    assert plain_shortcuts() is False


def test_a_private_server_is_plain_too() -> None:
    """`connect(plain=True)` without a target starts its server with --plain."""
    with connect(plain=True) as session:
        a = session.ztensor(np.ones((2, 3), np.float32))
        assert np.array_equal(zdnn.add(a, a).numpy(), np.full((2, 3), 2, np.float32))
