# SPDX-License-Identifier: Apache-2.0
"""A machine as text: a name, JSON of a custom machine, or a file of such JSON."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa.zdnn.v1.operation_pb2 import NNPA_LOG, NNPA_SUB
from nnpa_client import MachineSpec, trace, zdnn
from nnpa_client._guest.custom_machine import machine_text, read_machine
from nnpa_tools.cli import main

from tests.client.conftest import Open
from tests.network.small_models import dense
from tests.tools.views.viewing import viewing

LIMITS = {"base": "z16", "max_dim1": 64, "max_tensor_size": 8192, "removed_functions": ["NNPA_SUB"]}


def test_json_opens_a_session(open_session: Open) -> None:
    """The session is on the base's model, with the limits and without the functions."""
    session = open_session(json.dumps(LIMITS))
    assert session.machine.nnpa_installed
    assert session.machine.max_dim1 == 64
    assert session.machine.max_tensor_size == 8192
    assert session.machine.model == open_session("telum1").machine.model
    assert NNPA_SUB not in session.machine.functions
    assert NNPA_LOG in session.machine.functions


@pytest.mark.parametrize("name", ["small.json", "small"])
def test_a_file_opens_the_same(
    open_session: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path has a slash or a dot: a file of the working folder without a dot is ./NAME."""
    (tmp_path / name).write_text(json.dumps(LIMITS))
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path / name), f"./{name}"):
        assert open_session(text).machine.max_dim1 == 64
    if "." in name:
        assert open_session(name).machine.max_dim1 == 64


def test_an_update_takes_it(open_session: Open) -> None:
    """A session moves to a custom machine by the same text."""
    session = open_session("telum2")
    session.update(machine='{"max_dim_idx_size": 100}')
    assert session.machine.max_dim_idx_size == 100


def test_a_replay_takes_it(open_session: Open, tmp_path: Path) -> None:
    """A trace is replayed on a custom machine, whose limits it meets."""
    session = open_session("telum2")
    with session.trace(tmp_path / "trace.nnpa") as recording:
        session.ztensor([[1.0] * 65])
    comparison, _new_trace = trace.replay(
        recording.read(), session.transport, machine='{"max_dim1": 64}'
    )
    assert not comparison.is_equal


def test_text_of_a_spec_reads_back() -> None:
    """The text that C programs get has every field, and reads as the same machine."""
    spec = MachineSpec(
        max_dim1=64, max_tensor_size=1 << 32, data_types_mask=1, added_functions=[NNPA_LOG]
    )
    base, read_spec = read_machine(machine_text(spec))
    assert (base, read_spec) == ("telum2", spec)
    assert json.loads(machine_text(spec))["max_tensor_size"] == 1 << 32


@pytest.fixture(params=["name", "json", "file"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """A machine in each way to write it, with its name and whether it has sub."""
    if request.param == "name":
        return "z16", "telum1", "yes"
    (tmp_path / "small.json").write_text(json.dumps(LIMITS))
    text = json.dumps(LIMITS) if request.param == "json" else str(tmp_path / "small.json")
    return text, "telum1-custom", "no"


def _nnpa(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def test_check_takes_it(written: tuple[str, str, str]) -> None:
    """Functions are judged for the base, without those that are taken away."""
    text, name, runs = written
    document = json.loads(_nnpa("check", "sub", "add", "--machine", text, "--json").stdout)
    add, sub = (function["machines"][name] for function in document["functions"])
    assert (add["runs"], sub["runs"]) == ("yes", runs)
    if runs == "no":
        assert sub["reason"] == (
            "needs NNPA_SUB, which the machine lacks: ZDNN_UNAVAILABLE_FUNCTION"
        )


def test_check_tells_custom_machines_apart() -> None:
    """Two custom machines of one base are two columns."""
    words = [word for function in ("NNPA_ADD", "NNPA_SUB")
             for word in ("--machine", json.dumps({"removed_functions": [function]}))]  # fmt: skip
    document = json.loads(_nnpa("check", "add", *words, "--json").stdout)
    assert document["machines"] == {
        "telum2-custom": {"runs": "no"}, "telum2-custom-2": {"runs": "yes"}
    }  # fmt: skip


def test_estimate_takes_it(
    written: tuple[str, str, str], open_session: Open, tmp_path: Path
) -> None:
    """A trace's calls have the base's times; calls that the machine lacks are counted apart."""
    text, name, runs = written
    session = open_session("telum1")
    with session.trace(tmp_path / "trace.nnpa"):
        page = session.ztensor(np.ones((32, 64), np.float32))
        zdnn.sub(zdnn.add(page, page), page)
    words = ("estimate", tmp_path / "trace.nnpa", "--json", "--machine")
    (base,) = json.loads(_nnpa(*words, "z16").stdout)["estimates"]
    (estimate,) = json.loads(_nnpa(*words, text).stdout)["estimates"]
    assert estimate["machine"] == name
    kept = [entry for entry in base["operations"] if runs == "yes" or entry["operation"] != "sub"]
    assert estimate["operations"] == kept
    lacking = {} if runs == "yes" else {"sub: not on IBM z16, Telum I, custom": 1}
    assert estimate["not_estimated"] == lacking


def test_estimate_of_a_model_takes_it(
    written: tuple[str, str, str], server_target: str, tmp_path: Path
) -> None:
    """A model is placed for the machine of the text, and has the times of the base."""
    text, name, _ = written
    (tmp_path / "dense.onnx").write_bytes(dense().SerializeToString())
    words = ("estimate", tmp_path / "dense.onnx", "--target", server_target, "--machine", text)
    answer = _nnpa(*words)
    assert answer.stdout.startswith(f"dense.onnx on {name}: "), answer.output
    assert "grade" in answer.stdout


@pytest.mark.heavy
def test_view_takes_it(written: tuple[str, str, str], tmp_path: Path) -> None:
    """A model is placed for the machine of the text, with the base's times."""
    text, name, _ = written
    (tmp_path / "dense.onnx").write_bytes(dense().SerializeToString())
    with viewing("--machine", text, tmp_path / "dense.onnx") as page:
        (shown,) = page.get("/data/models", page.token).data["machines"]
    assert shown["machine"] == name
    assert "grade" in shown["estimate"]["total"]


@pytest.mark.heavy
def test_doctor_takes_it(written: tuple[str, str, str]) -> None:
    """A program runs on the machine of the text; its failure there is a finding."""
    text, _, runs = written
    program = (
        "import numpy as np; from nnpa_client import connect, zdnn\n"
        "with connect() as session:\n"
        "    page = session.ztensor(np.ones((2, 60), np.float32))\n"
        "    print(zdnn.sub(page, page).numpy().sum())\n"
    )
    words = ("doctor", "--quick", "--json", "--machine", text)
    report = json.loads(_nnpa(*words, "--", sys.executable, "-c", program).stdout)
    title = "z16" if runs == "yes" else "custom z16"
    first = report["runs"][0]
    assert first["title"] == title
    assert first["ended"] == ("exit code 0" if runs == "yes" else "exit code 1")
    assert [finding["rule"] for finding in report["findings"]] == (
        [] if runs == "yes" else ["failure"]
    )
    if runs == "no":
        assert "zdnn_sub: ZDNN_UNAVAILABLE_FUNCTION (needs NNPA_SUB" in str(report["findings"])
        assert report["check"][-1]["machine"] == "IBM z16, Telum I, custom"
        assert report["check"][-1]["runs"] == "no"


@pytest.mark.parametrize("command", ["check add", "estimate FILE", "doctor -- true", "run -- true"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"max_dim7": 1}', "machine: max_dim7: unknown, expected base or "),
        ('{"base": "z14"}', "machine: 'z14', expected one of telum1 (z16)"),
        ('{"base": "z15", "max_dim1": 64}', "machine: z15 has no NNPA to customise"),
        ("./missing", "machine: ./missing: No such file or directory"),
    ],
)
def test_commands_name_field_and_value(command: str, text: str, words: str) -> None:
    """Each command answers text that is no machine with its usage, and names field and value."""
    name, *rest = command.replace("FILE", __file__).split()
    answer = CliRunner().invoke(main, [name, "--machine", text, *rest], env={"COLUMNS": "300"})
    assert answer.exit_code == 2
    assert words in answer.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "machine: no JSON: "),
        ('{"max_dim7": 1}', "machine: max_dim7: unknown, expected base or max_dim_idx_size, "),
        ('{"model": 1}', "machine: model: unknown, expected base or "),
        ('{"max_dim1": -1}', "machine: max_dim1: -1, expected a number from 0"),
        ('{"max_dim1": "wide"}', "machine: max_dim1: 'wide', expected a number from 0"),
        ('{"base": 16}', "machine: base: 16, expected a machine's name"),
        (
            '{"removed_functions": ["ADD"]}',
            "machine: removed_functions: ['ADD'], expected a list of names",
        ),
        ("./missing", "machine: ./missing: No such file or directory; expected a machine's name"),
        ("/", "machine: /: Is a directory; expected a machine's name"),
    ],
)
def test_errors_name_field_and_value(text: str, words: str) -> None:
    """Text that is no machine is refused before a call to a server; the error names the field."""
    with pytest.raises(ValueError, match=r"^machine: ") as caught:
        read_machine(text)
    assert str(caught.value).startswith(words)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A file of other bytes, and one that is too long, are named."""
    file = tmp_path / "machine"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8, expected JSON"):
        read_machine(str(file))
    file.write_bytes(b" " * 70_000)
    with pytest.raises(ValueError, match="more than 65536 characters"):
        read_machine(str(file))
