# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance score`: totals are made by runs, and files of real machines are rows."""

import json
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa_client import Session, zdnn
from nnpa_client.cli import main
from nnpa_client.conformance import (
    FILES,
    OUTCOMES,
    SUITES,
    Case,
    Score,
    Suite,
    SuiteKind,
    Tree,
    markdown,
    page,
    run_suite,
    summed,
    tree,
)
from nnpa_client.conformance.page import badge

from tests import vector_runner
from tests.score import shared_vectors
from tests.vector_runner import VECTORS

ROOT = Path(__file__).parents[2]
HERE = Tree(ROOT, True)
KINDS = {kind.name: kind for kind in SUITES}
HEADING = {"results": 1, "machine": "z17", "library": "1.2.0", "date": "2026-11-26", "note": "ours"}
HOSTILE = "<script>alert(1)</script>\x1b[31m"
Json = dict[str, Any]
Open = Callable[..., Session]


def silent(_done: int, _of: int) -> None:
    """Take no notice of progress."""


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A folder with the vectors of relu."""
    folder = tmp_path / "vectors"
    folder.mkdir()
    shutil.copy(VECTORS / "relu.jsonl", folder)
    return folder


@pytest.fixture(scope="module")
def answers(server_target: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a machine with the emulator's numbers answers to the vectors of relu for Telum II."""
    folder = tmp_path_factory.mktemp("answers")
    shutil.copy(VECTORS / "relu.jsonl", folder)
    _, cases = shared_vectors.cases(folder, server_target, folder / "kept")
    machines = {case.name: case.machine for case in cases}
    lines = (folder / "kept").read_text().splitlines()
    return [line for line in lines if machines[json.loads(line)["name"]] == "telum2"]


def sent(path: Path, answers: list[str], **heading: Any) -> Path:
    """Write a file as a real machine's."""
    lines = [json.dumps({**HEADING, **heading}), *answers, json.dumps({"end": len(answers)})]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def score(vectors: Path, *words: Path | str) -> Result:
    """Score vectors of a folder."""
    command = ["conformance", "score", "--suite", "vectors", "--vectors", str(vectors)]
    return CliRunner().invoke(main, [*command, "--json", *map(str, words)])


def data(ended: Result) -> Json:
    """Return a score without what depends on the clock."""
    scored: Json = json.loads(ended.stdout)
    for suite in scored["suites"]:
        del suite["seconds"]
    return scored


def with_another_bit(answers: list[str]) -> list[str]:
    """Return answers of which one has the last bit of its first element turned."""
    at = next(at for at, line in enumerate(answers) if '"memory"' in line)
    answer = json.loads(answers[at])
    operand = next(iter(answer["steps"][0]["outputs"].values()))
    first, *others = vector_runner.words(operand["memory"])
    operand["memory"] = " ".join([f"{int(first, 16) ^ 1:04X}", *others])
    return [*answers[:at], json.dumps(answer), *answers[at + 1 :]]


