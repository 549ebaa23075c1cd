# SPDX-License-Identifier: Apache-2.0
"""`nnpa trace`, and the variable that names a recorder."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nnpa_client import connect, trace
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint, Recorder, program_environment, recorder
from nnpa_tools.cli import main

from tests.tools.traces.programs import names

PROGRAM = """
import numpy as np
from nnpa_client import connect, zdnn

with connect() as session:
    a = session.ztensor(np.ones((2, 3), np.float32))
    print(zdnn.add(a, a).numpy().sum())
"""


def nnpa(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, a trace with contents that the command recorded."""
    folder = tmp_path_factory.mktemp("files")
    done = nnpa("record", "--contents", "-o", folder / "run", "--", sys.executable, "-c", PROGRAM)
    assert done.exit_code == 0, done.output
    assert re.search(r"1 session, \d+ calls, 4 operations\n$", done.output)
    return folder


def test_show_has_a_line_for_each_operation(files: Path) -> None:
    """The timeline has a line for each operation; JSON has the same, readable by programs."""
    shown = nnpa("show", files / "run").output
    for word in ("telum2, zDNN 1.2.0", "add", "2x3", "4 operations in "):
        assert word in shown
    assert "init_ztensor" not in shown
    assert "init_ztensor" in nnpa("show", "--all", files / "run").output
    document = json.loads(nnpa("show", "--json", files / "run").output)
    computed = [row["operation"] for row in document["operations"] if not row["housekeeping"]]
    assert computed == [
        "allochelper_ztensor", "transform_ztensor", "add", "transform_origtensor",
    ]  # fmt: skip
    assert document["complete"]
    assert document["operations"][3]["ztensors"][2]["shape"] == [2, 3]


def test_command_replays_and_compares(files: Path) -> None:
    """Equal traces end with exit code 0, different ones with 1."""
    same = nnpa("replay", files / "run", "--machine", "telum1", "-o", files / "again")
    assert same.exit_code == 0, same.output
    assert "no difference" in same.output
    compared = nnpa("diff", files / "run", files / "again")
    assert compared.exit_code == 0
    assert "left: session 1: telum2" in compared.output
    assert "right: session 1: telum1" in compared.output
    on_z15 = nnpa("replay", files / "run", "--machine", "z15")
    assert on_z15.exit_code == 1
    assert "first difference in status: operation 1, zdnn_allochelper_ztensor" in on_z15.output
    document = json.loads(nnpa("diff", "--json", files / "run", files / "again").output)
    assert (document["equal"], document["differences"]) == (True, [])


@pytest.mark.heavy
def test_command_replays_several(files: Path, tmp_path: Path) -> None:
    """Any number of jobs gives the same report of several traces, in the order of the files."""
    several = [tmp_path / name for name in ("one", "two", "three")]
    for file in several:
        file.write_bytes((files / "run").read_bytes())
    alone, at_once = (nnpa("replay", *several, "--jobs", jobs) for jobs in (1, 3))
    assert alone.exit_code == 0, alone.output
    assert alone.output == at_once.output
    assert [line for line in alone.output.splitlines() if line.endswith(":")] == [
        f"{file}:" for file in several
    ]
    alone, at_once = (
        nnpa("replay", *several, "--machine", "z15", "--json", "--jobs", jobs) for jobs in (1, 3)
    )
    assert (alone.exit_code, at_once.exit_code) == (1, 1)
    assert alone.output == at_once.output
    assert [(document["file"], document["equal"]) for document in json.loads(alone.output)] == [
        (str(file), False) for file in several
    ]
    kept = nnpa("replay", *several, "-o", tmp_path / "again")
    assert kept.exit_code == 2
    assert "--output: one file for 3 traces" in kept.output


def test_lint_fails_for_an_exceeded_budget(files: Path) -> None:
    """Exit code 1 for a budget that is exceeded, 0 for one that is kept."""
    assert nnpa("lint", files / "run", "--max-operations", 4).exit_code == 0
    budget = ("--max-operations", 3, "--max-stickified-bytes", 100)
    done = nnpa("lint", files / "run", *budget, "--json")
    assert done.exit_code == 1
    assert len(json.loads(done.output)["exceeded"]) == 2


