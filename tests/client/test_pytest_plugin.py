# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, in runs of pytest of their own, as strict as a project may be."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nnpa_client._server.private_server import PrivateServer
from nnpa_client._server.shared_server import SharedServer, ask

MANUAL = Path(__file__).parents[2] / "deploy/docs/python/testing.md"
STRICT = """
[pytest]
addopts = --strict-markers --strict-config
filterwarnings = error
junit_family = xunit1
"""
SUITE = """
    import os
    import numpy as np
    import pytest

    def test_sum(nnpa, nnpa_session, nnpa_machine):
        a = nnpa_session.ztensor(np.array([[1, 2]], np.float32))
        assert nnpa.zdnn.add(a, a).numpy().tolist() == [[2, 4]]
        assert nnpa_session.machine.name == f"machines/{nnpa_machine}"
        assert nnpa_session.status().lease
        assert nnpa.zdnn.get_nnpa_max_dim_idx_size() > 0

    @pytest.mark.nnpa(machine="z16", library="1.0.0", precheck=True)
    class TestMarked:
        def test_class(self, nnpa_session):
            assert nnpa_session.machine.name == "machines/telum1"
            assert nnpa_session.library == "1.0.0"

        @pytest.mark.nnpa(machine=["telum1", "z15"])
        def test_function(self, nnpa_session, nnpa_machine):
            assert nnpa_session.machine.name == f"machines/{nnpa_machine}"
            assert nnpa_session.library == "1.0.0"

    @pytest.mark.parametrize("nnpa_machine", ["telum1-nonnpa"])
    def test_own_parameters(nnpa):
        assert not nnpa.zdnn.is_nnpa_installed()

    def test_environment(nnpa_environment, nnpa_server, nnpa_machine):
        assert nnpa_environment["ZDNN_SERVER"] == nnpa_server.target
        assert nnpa_environment.items() <= {**os.environ, **nnpa_environment}.items()
        assert os.environ["ZDNN_MACHINE"] == nnpa_machine
        assert os.environ["ZDNN_PROGRAM_CHECK"] == "status"

    def test_left_clean():
        assert "ZDNN_SERVER" not in os.environ

    def test_server(nnpa_server, record_property):
        record_property("target", nnpa_server.target)

    def test_server_again(nnpa_server, record_property):
        record_property("target", nnpa_server.target)
"""
FAILING = """
    def test_without_a_server():
        raise AssertionError

    def test_before(nnpa_session):
        assert nnpa_session.is_nnpa_installed()

    def test_fails(nnpa_session):
        nnpa_session.is_nnpa_installed()
        raise AssertionError

    def test_fails_beside_another(nnpa, nnpa_session, nnpa_server):
        with nnpa.connect(nnpa_server.target) as other:
            other.is_nnpa_installed()
        nnpa_session.library.no_attribute

    def test_misuses(nnpa, nnpa_session):
        nnpa.zdnn.add(nnpa_session, None)
"""
REFUSED = """
    import numpy as np
    import pytest

    def test_operation(nnpa, nnpa_session):
        a, b = nnpa_session.ztensor([[1.0, 2.0]]), nnpa_session.ztensor([[1.0], [2.0]])
        nnpa.zdnn.add(a, b)  # here

    def test_list(nnpa, nnpa_session):
        with nnpa_session.pipeline():  # here
            nnpa.zdnn.add(nnpa_session.ztensor([1.0, 2.0]), nnpa_session.ztensor([1.0]))

    def test_faults(nnpa, nnpa_session):
        with nnpa_session.faults(nnpa.zdnn.add, status="ZDNN_EXCEEDS_MDIS"):  # here
            pass

    def test_model(nnpa_session):
        nnpa_session.load(b"no model")  # here

    def test_kernel(nnpa, nnpa_session):
        nnpa.mli.krn_tanh_fx16(nnpa.mli.tensor(np.zeros(3, np.int8), frac_bits=7))  # here

    @pytest.mark.nnpa(timeout=60)
    def test_call_by_call(nnpa_session):
        nnpa_session.update(machine="z99")  # here
"""
UNTOUCHED = """
    import sys

    def test_plain():
        assert not {"grpc", "numpy", "google.protobuf"} & set(sys.modules)
"""