def test_a_broken_vector_changes_the_totals(vectors: Path, tmp_path: Path) -> None:
    """Totals are counted: a vector with another expectation moves from passed to failed."""
    before = score(vectors)
    lines = (vectors / "relu.jsonl").read_text().splitlines()
    broken = json.loads(lines[0])
    broken["steps"][-1]["status"] = "ZDNN_INVALID_STRIDES"
    lines[0] = json.dumps(broken)
    (vectors / "relu.jsonl").write_text("".join(f"{line}\n" for line in lines))
    after = score(vectors, "--out", tmp_path / "out")
    assert (before.exit_code, after.exit_code) == (0, 1)
    totals = [data(ended)["totals"] for ended in (before, after)]
    assert totals[0]["passed"] - totals[1]["passed"] == 1
    assert (totals[0]["failed"], totals[1]["failed"]) == (0, 1)
    (failure,) = data(after)["suites"][0]["failures"]
    assert (failure["group"], failure["case"]) == ("relu", broken["name"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(FILES)
    assert json.loads((tmp_path / "out/score.json").read_text())["totals"] == totals[1]


def test_a_line_that_is_no_vector_is_a_failed_case(vectors: Path) -> None:
    """A file cut in the middle of a line has a case that failed."""
    text = (vectors / "relu.jsonl").read_text()
    (vectors / "relu.jsonl").write_text(text[: len(text) // 2])
    ended = score(vectors)
    assert ended.exit_code == 1
    assert data(ended)["totals"]["failed"] == 1


def test_a_file_dropped_in_changes_exactly_its_row(
    vectors: Path, answers: list[str], tmp_path: Path
) -> None:
    """A file of a z17 changes the row of the z17, and another bit in it that row again."""
    folder = tmp_path / "sent"
    folder.mkdir()
    scores = [score(vectors, folder)]
    file = sent(folder / "z17.jsonl", answers)
    scores.append(score(vectors, folder))
    sent(file, with_another_bit(answers))
    scores.append(score(vectors, folder))
    assert [ended.exit_code for ended in scores] == [0, 0, 1]
    rows = [data(ended)["real_machines"] for ended in scores]
    assert [row["machine"] for row in rows[0]] == ["telum1", "telum2"]
    assert [row[0] for row in rows] == [rows[0][0]] * 3
    assert [row[1]["equal"] for row in rows] == [None, True, False]
    (relu,) = rows[2][1]["functions"]
    assert (relu["function"], relu["worst"], relu["ulps"]["1"]) == ("relu", 1, 1)
    without = [
        {key: value for key, value in data(ended).items() if key not in ("real_machines", "right")}
        for ended in scores
    ]
    assert without == [without[0]] * 3


def test_a_trace_is_a_row(vectors: Path, open_session: Open, tmp_path: Path) -> None:
    """A program's trace, with a heading beside it, is replayed and compared call by call."""
    file = tmp_path / "program.nnpa"
    session = open_session("telum2")
    with session.trace(file, contents=True):
        a = session.ztensor(np.ones((2, 3), np.float32))
        zdnn.add(a, a).numpy()
    (tmp_path / "program.nnpa.json").write_text(json.dumps(HEADING))
    ended = score(vectors, file)
    assert ended.exit_code == 0, ended.output
    (row,) = (row for row in data(ended)["real_machines"] if row["file"])
    assert row["equal"]
    assert "add" in {line["function"] for line in row["functions"]}


BAD = {
    "no heading": (dict.fromkeys(HEADING), "begins without a heading"),
    "newer": ({"results": 2}, "results of version 2, expected version 1: a newer zdnn-testee"),
    "unknown machine": ({"machine": "z99"}, "machine: 'z99', expected one of telum1 (z16)"),
    "no accelerator": ({"machine": "z15"}, "machine: 'z15', expected one of telum1 (z16)"),
    "hostile machine": ({"machine": HOSTILE}, "expected one of telum1 (z16)"),
    "unknown library": ({"library": "9.9"}, "library: '9.9', expected one of 1.0.0"),
    "no date": ({"date": "yesterday"}, "date: 'yesterday', expected YYYY-MM-DD"),
    "impossible date": ({"date": "2026-02-31"}, "date: '2026-02-31', day"),
    "number for a date": ({"date": 7}, "date: 7, expected text"),
    "long note": ({"note": "x" * 201}, "note: expected text of at most 200 characters"),
}


@pytest.mark.parametrize(("heading", "story"), BAD.values(), ids=[*BAD])
def test_a_bad_heading_ends_with_2(
    vectors: Path, tmp_path: Path, heading: Json, story: str
) -> None:
    """A heading is refused with file, key, value and what is expected, before anything runs."""
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [], **heading))
    assert ended.exit_code == 2
    assert "bad.jsonl" in ended.stderr
    assert story in " ".join(ended.stderr.split())
    assert "\x1b" not in ended.stderr


OUT_OF_SHAPE = {
    "cut in a line": ('{"results": 1, "ma', "line 1: no JSON"),
    "cut between lines": (f"{json.dumps(HEADING)}\n", "is the file cut off?"),
    "empty": ("", "begins without a heading"),
    "a list": ("[]\n", "list, expected an object"),
    "deep": ("[" * 100_000, "line 1: no JSON"),
    "other count": (f'{json.dumps(HEADING)}\n{{"end": 3}}\n', "0 answers and no line"),
}


@pytest.mark.parametrize(("text", "story"), OUT_OF_SHAPE.values(), ids=[*OUT_OF_SHAPE])
def test_a_truncated_file_ends_with_2(vectors: Path, tmp_path: Path, text: str, story: str) -> None:
    """A file that ends too early, or is none, is refused and named."""
    (tmp_path / "bad.jsonl").write_text(text)
    ended = score(vectors, tmp_path / "bad.jsonl")
    assert ended.exit_code == 2
    assert "bad.jsonl" in ended.stderr
    assert story in " ".join(ended.stderr.split())


MEMORIES: dict[str, tuple[Any, str]] = {
    "an enormous text": ("3E00*99999999999", "a text of 99999999999 words, at most 67108864"),
    "long words": ("3E003E003E00", "words of 12 digits, at most 8"),
    "no words": ("xyz", "an answer out of shape"),
    "a number": (7, "an answer out of shape"),
}


@pytest.mark.parametrize(("memory", "story"), MEMORIES.values(), ids=[*MEMORIES])
def test_answers_out_of_shape_end_with_2(
    vectors: Path, answers: list[str], tmp_path: Path, memory: Any, story: str
) -> None:
    """Answers that cannot be compared are refused without a traceback, and the file is named."""
    answer = next(json.loads(line) for line in answers if '"memory"' in line)
    next(iter(answer["steps"][0]["outputs"].values()))["memory"] = memory
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [json.dumps(answer)]))
    assert ended.exit_code == 2
    assert "bad.jsonl: an answer out of shape" in " ".join(ended.stderr.split())
    assert story in " ".join(ended.stderr.split())


