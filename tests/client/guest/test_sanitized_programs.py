# SPDX-License-Identifier: Apache-2.0
"""Programs without misuse run the same with the sanitizer and without it."""

import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.operation_pb2 import Exp, Operation, OperationResult
from nnpa.zdnn.v1.tensor_pb2 import TensorRef
from nnpa_client import (
    NnpaError,
    ProgramCheck,
    Session,
    Status,
    Ztensor,
    connect,
    zdnn,
)
from nnpa_client._server.transport import Method, Received, Request, Response, Sent
from nnpa_client.networks import NETWORKS, held_out
from nnpa_server.sessions.store import Store

from tests import vector_runner
from tests.client.conftest import Open
from tests.client.guest.test_sanitizer import ONES, allocated
from tests.client.in_process import InProcessTransport
from tests.client.zdnn.test_examples import EXAMPLES, NAMES
from tests.client.zdnn.test_vectors import Opened
from tests.vector_runner import Vector


@pytest.fixture
def session(open_session: Open) -> Session:
    """A session that sanitizes."""
    return open_session(sanitize=True)


def _arrays(value: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield the arrays in what an example returns."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, Ztensor):
        yield np.array([value.rec_scale, value.offset, value.is_transformed, value.buffer_size])


@pytest.mark.parametrize("name", NAMES)
def test_the_manuals_examples_are_clean(server_target: str, name: str) -> None:
    """Each example program gives the same bits with and without the sanitizer, and no report."""
    results: list[list[npt.NDArray[Any]]] = []
    for sanitize in (False, True):
        with connect(server_target, sanitize=sanitize) as session:
            results.append(list(_arrays(runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]())))
            assert session.reports == ()
    assert results[0]
    for plain, sanitized in zip(*results, strict=True):
        assert plain.tobytes() == sanitized.tobytes()


@pytest.mark.parametrize("network", NETWORKS, ids=[network.name for network in NETWORKS])
def test_the_demos_networks_are_clean(open_session: Open, network: Any) -> None:
    """The digits networks give the same bits with and without the sanitizer, and no report."""
    images = held_out().images[:40]
    results: list[bytes] = []
    for sanitize in (None, True):
        session = open_session(sanitize=sanitize)
        x = session.ztensor(network.arrange(images), network.layout)
        for layer in network.load(session, len(images)):
            x = layer.run(x)
        results.append(x.numpy().tobytes())
        assert session.reports == ()
    assert results[0] == results[1]


def test_operations_as_they_are(session: Session) -> None:
    """The session keeps reports of answers that no caller checks, and gives no warning."""
    a = allocated(session, 2, 3)
    operation = Operation(exp=Exp(input=a.ref(), output=TensorRef(new_id=session.new_id())))
    operation.site = "elsewhere.py:7 in main"
    session.execute([operation])
    (report,) = session.reports
    assert report.use.at == "elsewhere.py:7 in main"


class Sanitized(Opened):
    """A session that sanitizes, and shows the vector runner padding as without the sanitizer."""

    def execute(self, operation: Operation) -> OperationResult:
        """Run one operation; there is no report of one that succeeds."""
        result = super().execute(operation)
        if any(diagnostic.HasField("report") for diagnostic in result.diagnostics):
            assert result.zdnn_status == Status.ZDNN_INVALID_STATE, result
        for output in result.outputs:
            sticks, desc = output.ztensor.sticks, output.ztensor.transformed_desc
            if sticks:
                cells = vector_runner.cells_of(desc, np.frombuffer(sticks, np.uint8))
                output.ztensor.sticks = vector_runner.sticks_of(desc, " ".join(cells)).tobytes()
        return result


@pytest.mark.heavy
@pytest.mark.parametrize("vector", vector_runner.load(), ids=str)
def test_every_vector_answers_as_without(store: Store, vector: Vector) -> None:
    """Every vector has its bits, statuses, values and flags in a session that sanitizes."""

    @contextmanager
    def target(options: accelerator_pb2.Session) -> Generator[Sanitized]:
        options.sanitize = True
        with Session(InProcessTransport(store), options) as session:
            yield Sanitized(session)

    vector_runner.run(vector, target)


