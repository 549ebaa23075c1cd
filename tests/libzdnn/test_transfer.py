# SPDX-License-Identifier: Apache-2.0
"""How sticks travel, ZDNN_TRANSFER: fewer bytes, the same results, whatever is forgotten."""

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
    """Run a server; yield its address, and what returns the bytes that it received and sent."""
    folder.mkdir()
    flags = ("--listen", f"unix:{folder}/nnpa.sock", "--metrics", "127.0.0.1:0")
    with serving(folder, *flags, "--shared-memory") as server:

        def moved() -> tuple[int, int]:
            samples = scrape(server)
            received, sent = (
                samples.get(sample("nnpa_bytes_total", direction=one), 0)
                for one in ("received", "sent")
            )
            return int(received), int(sent)

        yield server.address, moved


@pytest.mark.parametrize("plain", [True, False])
def test_sticks_travel_once(repeat: Repeat, server: str, tmp_path: Path, plain: bool) -> None:
    """With the cache what is new goes up, and no more; in shared memory nothing travels at all.

    Through a relay, which has no plain socket, it is the same, but nothing is shared.
    """
    told: dict[str, tuple[list[str], int, int]] = {}
    for transfer in TRANSFERS if plain else ("sticks", "cache"):
        if plain:
            with _counting(tmp_path / transfer) as (address, moved):
                told[transfer] = repeat(address, transfer), *moved()
        else:
            with relaying(tmp_path / transfer, server) as relay:
                told[transfer] = repeat(relay.address, transfer), relay.sent, relay.answered
    assert told.get("shm", told["cache"])[0] == told["cache"][0] == told["sticks"][0]
    assert len(told["cache"][0]) == ROUNDS + 1
    array, changes = 2 * STICKS, 1 + (ROUNDS - 2) // 3
    assert told["sticks"][1] > array + 2 * ROUNDS * STICKS
    assert told["cache"][1] < array + changes * STICKS + MIB // 4
    assert told["cache"][2] < told["sticks"][2] + MIB // 4
    assert not plain or sum(told["shm"][1:]) < MIB // 4


def test_older_outputs_are_recalled(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """What an operation wrote does not travel again, however old; what was changed does."""
    program, count = tmp_path / "recall", 7
    source = PROGRAMS / "recall.c"
    toolchain.compiled(source, program, prefix, "-std=gnu11", *SANITIZERS)
    told: dict[str, tuple[str, int]] = {}
    for transfer in ("sticks", "cache"):
        with relaying(tmp_path / transfer, server) as relay:
            variables = {"ZDNN_SERVER": relay.address, "ZDNN_TRANSFER": transfer}
            lines = toolchain.run([str(program), str(ROWS), str(count)], **variables)
            told[transfer] = lines, relay.sent
    assert told["cache"][0] == told["sticks"][0]
    assert len(told["cache"][0].splitlines()) == 2 * count + 1
    array, changed = 2 * STICKS, STICKS  # both operands are the changed one: it goes once
    assert told["cache"][1] < array + changed + MIB // 4
    assert told["sticks"][1] > array + 4 * count * STICKS


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
def test_what_was_overwritten_takes_no_room(repeat: Repeat, tmp_path: Path, transfer: str) -> None:
    """An output in the buffer of another one takes its room on the server, too."""
    flags = ("--listen", f"unix:{tmp_path}/one.sock", "--shared-memory")
    rounds = 90
    with serving(tmp_path, *flags, "--log-format", "json") as one:
        repeat(one.address, transfer, ROWS, rounds)
        one.stop()
        lines = [json.loads(line) for line in one.log_text().splitlines()]
    (ended,) = (line for line in lines if line.get("event") == "session_ended")
    sent = 2 + rounds // 3  # versions of the operand that the program changes itself
    assert ended["most_bytes"] < (sent + 8) * STICKS


def test_server_without_a_cache(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Where the server has no cache, all sticks travel, and nothing else is different."""
    flags = ("--listen", f"unix:{tmp_path}/none.sock", "--max-session-cache", "0")
    with serving(tmp_path, *flags) as none:
        assert repeat(none.address, "cache") == repeat(server, "sticks")
        none.stop()
        assert "CACHE_MISS" not in none.log_text()


def test_memory_is_shared_only_where_it_can_be(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Over TCP, through a relay, and of a server that was not told to, sticks travel."""
    flags = ("--listen", f"unix:{tmp_path}/plain.sock", "--listen", "127.0.0.1:0")
    wanted = repeat(server, "shm")
    with serving(tmp_path, *flags, listeners=2) as plain:
        for address in plain.addresses:
            assert repeat(address, "shm") == wanted
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--shared-memory") as far:
        assert repeat(far.address, "shm") == wanted
    with relaying(tmp_path / "relay", server) as relay:
        assert repeat(relay.address, "shm") == wanted
        assert relay.sent > STICKS


def test_large_tensors_need_not_travel(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Tensors that go in chunks are cached as others are, and pass in shared memory whole."""
    rows = 8192 + 64
    wanted = repeat(server, "sticks", rows)
    with relaying(tmp_path / "relay", server) as relay:
        assert repeat(relay.address, "cache", rows) == wanted
        assert relay.sent < rows * 1024 * (4 + 2 * (1 + (ROUNDS - 2) // 3)) + MIB
    with _counting(tmp_path / "near") as (address, moved):
        assert repeat(address, "shm", rows) == wanted
        assert sum(moved()) < MIB