def test_answers_to_other_vectors_end_with_2(vectors: Path, tmp_path: Path) -> None:
    """A file that answers none of the vectors here says nothing, and is refused."""
    text = json.dumps({"file": "no_function", "name": "x", "steps": []})
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [text]))
    assert ended.exit_code == 2
    assert "bad.jsonl: no answered vector in common" in " ".join(ended.stderr.split())


def test_files_that_are_not_there_or_meet_end_with_2(vectors: Path, tmp_path: Path) -> None:
    """No such file, no text, and two files of one name are the caller's error, each by its name."""
    (tmp_path / "other").mkdir()
    twice = [sent(tmp_path / "z17.jsonl", []), sent(tmp_path / "other/z17.jsonl", [])]
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for files, story in (
        ([tmp_path / "nowhere.jsonl"], "nowhere.jsonl' does not exist"),
        (twice, "z17.jsonl: two files of this name"),
        ([tmp_path / "binary.jsonl"], "binary.jsonl: neither a trace nor text in UTF-8"),
    ):
        ended = score(vectors, *files)
        assert ended.exit_code == 2
        assert story in " ".join(ended.stderr.split())


TRACES = {
    "no heading": (b"NNPATRC1", None, "takes a heading in program.nnpa.json"),
    "newer": (b"NNPATRC2", HEADING, "a trace of version 2, expected version 1: a newer nnpa"),
    "truncated": (b"NNPATRC1", HEADING, "program.nnpa"),
    "heading of a newer version": (b"NNPATRC1", {**HEADING, "results": 2}, "version 2"),
}


@pytest.mark.parametrize(("raw", "heading", "story"), TRACES.values(), ids=[*TRACES])
def test_a_bad_trace_ends_with_2(
    vectors: Path, tmp_path: Path, raw: bytes, heading: Json | None, story: str
) -> None:
    """A trace without a heading, of a newer version or without an end is refused and named."""
    (tmp_path / "program.nnpa").write_bytes(raw)
    if heading is not None:
        (tmp_path / "program.nnpa.json").write_text(json.dumps(heading))
    ended = score(vectors, tmp_path / "program.nnpa")
    assert ended.exit_code == 2
    assert story in " ".join(ended.stderr.split())


def test_hostile_names_are_text(vectors: Path, answers: list[str], tmp_path: Path) -> None:
    """Names and notes of a file are text on the page and in a terminal, whatever they say."""
    line = json.loads((vectors / "relu.jsonl").read_text().splitlines()[0])
    line["name"], line["steps"][0]["status"] = HOSTILE, "ZDNN_INVALID_STRIDES"
    (vectors / "relu.jsonl").write_text((VECTORS / "relu.jsonl").read_text() + json.dumps(line))
    file = sent(tmp_path / "<b>z17<b>.jsonl", answers, note=HOSTILE)
    command = ["conformance", "score", "--suite", "vectors", "--vectors", str(vectors)]
    ended = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "out"), str(file)])
    assert ended.exit_code == 1
    assert "\x1b" not in ended.stdout
    html = (tmp_path / "out/score.html").read_text()
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "<script" not in html
    assert "&lt;b&gt;z17&lt;b&gt;.jsonl" in html


def test_suites_that_are_left_out_are_rows(vectors: Path) -> None:
    """Every suite is a row in every score, with the reason where it did not run."""
    for words, why in ((["--quick"], "--quick leaves it out"), ([], "--suite leaves it out")):
        suites = data(score(vectors, *words))["suites"]
        assert [suite["name"] for suite in suites] == [kind.name for kind in SUITES]
        assert {suite["why"] for suite in suites if suite["name"] in ("sdks", "run")} == {why}
    command = ["conformance", "score", "--quick", "--suite", "laws"]
    ended = CliRunner().invoke(main, command)
    assert ended.exit_code == 2
    assert "nothing is left" in ended.stderr


