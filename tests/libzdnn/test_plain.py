# SPDX-License-Identifier: Apache-2.0
"""Programs without shortcuts: ZDNN_PLAIN takes all of them away, or some by name."""

import subprocess
from pathlib import Path

import pytest
from nnpa_client._server.shortcuts import NAMES as CLIENTS_NAMES

from tests.libzdnn import toolchain
from tests.libzdnn.served_calls import served_calls
from tests.libzdnn.toolchain import Prefix
from tests.server.process import serving
from tests.server.sessions.test_metrics import sample, scrape

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ", ".join(CLIENTS_NAMES)
ROWS, ROUNDS = 64, 9
STICKS = ROWS * 1024 * 2
ARRAY = 2 * STICKS
CHANGES = 1 + (ROUNDS - 2) // 3  # versions of the operand that the program writes itself


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that adds the same tensor again and again."""
    folder = tmp_path_factory.mktemp("plain")
    return toolchain.compiled(PROGRAMS / "repeat.c", folder / "repeat", prefix, "-std=gnu11")


def _run(program: Path, server: str, plain: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), str(ROWS), str(ROUNDS)],
        env=toolchain.environment(ZDNN_SERVER=server, ZDNN_PLAIN=plain),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("plain", ["1", NAMES.replace(" ", ""), f" {NAMES},"])
def test_every_operation_is_a_call(program: Path, tmp_path: Path, plain: str) -> None:
    """Without shortcuts each operation is one Execute with all its sticks, and the same results."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock", "--metrics", "127.0.0.1:0")
    with serving(tmp_path, *flags, "--shared-memory") as server:
        answer = _run(program, server.address, plain)
        received = scrape(server)[sample("nnpa_bytes_total", direction="received")]
        assert answer.stdout == _run(program, server.address, "0").stdout
        calls = served_calls(server)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert calls["Execute", "OK"] >= ROUNDS + 2
    assert received > ARRAY + 2 * ROUNDS * STICKS


@pytest.mark.shortcut
@pytest.mark.parametrize(
    ("names", "streams", "tensors"),
    [
        ("0", 1, 0),
        ("stream", 1, 0),  # the one that brings the memory
        ("plain-socket", 2, 0),  # that one, and one over HTTP/2
        ("content-cache", 1, 0),
        ("out-of-band-arrays", 1, 0),  # the Python client's
        ("shared-memory", 1, CHANGES),
        ("stream,shared-memory", 0, CHANGES),
        ("content-cache,shared-memory", 1, 2 * ROUNDS + 1),
    ],
)
def test_shortcuts_by_name(
    program: Path, tmp_path: Path, names: str, streams: int, tensors: int
) -> None:
    """Each shortcut is taken away alone, and no result changes; tensors travel as without it."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock", "--metrics", "127.0.0.1:0")
    with serving(tmp_path, *flags, "--shared-memory") as server:
        answer = _run(program, server.address, names)
        received = scrape(server)[sample("nnpa_bytes_total", direction="received")]
        calls = served_calls(server)
    with serving(tmp_path, *flags) as server:
        plain = _run(program, server.address, "1")
    assert (answer.stdout, answer.stderr) == (plain.stdout, "")
    assert calls["ExecuteStream", "*"] == streams
    assert (calls["Execute", "*"] > 0) == ("stream" in names.split(","))
    array = ARRAY if "shared-memory" in names else 0
    assert array + tensors * STICKS <= received < array + (tensors + 1) * STICKS


@pytest.mark.parametrize("names", ["telepathy", "stream,telepathy", "true"])
def test_unknown_shortcut(program: Path, server: str, names: str) -> None:
    """A shortcut that does not exist is refused with the list of those that do."""
    answer = _run(program, server, names)
    word = names.rpartition(",")[2]
    refusal = f"ZDNN_PLAIN: {word}: unknown, must be 1 or some of {NAMES}"
    assert answer.returncode == 1
    assert answer.stderr == f"nnpa: zdnn_init_ztensor_with_malloc: FIELD_INVALID: {refusal}\n"
