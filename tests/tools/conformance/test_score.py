# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance score`: runs make the totals, and a suite that did not run is a row."""

import json
import shutil
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from nnpa_tools.cli import main
from nnpa_tools.conformance.counts import OUTCOMES, Case, Suite, summed
from nnpa_tools.conformance.page import FILES, badge, markdown, page
from nnpa_tools.conformance.score import Score
from nnpa_tools.conformance.suites import (
    SUITES,
    Progress,
    SuiteKind,
    Tree,
    cases_of,
    run_suite,
    tree,
)

from tests.tools.conformance.scoring import data, score
from tests.vector_runner import VECTORS

ROOT = Path(__file__).parents[3]
HERE = Tree(ROOT, True)
KINDS = {kind.name: kind for kind in SUITES}
pytestmark = pytest.mark.usefixtures("no_results")


def silent(_done: int, _of: int) -> None:
    """Take no notice of progress."""


@pytest.mark.heavy
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


@pytest.mark.heavy
def test_a_kept_score_must_have_the_same_counts(vectors: Path, tmp_path: Path) -> None:
    """--against ends with 1 if counts differ, with 2 if the file is no score of this version."""
    score(vectors, "--out", tmp_path)
    kept = tmp_path / "score.json"
    assert score(vectors, "--against", kept).exit_code == 0
    counts = json.loads(kept.read_text())
    counts["suites"][0]["groups"][0]["passed"] -= 1
    kept.write_text(json.dumps(counts))
    ended = score(vectors, "--against", kept)
    assert ended.exit_code == 1
    assert f"was {counts['suites'][0]['passed'] - 1} in the earlier score" in ended.stderr
    for text, story in (
        ("{", "no JSON"),
        ("[]", "a score of version None, expected version 1"),
        ('{"format": 2}', "a score of version 2, expected version 1"),
        ('{"format": 1}', "suites: out of shape"),
        ('{"format": 1, "suites": [7]}', "suites: out of shape"),
        ('{"format": 1, "suites": [{"name": "mli"}]}', "suites: out of shape, KeyError('title')"),
    ):
        kept.write_text(text)
        for option in ("--against", "--onto"):
            ended = score(vectors, option, kept)
            assert ended.exit_code == 2
            assert story in " ".join(ended.stderr.split())


@pytest.mark.heavy
def test_rows_of_an_earlier_score_stand_for_suites_that_are_left_out(
    vectors: Path, tmp_path: Path
) -> None:
    """--onto keeps the rows and dates of suites that do not run, and replaces the other rows."""
    earlier = summed("laws", "laws", [Case("a law", "passed", count=33)], 0.0)
    old = summed("vectors", "zDNN vectors", [Case("relu", "failed", count=7)], 0.0)
    suites = (replace(earlier, date="2026-01-02"), replace(old, date="2026-01-02"))
    kept = Score("0.1.0", "2026-01-02", False, suites, (), ())
    (tmp_path / "kept.json").write_text(json.dumps(kept.as_data()))
    ended = score(vectors, "--onto", tmp_path / "kept.json", "--out", tmp_path)
    assert ended.exit_code == 0
    rows = {suite["name"]: suite for suite in data(ended)["suites"]}
    assert (rows["laws"]["passed"], rows["laws"]["date"]) == (33, "2026-01-02")
    assert (rows["vectors"]["failed"], rows["vectors"]["date"]) == (0, data(ended)["date"])
    assert rows["sdks"]["why"] == "--suite leaves it out"
    assert data(ended)["totals"]["passed"] == 33 + rows["vectors"]["passed"]
    assert "2026-01-02" in (tmp_path / "score.html").read_text()


@pytest.mark.heavy
def test_suites_that_are_left_out_are_rows(vectors: Path) -> None:
    """Every score has a row for every suite, with the reason if it did not run."""
    for words, why in ((["--quick"], "--quick leaves it out"), ([], "--suite leaves it out")):
        suites = data(score(vectors, *words))["suites"]
        assert [suite["name"] for suite in suites] == [kind.name for kind in SUITES]
        assert {suite["why"] for suite in suites if suite["name"] in ("sdks", "run")} == {why}
    arguments = ["conformance", "score", "--quick", "--suite", "laws"]
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 2
    assert "no suite is left" in ended.stderr


