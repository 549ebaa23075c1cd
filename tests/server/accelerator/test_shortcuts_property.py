# SPDX-License-Identifier: Apache-2.0
"""Random lists of operations give the same bytes with and without shortcuts.

Two servers run the same random programs, one with every shortcut and one plain; answers, errors and
tensors are compared byte for byte. NNPA_PROPERTY_LISTS is how many lists (200, and 2,000 where
heavy tests run), NNPA_PROPERTY_SEED the first program's number; a program that differs is printed
with its number, shrunk.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grpc import StatusCode
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa_server.config import SHORTCUTS

from tests.client.server_process import serving
from tests.server.accelerator.paired_runs import Met, Pair, Side, shrink
from tests.server.accelerator.random_programs import LISTS, Program, program
from tests.server.conftest import CONFIG, Running
from tests.server.wire import load, op, refused

PLAIN_FLAGS = ("--plain",)
"""How a server is started without shortcuts."""
FLAGS = ("--allow-faults", "--max-session-tensors", "300")
CHOSEN = os.environ.get("NNPA_PROPERTY_LISTS")
COUNTS = [int(CHOSEN)] if CHOSEN else [200, pytest.param(2000, marks=pytest.mark.heavy)]
SEED = int(os.environ.get("NNPA_PROPERTY_SEED", "1"))
OPERATION_SPECS = {arm.name: arm.number for arm in wire.Operation.DESCRIPTOR.oneofs[0].fields}
ENVIRONMENT = 100  # from here on arms ask the machine: not all of them can fail
ENOUGH = 2000  # lists that meet every operation, OK and not
PROGRESS_SECONDS = 30.0


@contextmanager
def pair(folder: Path) -> Generator[Pair]:
    """Start both servers."""
    with ExitStack() as stack:
        sides: list[Side] = []
        for name, flags in (("all", ()), ("plain", PLAIN_FLAGS)):
            listen = [f"unix:{folder / name}"]
            (address,) = stack.enter_context(serving(listen, *FLAGS, *flags))
            sides.append(stack.enter_context(Side(address)))
        yield Pair(*sides)


@pytest.mark.shortcut
@pytest.mark.parametrize("count", COUNTS)
def test_shortcuts_change_no_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """Answers, errors and tensors are the same, and every operation is OK once and fails once."""
    met: Met = Counter()
    began = printed = time.monotonic()
    with pair(tmp_path) as sides:
        for number in range(SEED, SEED + -(-count // LISTS)):
            generated = program(number)
            if difference := sides.difference(generated, met):
                pytest.fail(_report(sides, generated, difference))
            if time.monotonic() - printed > PROGRESS_SECONDS:
                printed = time.monotonic()
                with capsys.disabled():
                    done = (number - SEED + 1) * LISTS
                    print(
                        f"\n{done:,} of {count:,} lists, {printed - began:.0f} s", file=sys.stderr
                    )
    print(f"seed {SEED}, {count:,} lists, {time.monotonic() - began:.1f} s")
    _summarize(met, count)


def _summarize(met: Met, count: int) -> None:
    """Print the answers of each operation; enough lists meet each one OK, and not OK."""
    missing: list[str] = []
    for arm, number in OPERATION_SPECS.items():
        answers = {answer: times for (name, answer), times in met.items() if name == arm}
        print(f"{arm}: {', '.join(f'{name} {times}' for name, times in sorted(answers.items()))}")
        if "ZDNN_OK" not in answers:
            missing.append(f"{arm} is never OK")
        if len(answers) < 2 and number < ENVIRONMENT:
            missing.append(f"{arm} never fails")
    assert not missing or count < ENOUGH, missing


def _report(sides: Pair, differing: Program, difference: str) -> str:
    """Describe a difference: how to repeat it, and the smallest program that has it."""
    least = shrink(differing, lambda smaller: sides.difference(smaller, Counter()) is not None)
    steps = "\n".join(f"# {type(step).__name__}\n{step}" for step in least.steps)
    return (
        f"NNPA_PROPERTY_SEED={differing.seed} NNPA_PROPERTY_LISTS={LISTS}: {difference}\n"
        f"session: {differing.options}\n"
        f"{len(least.steps)} of {len(differing.steps)} steps differ still:\n"
        f"{steps}\n{sides.difference(least, Counter())}"
    )


def test_a_program_that_differs_is_shrunk() -> None:
    """Shrinking leaves the one operation that makes the difference, alone in its list."""

    def lists(candidate: Program) -> list[pb.ExecuteRequest]:
        return [step for step in candidate.steps if isinstance(step, pb.ExecuteRequest)]

    def differs(candidate: Program) -> bool:
        operations = [operation for step in lists(candidate) for operation in step.operations]
        return any(operation.HasField("allochelper_ztensor") for operation in operations)

    least = shrink(next(filter(differs, map(program, range(100)))), differs)
    (step,) = least.steps
    assert isinstance(step, pb.ExecuteRequest)
    assert [operation.WhichOneof("operation") for operation in step.operations] == [
        "allochelper_ztensor"
    ]


@pytest.mark.heavy
def test_a_difference_is_told_with_its_place(tmp_path: Path) -> None:
    """A server with another limit differs where the limit is met, as the report says."""
    with ExitStack() as stack:
        listen = [[f"unix:{tmp_path / name}"] for name in ("large", "small")]
        (large,) = stack.enter_context(serving(listen[0], *FLAGS))
        (small,) = stack.enter_context(serving(listen[1], *FLAGS, "--max-session-tensors", "2"))
        sides = Pair(*(stack.enter_context(Side(address)) for address in (large, small)))
        differing = next(
            candidate
            for candidate in map(program, range(20))
            if sides.difference(candidate, Counter())
        )
        report = _report(sides, differing, sides.difference(differing, Counter()) or "")
    assert f"NNPA_PROPERTY_SEED={differing.seed} " in report
    assert "TENSOR_QUOTA_EXCEEDED" in report


@pytest.fixture(
    params=[frozenset[str](), frozenset(("out-of-band-arrays",)), frozenset(SHORTCUTS)],
    ids=["all", "no out-of-band-arrays", "plain"],
)
def codec(request: pytest.FixtureRequest) -> Generator[Running]:
    """A server with each of the codecs of lists."""
    plain: frozenset[str] = request.param
    server = Running(replace(CONFIG, plain=plain))
    yield server
    server.stop()


def execute_bytes(server: Running) -> Callable[[bytes], pb.ExecuteResponse]:
    """Return Execute with requests as they travel."""
    return server.channel.unary_unary(
        "/nnpa.zdnn.v1.AcceleratorService/Execute", bytes, pb.ExecuteResponse.FromString
    )


def test_no_message_for_no_session(codec: Running) -> None:
    """A malformed operation is reported before a session that does not exist."""
    execute = execute_bytes(codec)
    for name in (b"sessions/none", codec.client().session.encode()):
        with refused(StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
            execute(bytes((0x0A, len(name), *name, 0x12, 2, 0x0A, 0x7F)))


def test_the_last_name_of_a_session_counts(codec: Running) -> None:
    """A list that names two sessions, in whatever order and form, is run in the last of them."""
    execute = execute_bytes(codec)
    empty, full = codec.client(), codec.client()
    full.run(*load(1, np.ones((2, 3), np.float32)))
    first, last = (
        pb.ExecuteRequest(session=client.session).SerializeToString() for client in (empty, full)
    )
    add = op("add", input_a=1, input_b=1, output=1)
    operations = pb.ExecuteRequest(operations=[add, add]).SerializeToString()
    long_tag = b"\x8a\x00" + last[1:]
    for form in ((first, operations, last), (first, last, operations), (operations, first, last)):
        for _ in range(3):
            execute(b"".join(form))
    execute(first + operations + long_tag)
    assert np.array_equal(full.array(1), np.full(6, 4.0**10, np.float32))
    with refused(StatusCode.NOT_FOUND, "TENSOR_NOT_FOUND"):
        execute(last + operations + first)


@pytest.mark.parametrize(
    "cut", [b"\x0a", b"\x0a\x09sessions", b"\x0a\x01a\x12", b"\x0a\x01a\x12\x80"]
)
def test_a_cut_list_is_no_message(codec: Running, cut: bytes) -> None:
    """Bytes that end too early are refused as no message, whichever codec reads them."""
    execute = execute_bytes(codec)
    with refused(StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        execute(cut)