def test_without_the_flag_nothing_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session without the flag sends no places, and never looks for them."""
    sent: list[Operation] = []
    transport = InProcessTransport(store)
    execute = transport.execute

    def noting(request: Request) -> Response:
        sent.extend(request.message.operations)
        return execute(request)

    monkeypatch.setattr(transport, "execute", noting)
    monkeypatch.setattr("nnpa_client._guest.sanitizer.Watch.in_flight", None)
    with Session(transport) as session:
        a = session.ztensor(ONES)
        zdnn.add(a, allocated(session, 2, 3))
        zdnn.free_ztensor_buffer(a)
        with pytest.raises(ProgramCheck):
            zdnn.exp(a)
        assert session.reports == ()
    assert sent
    assert not any(operation.site for operation in sent)
    assert not any(operation.exp.input.HasField("provenance") for operation in sent)


def test_a_server_that_cannot(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not know the flag is refused, and its session deleted."""
    transport = InProcessTransport(store)
    unary = transport.unary

    def older(method: Method[Sent, Received], request: Sent) -> Received:
        answer = unary(method, request)
        if isinstance(answer, accelerator_pb2.Session):
            answer.sanitize = False
        return answer

    monkeypatch.setattr(transport, "unary", older)
    before = store.sessions()
    with pytest.raises(NnpaError, match=re.escape("sanitize: nnpa-server")):
        Session(transport, accelerator_pb2.Session(sanitize=True))
    assert store.sessions() == before


SUITE = """
    import os
    import numpy as np
    import pytest

    def misuse(nnpa, session):
        a = session.ztensor(np.ones(3, np.float32))
        b = session.init_ztensor_with_malloc(a.pre_transformed_desc, a.transformed_desc)
        nnpa.zdnn.max(a, b)

    def test_misuse(nnpa, nnpa_session):
        misuse(nnpa, nnpa_session)

    def test_clean(nnpa, nnpa_session):
        a = nnpa_session.ztensor(np.ones(3, np.float32))
        assert nnpa.zdnn.add(a, a).numpy().tolist() == [2, 2, 2]

    @pytest.mark.nnpa(sanitize=True)
    def test_marked(nnpa, nnpa_session):
        with pytest.warns(nnpa.SanitizerWarning, match="never been written"):
            misuse(nnpa, nnpa_session)

    def test_environment(nnpa_environment):
        assert os.environ.get("ZDNN_SANITIZE") == nnpa_environment.get("ZDNN_SANITIZE")
        print("ZDNN_SANITIZE", nnpa_environment.get("ZDNN_SANITIZE"))
"""


@pytest.mark.heavy
@pytest.mark.parametrize("flags", [[], ["--nnpa-sanitize"]], ids=["without", "with"])
def test_the_switch_of_the_pytest_plugin(
    tmp_path: Path, server_target: str, flags: list[str]
) -> None:
    """--nnpa-sanitize fails a test at its misuse, and reaches C programs; clean tests pass."""
    (tmp_path / "test_suite.py").write_text(textwrap.dedent(SUITE))
    settings = "[pytest]\nfilterwarnings = ignore::nnpa_client.ZdnnWarning\n"
    (tmp_path / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *flags]
    run = subprocess.run(
        [*command, "--nnpa-server", server_target],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == (1 if flags else 0), run.stdout
    assert ("FAILED test_suite.py::test_misuse" in run.stdout) == bool(flags)
    assert ("zdnn_max at " in run.stdout) == bool(flags)
    assert f"ZDNN_SANITIZE {'1' if flags else None}" in run.stdout
    for name in ("clean", "marked", "environment"):
        assert f"PASSED test_suite.py::test_{name}" in run.stdout