def run(folder: Path, suite: str, *arguments: str) -> tuple[dict[str, str], str]:
    """Run a suite in a folder; return the tests' outcomes, targets included, and the output."""
    (folder / "pytest.ini").write_text(STRICT)
    (folder / "test_suite.py").write_text(textwrap.dedent(suite))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junitxml=junit.xml"]
    ended = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert (folder / "junit.xml").exists(), ended.stdout + ended.stderr
    outcomes: dict[str, str] = {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        targets = [element.attrib["value"] for element in case.iter("property")]
        outcomes[case.attrib["name"]] = (kinds or targets or ["passed"])[0]
    return outcomes, ended.stdout + ended.stderr


@pytest.mark.heavy
def test_fixtures_and_marks(tmp_path: Path) -> None:
    """Fixtures and marks work as in the manual, with one server for all; no name changes."""
    outcomes, output = run(tmp_path, SUITE)
    targets = {outcomes.pop("test_server"), outcomes.pop("test_server_again")}
    assert len(targets) == 1, output
    assert targets.pop().startswith("unix:")
    assert set(outcomes.values()) == {"passed"}, output
    assert sorted(outcomes) == [
        "test_class",
        "test_environment",
        "test_function[telum1]",
        "test_function[z15]",
        "test_left_clean",
        "test_own_parameters[telum1-nonnpa]",
        "test_sum",
    ]


@pytest.mark.heavy
def test_the_manuals_suite(tmp_path: Path) -> None:
    """The suite that the manual shows passes as it stands."""
    blocks = re.findall(r"```python\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    (suite,) = [block for block in blocks if "def test_" in block]
    outcomes, output = run(tmp_path, suite)
    assert len(outcomes) == 2, output
    assert set(outcomes.values()) == {"passed"}, output


@pytest.mark.heavy
def test_custom_machines(tmp_path: Path) -> None:
    """A mark's MachineSpec, and JSON on the command line, hold for sessions and C programs."""
    suite = """
        import json, os
        import pytest
        from nnpa_client import MachineSpec

        def test_option(nnpa_session, nnpa_environment):
            assert nnpa_session.machine.max_dim1 == 128
            assert json.loads(os.environ["ZDNN_MACHINE"])["max_dim1"] == 128

        @pytest.mark.nnpa(machine=MachineSpec(max_dim1=64, max_dim2=32))
        def test_mark(nnpa_session, nnpa_environment):
            assert nnpa_session.machine.max_dim1 == 64
            expected = {"base": "telum2", "max_dim1": 64, "max_dim2": 32}
            assert json.loads(os.environ["ZDNN_MACHINE"]) == expected
    """
    outcomes, output = run(tmp_path, suite, '--nnpa-machine={"base": "telum1", "max_dim1": 128}')
    assert outcomes == {"test_option": "passed", "test_mark": "passed"}, output


@pytest.mark.heavy
def test_workers_and_machines(tmp_path: Path) -> None:
    """One option runs a test on both Telums; workers of pytest-xdist share one server's port."""
    options = ("--nnpa-machine=telum1,telum2", "--nnpa-listen=127.0.0.1:0", "-n2")
    outcomes, output = run(tmp_path, SUITE, *options)
    targets = {outcomes.pop("test_server"), outcomes.pop("test_server_again")}
    assert len(targets) == 1, output
    assert targets.pop().startswith("127.0.0.1:")
    assert set(outcomes.values()) == {"passed"}, output
    assert {"test_sum[telum1]", "test_sum[telum2]", "test_class"} <= set(outcomes)


@pytest.mark.heavy
def test_log_of_a_failure(tmp_path: Path) -> None:
    """The report of a failing test has the server's lines of its time; other reports have none."""
    outcomes, output = run(tmp_path, FAILING)
    failed = ("test_without_a_server", "test_fails", "test_fails_beside_another", "test_misuses")
    assert outcomes == {**dict.fromkeys(failed, "failure"), "test_before": "passed"}, output
    assert output.count("nnpa-server log") == 3
    logs = output.split("nnpa-server log")[1:]
    assert "method=Execute" in logs[0]
    assert logs[0].count("method=CreateSession") == 1
    sessions = [set(re.findall(r"session=(\w+)", log)) for log in logs]
    assert [len(named) for named in sessions] == [1, 1, 1], output
    times = re.findall(r"T\d\d:\d\d:\d\d\.\d{3}Z", logs[1])
    assert times == sorted(times)
    assert "_verb.py" not in output.partition("def test_misuses")[2]


@pytest.mark.heavy
def test_a_refusal_shows_the_tests_line_and_no_session(tmp_path: Path) -> None:
    """A server's refusal is shown at the line of the test, without the session's name."""
    outcomes, output = run(tmp_path, REFUSED)
    assert set(outcomes.values()) == {"failure"}, output
    for test in outcomes:
        report = output.partition(f" {test} ")[2].partition("nnpa-server log")[0]
        assert re.findall(r"^> +(.*)$", report, re.MULTILINE)[0].endswith("# here"), report
    assert re.findall(r"^.*(?:nnpa_client|grpc)/.*\.py:\d+:", output, re.MULTILINE) == []
    assert "sessions/" not in output


@pytest.mark.heavy
def test_a_server_of_somebody_else(server_target: str, tmp_path: Path) -> None:
    """`--nnpa-server` names a server that runs already, which is left running."""
    chosen = (f"--nnpa-server={server_target}", "-k", "test_server or test_sum")
    outcomes, output = run(tmp_path, SUITE, *chosen)
    assert outcomes.pop("test_sum") == "passed", output
    assert set(outcomes.values()) == {server_target}


@pytest.mark.heavy
def test_server_that_does_not_start(tmp_path: Path) -> None:
    """A server that cannot start is an error of the tests that want it, with its own words."""
    outcomes, output = run(tmp_path, SUITE, "--nnpa-listen=nonsense", "-k", "test_server")
    assert set(outcomes.values()) == {"error"}
    assert "the private server ended with code 2" in output


@pytest.mark.heavy
def test_costs_nothing(tmp_path: Path) -> None:
    """A run that does not use the plugin imports neither gRPC nor NumPy nor protobuf."""
    outcomes, output = run(tmp_path, UNTOUCHED)
    assert outcomes == {"test_plain": "passed"}, output


@pytest.mark.heavy
def test_can_be_left_out(tmp_path: Path) -> None:
    """`-p no:nnpa` leaves the plugin out: its options and fixtures are unknown then."""
    outcomes, output = run(tmp_path, UNTOUCHED, "-p", "no:nnpa")
    assert outcomes == {"test_plain": "passed"}, output
    outcomes, output = run(tmp_path, FAILING, "-p", "no:nnpa", "-k", "test_fails and not beside")
    assert outcomes == {"test_fails": "error"}
    assert "fixture 'nnpa_session' not found" in output


def test_shared_server_starts_once() -> None:
    """All who ask get the same server; after its end a request finds none."""
    started: list[PrivateServer] = []

    def start() -> PrivateServer:
        started.append(PrivateServer())
        return started[-1]

    shared = SharedServer(start)
    try:
        assert not started
        places = {ask(shared.door) for _ in range(3)}
        assert [server.target for server in places] == [started[0].target]
        assert len(started) == 1
    finally:
        shared.stop()
    with pytest.raises(OSError, match="No such file"):
        ask(shared.door)


def test_shared_server_that_does_not_start() -> None:
    """The reason why a server did not start reaches those who ask."""

    def start() -> PrivateServer:
        raise ValueError("no such flag")

    shared = SharedServer(start)
    with pytest.raises(RuntimeError, match="no such flag"):
        ask(shared.door)
    shared.stop()
