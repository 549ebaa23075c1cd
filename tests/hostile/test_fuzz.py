# SPDX-License-Identifier: Apache-2.0
"""The fuzzer: a seed alone determines its cases, and its oracles see faults."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from nnpa.zdnn.v1 import status_pb2

from tests.hostile import corpus, fuzz, state
from tests.hostile.broken_server import executable
from tests.hostile.calls import Answer
from tests.hostile.corpus import Case
from tests.hostile.methods import PLAIN_SOCKET, documented_codes, fault_of, is_past_session, methods
from tests.hostile.recorded_calls import recorded_calls
from tests.hostile.target import OWN_SERVER

EXECUTE = "/nnpa.zdnn.v1.AcceleratorService/Execute"
CASES = 300
QUICK = ("--plain=warm-up",)


def _digest() -> str:
    cases = [corpus.case(7, number) for number in range(CASES)]
    return sha256(b"|".join(b"".join(case.messages) for case in cases)).hexdigest()


@pytest.mark.heavy
def test_the_seed_reproduces() -> None:
    """Another process, with other hashes, makes the same cases of a seed; another seed does not."""
    command = "from tests.hostile.test_fuzz import _digest; print(_digest())"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=state.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == _digest()
    assert corpus.case(7, 5) != corpus.case(8, 5)


def test_every_method_is_fuzzed() -> None:
    """Each method, and the plain socket, has recordings and takes its turn."""
    assert len(methods()) == 56
    assert {corpus.case(1, number).path for number in range(len(methods()))} == set(methods())
    assert all(recorded_calls().values())


def test_every_reason_has_a_documented_code() -> None:
    """The contract's comments say which code comes with which reason."""
    names = {
        name.removeprefix("ERROR_REASON_")
        for name in status_pb2.ErrorReason.DESCRIPTOR.values_by_name
    }
    assert documented_codes().keys() == names - {"UNSPECIFIED"}


@pytest.mark.parametrize(
    ("path", "answer", "fault"),
    [
        (EXECUTE, Answer("OK"), ""),
        (EXECUTE, Answer("NOT_FOUND", "TENSOR_NOT_FOUND"), ""),
        (EXECUTE, Answer("ABORTED", "TENSOR_NOT_FOUND"), "ABORTED with TENSOR_NOT_FOUND"),
        (EXECUTE, Answer("INTERNAL", "INTERNAL", "x"), "INTERNAL: x"),
        (EXECUTE, Answer("UNKNOWN", "", "x"), "UNKNOWN: x"),
        (EXECUTE, Answer("RESOURCE_EXHAUSTED"), ""),
        (EXECUTE, Answer("NOT_FOUND", "", "x"), "NOT_FOUND without a reason: x"),
        ("/grpc.health.v1.Health/Check", Answer("NOT_FOUND"), ""),
    ],
)
def test_codes_are_judged(path: str, answer: Answer, fault: str) -> None:
    """A code that is not documented for its reason is a fault."""
    assert fault_of(path, answer) == fault


def test_calls_past_the_session() -> None:
    """A call counts when it came past its session's check; without sessions, when it is OK."""
    assert is_past_session(PLAIN_SOCKET, Answer("OK"))
    assert is_past_session(
        "/inference.X/LogSettings", Answer("UNIMPLEMENTED", "EXTENSION_NOT_OFFERED")
    )
    assert is_past_session(EXECUTE, Answer("NOT_FOUND", "TENSOR_NOT_FOUND"))
    assert not is_past_session(EXECUTE, Answer("NOT_FOUND", "SESSION_NOT_FOUND"))
    garbage = Answer("INVALID_ARGUMENT", "FIELD_INVALID", facts={"field": "request"})
    assert not is_past_session(EXECUTE, garbage)
    inference = "/inference.GRPCInferenceService/ModelInfer"
    assert not is_past_session(inference, Answer("NOT_FOUND", "MODEL_NOT_FOUND"))


def test_cases_become_small() -> None:
    """Messages and bytes that do not matter are left out."""
    case = Case(EXECUTE, (b"some bytes", b"before!and after", b"more"), "1:1")
    smallest = corpus.minimise(case, lambda smaller: b"!" in b"".join(smaller.messages))
    assert smallest.messages == (b"!",)


