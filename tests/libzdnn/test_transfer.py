# SPDX-License-Identifier: Apache-2.0
"""How sticks travel, ZDNN_TRANSFER: fewer bytes, the same results, whatever the cache forgets."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.relay import relaying
from tests.libzdnn.toolchain import TRANSFERS, Prefix
from tests.server.process import serving
from tests.server.sessions.test_metrics import sample, scrape

pytestmark = pytest.mark.shortcut
PROGRAMS = Path(__file__).parent / "programs"
MIB = 1 << 20
ROWS, ROUNDS = 512, 12
STICKS = ROWS * 1024 * 2
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
Repeat = Callable[..., list[str]]


@pytest.fixture
def repeat(prefix: Prefix, tmp_path: Path) -> Repeat:
    """A function that runs `repeat` against a server, and returns its lines."""
    source, program = PROGRAMS / "repeat.c", tmp_path / "repeat"
    toolchain.compiled(source, program, prefix, "-std=gnu11", *SANITIZERS)

    def run(server: str, transfer: str, rows: int = ROWS, rounds: int = ROUNDS) -> list[str]:
        command = [str(program), str(rows), str(rounds)]
        return toolchain.run(command, ZDNN_SERVER=server, ZDNN_TRANSFER=transfer).splitlines()

    return run


@contextmanager
def _counting(folder: Path) -> Generator[tuple[str, Callable[[], tuple[int, int]]]]:
    """Run a server; yield its address, and a function of the bytes that it received and sent."""
    folder.mkdir()
    flags = ("--listen", f"unix:{folder}/nnpa.sock", "--metrics", "127.0.0.1:0")
    with serving(folder, *flags, "--shared-memory") as server:

        def moved() -> tuple[int, int]:
            samples = scrape(server)
            received, sent = (
                samples.get(sample("nnpa_bytes_total", direction=direction), 0)
                for direction in ("received", "sent")
            )
            return int(received), int(sent)

        yield server.address, moved


@pytest.mark.parametrize("plain", [True, False])
def test_sticks_travel_once(repeat: Repeat, server: str, tmp_path: Path, plain: bool) -> None:
    """With the cache only new contents go up; with shared memory no sticks travel at all.

    The cache does the same through a relay, which has no plain socket and shares no memory.
    """
    runs: dict[str, tuple[list[str], int, int]] = {}
    for transfer in TRANSFERS if plain else ("sticks", "cache"):
        if plain:
            with _counting(tmp_path / transfer) as (address, moved):
                runs[transfer] = repeat(address, transfer), *moved()
        else:
            with relaying(tmp_path / transfer, server) as relay:
                runs[transfer] = repeat(relay.address, transfer), relay.sent, relay.answered
    assert runs.get("shm", runs["cache"])[0] == runs["cache"][0] == runs["sticks"][0]
    assert len(runs["cache"][0]) == ROUNDS + 1
    array, changes = 2 * STICKS, 1 + (ROUNDS - 2) // 3
    assert runs["sticks"][1] > array + 2 * ROUNDS * STICKS
    assert runs["cache"][1] < array + changes * STICKS + MIB // 4
    assert runs["cache"][2] < runs["sticks"][2] + MIB // 4
    assert not plain or sum(runs["shm"][1:]) < MIB // 4


def test_older_outputs_are_recalled(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """An operation's output does not travel again, however old, unless the program changes it."""
    program, count = tmp_path / "recall", 7
    source = PROGRAMS / "recall.c"
    toolchain.compiled(source, program, prefix, "-std=gnu11", *SANITIZERS)
    runs: dict[str, tuple[str, int]] = {}
    for transfer in ("sticks", "cache"):
        with relaying(tmp_path / transfer, server) as relay:
            variables = {"ZDNN_SERVER": relay.address, "ZDNN_TRANSFER": transfer}
            lines = toolchain.run([str(program), str(ROWS), str(count)], **variables)
            runs[transfer] = lines, relay.sent
    assert runs["cache"][0] == runs["sticks"][0]
    assert len(runs["cache"][0].splitlines()) == 2 * count + 1
    array, changed = 2 * STICKS, STICKS  # both operands are the changed one: it goes once
    assert runs["cache"][1] < array + changed + MIB // 4
    assert runs["sticks"][1] > array + 4 * count * STICKS


@pytest.mark.parametrize(("rows", "tensors"), [(ROWS, 3.5), (8192 + 64, 4.5)])
def test_forgotten_contents_are_sent_again(
    repeat: Repeat, server: str, tmp_path: Path, rows: int, tensors: float
) -> None:
    """A cache that forgets behind the library's back costs time only, also for large tensors."""
    room = int(rows * 1024 * 2 * tensors)
    flags = ("--listen", f"unix:{tmp_path}/small.sock", "--max-session-bytes", str(room))
    with serving(tmp_path, *flags, "--max-session-cache", str(room)) as small:
        assert repeat(small.address, "cache", rows) == repeat(server, "sticks", rows)
        small.stop()
        assert "CACHE_MISS" in small.log_text()


@pytest.mark.parametrize("transfer", ["cache", "shm"])
def test_an_overwritten_output_takes_no_room(repeat: Repeat, tmp_path: Path, transfer: str) -> None:
    """An output in the buffer of an older output replaces it on the server, too."""
    flags = ("--listen", f"unix:{tmp_path}/one.sock", "--shared-memory")
    rounds = 90
    with serving(tmp_path, *flags, "--log-format", "json") as server:
        repeat(server.address, transfer, ROWS, rounds)
        server.stop()
        lines = [json.loads(line) for line in server.log_text().splitlines()]
    (ended,) = (line for line in lines if line.get("event") == "session_ended")
    sent = 2 + rounds // 3  # versions of the operand that the program changes itself
    assert ended["most_bytes"] < (sent + 8) * STICKS


def test_server_without_a_cache(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Without a cache on the server all sticks travel, and nothing else differs."""
    flags = ("--listen", f"unix:{tmp_path}/none.sock", "--max-session-cache", "0")
    with serving(tmp_path, *flags) as none:
        assert repeat(none.address, "cache") == repeat(server, "sticks")
        none.stop()
        assert "CACHE_MISS" not in none.log_text()


def test_memory_is_shared_only_where_it_can_be(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Sticks travel over TCP, through a relay, and to a server without --shared-memory."""
    flags = ("--listen", f"unix:{tmp_path}/plain.sock", "--listen", "127.0.0.1:0")
    expected = repeat(server, "shm")
    with serving(tmp_path, *flags, listeners=2) as plain:
        for address in plain.addresses:
            assert repeat(address, "shm") == expected
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--shared-memory") as far:
        assert repeat(far.address, "shm") == expected
    with relaying(tmp_path / "relay", server) as relay:
        assert repeat(relay.address, "shm") == expected
        assert relay.sent > STICKS


def test_large_tensors_need_not_travel(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """The cache takes tensors that go in chunks, and shared memory takes them whole."""
    rows = 8192 + 64
    expected = repeat(server, "sticks", rows)
    with relaying(tmp_path / "relay", server) as relay:
        assert repeat(relay.address, "cache", rows) == expected
        assert relay.sent < rows * 1024 * (4 + 2 * (1 + (ROUNDS - 2) // 3)) + MIB
    with _counting(tmp_path / "near") as (address, moved):
        assert repeat(address, "shm", rows) == expected
        assert sum(moved()) < MIB
