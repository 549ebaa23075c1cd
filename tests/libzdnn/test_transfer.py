# SPDX-License-Identifier: Apache-2.0
"""How sticks travel, ZDNN_TRANSFER: fewer bytes, the same results, whatever is forgotten."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.relay import relaying
from tests.libzdnn.toolchain import TRANSFERS, Prefix
from tests.server.process import serving

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


def test_sticks_travel_once(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """With the cache what is new goes up, and no more; in shared memory nothing travels at all."""
    told: dict[str, tuple[list[str], int, int]] = {}
    for transfer in TRANSFERS:
        with relaying(tmp_path / transfer, server) as relay:
            told[transfer] = repeat(relay.address, transfer), relay.sent, relay.answered
    assert told["shm"][0] == told["cache"][0] == told["sticks"][0]
    assert len(told["cache"][0]) == ROUNDS + 1
    array, changes = 2 * STICKS, 1 + (ROUNDS - 2) // 3
    assert told["sticks"][1] > array + 2 * ROUNDS * STICKS
    assert told["cache"][1] < array + changes * STICKS + MIB // 4
    assert told["cache"][2] < told["sticks"][2] + MIB // 4
    assert sum(told["shm"][1:]) < MIB // 4


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
    """Over TCP, and of a server that was not told to, sticks travel; no object is left behind."""
    before = set(Path("/dev/shm").glob("nnpa-libzdnn-*"))
    flags = ("--listen", f"unix:{tmp_path}/plain.sock", "--listen", "127.0.0.1:0")
    wanted = repeat(server, "shm")
    with serving(tmp_path, *flags, listeners=2) as plain:
        for address in plain.addresses:
            assert repeat(address, "shm") == wanted
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--shared-memory") as far:
        assert repeat(far.address, "shm") == wanted
    assert set(Path("/dev/shm").glob("nnpa-libzdnn-*")) == before


def test_large_tensors_need_not_travel(repeat: Repeat, server: str, tmp_path: Path) -> None:
    """Tensors that go in chunks are cached as others are, and pass in shared memory whole."""
    rows = 8192 + 64
    wanted = repeat(server, "sticks", rows)
    with relaying(tmp_path / "relay", server) as relay:
        assert repeat(relay.address, "cache", rows) == wanted
        assert relay.sent < rows * 1024 * (4 + 2 * (1 + (ROUNDS - 2) // 3)) + MIB
        travelled = relay.sent + relay.answered
        assert repeat(relay.address, "shm", rows) == wanted
        assert relay.sent + relay.answered < travelled + MIB