def test_each_error_has_its_exit_code(files: Path, tmp_path: Path) -> None:
    """A missing trace, server, program or session has its own exit code and message."""
    (tmp_path / "other").write_bytes(b"something else")
    assert nnpa("show", tmp_path / "other").exit_code == 2
    gone = nnpa("replay", files / "run", "--target", f"unix:{tmp_path}/nobody")
    assert gone.exit_code == 3
    assert "UNAVAILABLE" in gone.output
    none = nnpa("record", "-o", tmp_path / "t", "--", tmp_path / "no-such-program")
    assert none.exit_code == 2
    silent = nnpa("record", "-o", tmp_path / "t", "--", sys.executable, "-c", "")
    assert silent.exit_code == 1
    assert "no session was recorded" in silent.output


@pytest.mark.heavy
def test_a_killed_program_leaves_its_trace(tmp_path: Path) -> None:
    """The trace holds the calls before the kill; the exit code names the signal."""
    killed = PROGRAM + "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    done = nnpa("record", "-o", tmp_path / "t", "--", sys.executable, "-c", killed)
    assert done.exit_code == 128 + 9
    recorded = trace.read(tmp_path / "t")
    assert names(recorded)[-2:] == ["add", "transform_origtensor"]
    assert recorded.ending == ""


def test_the_environment_names_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is recorded if both variables are set, and not by either alone."""
    both = {"ZDNN_SERVER": "unix:/s", "ZDNN_TRACE": "traces/t"}
    monkeypatch.setattr(os, "environ", both)
    assert recorder() == Recorder("unix:/s", "traces/t")
    for name in both:
        monkeypatch.setattr(os, "environ", {name: both[name]})
        assert recorder() is None
    behind_a_proxy = Recorder("unix:/s", "traces/t", "MTI3LjAuMC4xOjE=")
    variables = program_environment(behind_a_proxy, Path("/lib"))
    monkeypatch.setattr(os, "environ", variables)
    assert recorder() == behind_a_proxy
    assert variables["LD_LIBRARY_PATH"].split(":")[0] == "/lib"


def test_other_servers_are_not_recorded(
    server_target: str, narrow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session at another server than the recorder's is not recorded, and works."""
    transport = GrpcTransport(Endpoint(server_target))
    recording = trace.Recording(transport, tmp_path / "t")
    monkeypatch.setenv("ZDNN_SERVER", server_target)
    monkeypatch.setenv("ZDNN_TRACE", recording.name)
    with connect(narrow) as session:
        assert session.is_nnpa_installed()
        assert session.status().trace == ""
    with connect() as session:
        assert session.target == server_target
        assert session.status().trace == recording.name
    recording.stop()
    transport.close()
    assert len(recording.read().sessions) == 1


def test_the_environment_says_what_a_program_leaves_open(
    server_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine, library and sanitizer are libzdnn's variables, for a program that is recorded."""
    transport = GrpcTransport(Endpoint(server_target))
    recording = trace.Recording(transport, tmp_path / "t")
    monkeypatch.setenv("ZDNN_MACHINE", "telum1")
    monkeypatch.setenv("ZDNN_LIBRARY_VERSION", "1.1.2")
    monkeypatch.setenv("ZDNN_SANITIZE", "1")
    with connect(server_target) as session:
        assert session.status().machine.name == "machines/telum2"
    monkeypatch.setenv("ZDNN_SERVER", server_target)
    monkeypatch.setenv("ZDNN_TRACE", recording.name)
    with connect() as session:
        state = session.status()
        assert (state.machine.name, state.library_version) == ("machines/telum1", "1.1.2")
        assert state.sanitize
    with connect(machine="telum2", library="1.2.0") as session:
        state = session.status()
        assert (state.machine.name, state.library_version) == ("machines/telum2", "1.2.0")
    recording.stop()
    transport.close()