@pytest.mark.parametrize("kind", SUITES, ids=lambda kind: kind.name)
def test_what_a_suite_lacks_is_its_reason(
    kind: SuiteKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a clone, or without what it imports, a suite is not run, and says so."""
    if not kind.is_quick:
        suite = run_suite(kind, Tree(tmp_path, False), VECTORS, None, silent)
        assert (suite.why, sum(suite.counts.values())) == ("takes a clone of the repository", 0)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    suite = run_suite(kind, HERE, VECTORS, None, silent)
    assert suite.why.endswith("is not installed")
    assert "nnpa_server" in suite.why


def test_a_missing_toolchain_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go the SDK's group is not run, with the tool that is missing as the reason."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("NNPA_REQUIRE_TOOLCHAINS", raising=False)
    words = ("tests/conformance/test_conformance.py", "-n0", "-k", "function and go-relu")
    suite = run_suite(SuiteKind("sdks", "SDKs", words, "subject"), HERE, VECTORS, None, silent)
    assert [group.name for group in suite.groups] == ["go"]
    assert suite.counts == {"passed": 0, "failed": 0, "refused": 0, "not run": 1}
    assert suite.skips == {"conformance of go: go not installed": 1}


TESTS = '''
import pytest

def test_passes():
    """A law that holds."""

def test_fails():
    """A law that does not."""
    assert 1 == 2

@pytest.mark.parametrize("number", ["first-telum1", "second-telum2"])
def test_is_skipped(number):
    """A law of which nothing is known."""
    pytest.skip("no qemu-s390x")

def test_tells(record_property):
    """A law of several cases."""
    record_property("score", [["passed", 40, ""], ["refused", 2, "no such tensor"]])
'''


def pytest_suite(file: Path, text: str) -> Suite:
    """Run a file of tests as a suite."""
    file.write_text(text)
    kind = SuiteKind("own", "own tests", (str(file), "-n0", "-c", str(ROOT / "pyproject.toml")))
    return run_suite(kind, HERE, VECTORS, None, silent)


def test_tests_are_cases(tmp_path: Path) -> None:
    """A test is a case under its law, or the cases that it tells; a skip has its reason."""
    suite = pytest_suite(tmp_path / "test_own.py", TESTS)
    assert suite.counts == {"passed": 41, "failed": 1, "refused": 2, "not run": 2}
    assert suite.skips == {"no qemu-s390x": 2}
    assert suite.refusals == {"no such tensor": 2}
    (failure,) = suite.failures
    assert (failure.group, failure.reason) == ("A law that does not.", "assert 1 == 2")


@pytest.mark.parametrize("text", ["import no_such_module_here", "def test_x(): raise SystemExit"])
def test_a_suite_that_breaks_has_failed(tmp_path: Path, text: str) -> None:
    """A module that cannot be imported, and a run that ends early, are failures, not silence."""
    assert pytest_suite(tmp_path / "test_own.py", text).counts["failed"] >= 1


def test_the_package_brings_along_what_its_suites_take(tmp_path: Path, vectors: Path) -> None:
    """Files that the wheel ships run vectors and reference cases without a clone."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    prefix = "nnpa_client/conformance/shipped/"
    for source, place in shipped.items():
        assert place.startswith(prefix)
        target = tmp_path / place.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, target)
    installed = Tree(tmp_path, False)
    (vectors / "mli").mkdir()
    shutil.copy(VECTORS / "mli/v1_tanh_fx8.json", vectors / "mli")
    for name in ("vectors", "mli"):
        suite = run_suite(KINDS[name], installed, vectors, None, silent)
        assert suite.counts["passed"] > 5, suite
        assert not suite.counts["failed"], suite.failures
    assert installed.not_public() == tree().not_public()
    assert len(installed.not_public()) > 10


def test_refused_cases_must_stay_so() -> None:
    """Counts are sums by outcome, reasons are counted, and another outcome is an error."""
    cases = [Case("add", "passed", count=3), Case("add", "refused", reason="no words", count=2)]
    suite = summed("own", "own", cases, 0.0)
    assert suite.counts == {"passed": 3, "failed": 0, "refused": 2, "not run": 0}
    assert suite.refusals == {"no words": 2}
    with pytest.raises(ValueError, match="outcome: 'lost', expected one of passed, failed"):
        summed("own", "own", [Case("add", "lost")], 0.0)


def test_the_page_has_every_row() -> None:
    """The page, the badge and the table say the totals, and each suite with why it did not run."""
    ran = summed("own", "Own vectors", [Case("add", "passed", "telum1", count=1234)], 0.0)
    missing = Suite("sdks", "SDKs", why="takes Go")
    scored = Score("0.1.0", "2026-11-26", False, (ran, missing), (), (("log", "not public"),))
    html = page(scored)
    for text in ("1,234 of 1,234 cases passed; not run: SDKs", "takes Go", "Own vectors", "log"):
        assert text in html
    assert "1,234 of 1,234" in badge(scored)
    table = markdown(scored.as_data()).splitlines()
    assert table[0] == f"| suite | {' | '.join(OUTCOMES)} |"
    assert table[2:] == [
        "| Own vectors | 1,234 | 0 | 0 | 0 |",
        "| SDKs | - | - | - | takes Go |",
        "| all | 1,234 | 0 | 0 | 0 |",
    ]