def test_the_corpus_is_readable(tmp_path: Path) -> None:
    """Kept cases are read back unchanged; cases of the repository name existing methods."""
    case = Case(EXECUTE, (b"\x0a", b""), "1:2")
    corpus.keep(case, "INTERNAL: it failed", tmp_path)
    (kept,) = corpus.kept_cases(tmp_path)
    assert (kept.path, kept.messages) == (case.path, case.messages)
    assert {kept.path for kept in corpus.kept_cases()} <= set(methods())


def test_a_run_goes_on(tmp_path: Path) -> None:
    """A file of state holds all that a run has done; it is a run of one seed."""
    path = tmp_path / "fuzz.json"
    progress = fuzz.Progress(3, next=17, seconds=2.5)
    progress.methods[EXECUTE] = fuzz.MethodCount(9, 8, 7, 0.5)
    progress.findings.append(fuzz.Finding("INTERNAL", EXECUTE, "3:4"))
    progress.codes["OK"] = 7
    state.save(path, progress.to_json())
    assert fuzz.Progress.load(path, 3) == progress
    with pytest.raises(SystemExit, match="seed 3"):
        fuzz.Progress.load(path, 4)
    assert fuzz.Progress.load(tmp_path / "none", 4) == fuzz.Progress(4)


def test_a_run_ends() -> None:
    """Seconds and messages end a run, thrice the seconds for calls that lack; else calls do."""
    some = {EXECUTE: fuzz.MethodCount(9, 2)}
    few = fuzz.Progress(1, next=99, seconds=9.0, methods=some)
    late = fuzz.Progress(1, seconds=27.0, methods=some)
    enough = fuzz.Progress(1, methods={path: fuzz.MethodCount(9, 3) for path in methods()})
    for progress, bounds, is_over in (
        (few, fuzz.Bounds(seconds=9.0), True),
        (few, fuzz.Bounds(seconds=9.0, calls=3), False),
        (late, fuzz.Bounds(seconds=9.0, calls=3), True),
        (few, fuzz.Bounds(messages=99, calls=3), True),
        (few, fuzz.Bounds(calls=3), False),
        (enough, fuzz.Bounds(calls=3), True),
        (enough, fuzz.Bounds(seconds=9.0, calls=3), False),
    ):
        assert fuzz.Fuzzer(OWN_SERVER, progress, bounds).is_over() == is_over
    assert len(fuzz.Fuzzer(OWN_SERVER, few, fuzz.Bounds(calls=3)).lacking()) == len(methods())


@pytest.mark.heavy
def test_recorded_calls_are_valid() -> None:
    """Every recorded call, as it was recorded, is answered as documented and past its session."""
    cases = [
        Case(path, tuple(message.SerializeToString() for message in recording), str(number))
        for path, recordings in recorded_calls().items()
        for number, recording in enumerate(recordings)
    ]
    ends = fuzz.replay(OWN_SERVER, iter(cases), QUICK)
    assert [str(end) for end in ends if end.fault] == []
    assert {end.case.path for end in ends if end.is_past} == set(methods())


@pytest.mark.heavy
def test_the_corpus_breaks_nothing() -> None:
    """Cases that once broke a server are answered as documented."""
    ends = fuzz.replay(OWN_SERVER, corpus.kept_cases(), QUICK)
    assert [str(end) for end in ends if end.fault] == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fault", "text"),
    [("wrong-bits", "wrong answer"), ("internal", "a planted failure"),
     ("traceback", "a traceback in the log"), ("descriptors", "descriptors at rest")],
)  # fmt: skip
def test_a_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, text: str
) -> None:
    """The fuzzer finds a fault planted into a server within a few hundred messages."""
    monkeypatch.setattr(fuzz, "REST_SECONDS", 0.5)
    progress = fuzz.Progress(1)
    bounds = fuzz.Bounds(messages=600)
    fuzz.Fuzzer(executable(tmp_path, fault), progress, bounds, flags=QUICK).run()
    assert text in " ".join(finding.text for finding in progress.findings)
    assert progress.next == 600
