# SPDX-License-Identifier: Apache-2.0
"""Every vector through every SDK's testee."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import vector_runner
from tests.conformance import answers
from tests.conformance.answers import SkippedError
from tests.conformance.conftest import TALLY
from tests.conformance.conversation import BrokenProtocolError, Conversation
from tests.conformance.known_failures import known_failing
from tests.conformance.testees import PLAIN, SDKS, Sdk
from tests.score.cases_of_pytest import CASES
from tests.vector_runner import VECTORS, Vector

FILES = sorted(path.stem for path in VECTORS.glob("*.jsonl"))
LOCAL_FILES = sorted(path.stem for path in (VECTORS / "local").glob("*.jsonl"))
REQUIRED = "NNPA_REQUIRE_TOOLCHAINS"
_STORY = 500
MARKS = {"python": ()}


def _params() -> list[object]:
    return [
        pytest.param(sdk, id=sdk.name, marks=MARKS.get(sdk.name, (pytest.mark.conformance,)))
        for sdk in (*SDKS, *PLAIN)
    ]


def _require(testee: Sdk) -> None:
    """Skip, with one line, where a tool is missing; fail instead where none may be."""
    missing = [tool for tool in testee.tools if shutil.which(tool) is None]
    if missing:
        story = f"conformance of {testee.name}: {', '.join(missing)} not installed"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(story)
        pytest.skip(story)


@pytest.fixture(scope="module", params=_params())
def testee(request: pytest.FixtureRequest) -> Sdk:
    """An SDK that takes part."""
    chosen: Sdk = request.param
    return chosen


@pytest.fixture(scope="module")
def talk(
    testee: Sdk, server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conversation]:
    """Its testee, built and running."""
    _require(testee)
    folder = tmp_path_factory.mktemp(testee.name)
    command = testee.build(folder)
    variables = {**testee.variables, "ZDNN_SERVER": server}
    with Conversation(command, variables, folder / "stderr.txt") as running:
        yield running


def _differences(vectors: list[Vector], run: Callable[[Vector], None]) -> dict[str, str]:
    """Return the vectors that fail, `stem/name` to the message."""
    differences: dict[str, str] = {}
    for vector in vectors:
        try:
            run(vector)
        except (AssertionError, SkippedError, BrokenProtocolError) as error:
            story = f"{type(error).__name__}: {error}"[:_STORY]
            differences[f"{vector.function}/{vector.line['name']}"] = story
    return differences


def _judge(
    request: pytest.FixtureRequest, testee: Sdk, vectors: list[Vector], differences: dict[str, str]
) -> None:
    """Fail for each failure that no list expects, and for each listed vector that passes."""
    function = vectors[0].function
    mine = {f"{function}/{vector.line['name']}" for vector in vectors}
    reasons = known_failing(testee.name)
    expected = mine & reasons.keys()
    failed, fixed = differences.keys() - expected, expected - differences.keys()
    passed = len(mine) - len(differences) - len(fixed)
    tally = [testee.name, function, passed, len(expected & differences.keys()), len(failed | fixed)]
    request.node.user_properties.append((TALLY, tally))
    cases = [["passed", passed, ""], *(["refused", 1, reasons[key]] for key in sorted(expected))]
    request.node.user_properties.append((CASES, cases))
    story = [f"{key}: {differences[key]}" for key in sorted(failed)]
    story += [f"{key}: no longer fails, take it off the list" for key in sorted(fixed)]
    assert not story, "\n".join(story)


@pytest.mark.heavy
@pytest.mark.parametrize("file", FILES)
def test_function(
    request: pytest.FixtureRequest, testee: Sdk, talk: Conversation, file: str
) -> None:
    """The SDK's verb gives every status, bit, value and flag that its vectors' sources say."""
    vectors = list(vector_runner.read(VECTORS / f"{file}.jsonl"))
    differences = _differences(vectors, lambda vector: answers.run(vector, talk, testee.unseen))
    _judge(request, testee, vectors, differences)


@pytest.mark.parametrize("file", LOCAL_FILES)
def test_local_function(
    request: pytest.FixtureRequest, testee: Sdk, talk: Conversation, file: str
) -> None:
    """The SDK's own function gives every result and status that its vectors' sources say."""
    vectors = list(vector_runner.read(VECTORS / "local" / f"{file}.jsonl"))
    differences = _differences(vectors, lambda vector: answers.run_local(vector, talk))
    _judge(request, testee, vectors, differences)


def test_what_is_known_to_fail_exists() -> None:
    """Every line of every list names a vector that exists and an SDK that takes part."""
    names = {
        f"{vector.function}/{vector.line['name']}"
        for folder in (VECTORS, VECTORS / "local")
        for vector in vector_runner.load(folder)
    }
    lists = Path(__file__).parent.glob("known_failing/*.txt")
    sdks = {path.stem for path in lists}
    assert sdks <= {sdk.name for sdk in SDKS}
    for sdk in sdks:
        assert known_failing(sdk).keys() <= names, sdk