@pytest.mark.parametrize("kind", SUITES, ids=lambda kind: kind.name)
def test_a_suite_gives_the_reason_why_it_did_not_run(
    kind: SuiteKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite without a clone, or without its imports, does not run, and says so."""
    if not kind.is_quick:
        suite = run_suite(kind, Tree(tmp_path, False), VECTORS, None, silent)
        assert (suite.why, sum(suite.counts.values())) == ("takes a clone of the repository", 0)

    def no_package(_name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", no_package)
    suite = run_suite(kind, HERE, VECTORS, None, silent)
    assert suite.why.endswith("is not installed")
    assert "nnpa_server" in suite.why


def pytest_suite(grouped_by: str, words: Sequence[str], progress: Progress = silent) -> Suite:
    """Run tests as a suite."""
    command = [sys.executable, "-m", "tests.score.pytest_suites", grouped_by, *words]
    return summed("own", "own tests", cases_of(command, ROOT, progress), 0.0)


def written(folder: Path, text: str) -> Sequence[str]:
    """Write a file of tests, and return the words of pytest that run it."""
    (folder / "test_own.py").write_text(text)
    return (str(folder / "test_own.py"), "-n0", "-c", str(ROOT / "pyproject.toml"))


@pytest.mark.heavy
def test_a_missing_toolchain_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go the SDK's group is not run, with the tool that is missing as the reason."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("NNPA_REQUIRE_TOOLCHAINS", raising=False)
    words = ("tests/conformance/test_conformance.py", "-n0", "-k", "function and go-relu")
    suite = pytest_suite("subject", words)
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


@pytest.mark.heavy
def test_tests_are_cases(tmp_path: Path) -> None:
    """A test is a case under its law, or reports its own cases; a skip has its reason."""
    suite = pytest_suite("law", written(tmp_path, TESTS))
    assert suite.counts == {"passed": 41, "failed": 1, "refused": 2, "not run": 2}
    assert suite.skips == {"no qemu-s390x": 2}
    assert suite.refusals == {"no such tensor": 2}
    (failure,) = suite.failures
    assert (failure.group, failure.reason) == ("A law that does not.", "assert 1 == 2")


@pytest.mark.heavy
@pytest.mark.parametrize("text", ["import no_such_module_here", "def test_x(): raise SystemExit"])
def test_a_suite_that_breaks_has_failed(tmp_path: Path, text: str) -> None:
    """A module that cannot be imported, and a run that ends early, are failures, not silence."""
    assert pytest_suite("law", written(tmp_path, text)).counts["failed"] >= 1


SLEEPS = """
import os, pathlib, time

def test_sleeps():
    pathlib.Path({path!r}).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.heavy
def test_an_abandoned_suite_ends_its_workers(tmp_path: Path) -> None:
    """A score that is stopped while a suite runs leaves no process of it behind."""
    pid = tmp_path / "pid"
    first = "def test_first(): pass\n"

    def abandon(_done: int, _of: int) -> None:
        deadline = time.monotonic() + 120
        while not pid.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        raise KeyboardInterrupt

    files = [tmp_path / "test_first.py", tmp_path / "test_sleeps.py"]
    files[0].write_text(first)
    files[1].write_text(SLEEPS.format(path=str(pid)))
    words = (*map(str, files), "-n2", "-c", str(ROOT / "pyproject.toml"))
    with pytest.raises(KeyboardInterrupt):
        pytest_suite("law", words, abandon)
    for _ in range(200):
        if not psutil.pid_exists(int(pid.read_text())):
            return
        time.sleep(0.1)
    pytest.fail("a worker of the suite is still there")


@pytest.mark.heavy
def test_the_package_brings_along_what_its_suites_take(tmp_path: Path, vectors: Path) -> None:
    """Files that the wheel ships run vectors and reference cases without a clone."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    prefix = "nnpa_tools/conformance/shipped/"
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
    """Counts are sums by outcome, reasons are counted, and an unexpected outcome is an error."""
    cases = [Case("add", "passed", count=3), Case("add", "refused", reason="no words", count=2)]
    suite = summed("own", "own", cases, 0.0)
    assert suite.counts == {"passed": 3, "failed": 0, "refused": 2, "not run": 0}
    assert suite.refusals == {"no words": 2}
    with pytest.raises(ValueError, match="outcome: 'lost', expected one of passed, failed"):
        summed("own", "own", [Case("add", "lost")], 0.0)


def test_the_page_has_every_row() -> None:
    """Page, badge and table show the totals, and the reason of each suite that did not run."""
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


def test_the_readme_shows_the_kept_score() -> None:
    """The README shows the kept score, which comes from a run of every quick suite."""
    kept = json.loads((ROOT / "tests/score/score.json").read_text())
    shown = (ROOT / "README.md").read_text().partition("<!-- score -->\n")[2]
    assert shown.partition("<!-- /score -->")[0] == markdown(kept)
    ran = {suite["name"] for suite in kept["suites"] if not suite["why"]}
    assert ran >= {kind.name for kind in SUITES if kind.is_quick}
    for outcome in OUTCOMES:
        assert kept["totals"][outcome] == sum(suite[outcome] for suite in kept["suites"])
        for suite in kept["suites"]:
            assert suite[outcome] == sum(group[outcome] for group in suite["groups"])
