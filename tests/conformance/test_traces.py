# SPDX-License-Identifier: Apache-2.0
"""A program in any language is recorded by the trace that ZDNN_TRACE names."""

import os
import shutil
from pathlib import Path

import pytest
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint
from nnpa_client.trace import Recording

from tests import vector_runner
from tests.conformance import answers
from tests.conformance.conversation import Conversation
from tests.conformance.test_conformance import REQUIRED
from tests.conformance.testees import SDKS, Sdk
from tests.vector_runner import VECTORS

FOREIGN = [sdk for sdk in SDKS if sdk.name != "python"]


@pytest.mark.conformance
@pytest.mark.parametrize("sdk", FOREIGN, ids=lambda sdk: sdk.name)
def test_every_sdk_is_recorded(sdk: Sdk, server: str, tmp_path: Path) -> None:
    """The sessions of a program join the trace of its environment, and what they call is in it."""
    missing = [tool for tool in sdk.tools if shutil.which(tool) is None]
    if missing:
        end = pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip
        end(f"traces of {sdk.name}: {', '.join(missing)} not installed")
    (vector, *_) = vector_runner.read(VECTORS / "add.jsonl")
    transport = GrpcTransport(Endpoint(server))
    recording = Recording(transport, tmp_path / "trace")
    variables = {**sdk.variables, "ZDNN_SERVER": server, "ZDNN_TRACE": recording.name}
    command = sdk.build(tmp_path)
    with Conversation(command, variables, tmp_path / "stderr.txt") as talk:
        answers.run(vector, talk, sdk.unseen)
    recording.stop()
    transport.close()
    assert "add" in [operation.name for operation in recording.read().operations]
