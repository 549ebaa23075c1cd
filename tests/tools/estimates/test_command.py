# SPDX-License-Identifier: Apache-2.0
"""`nnpa estimate`, and estimates in other commands: files, messages, exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa.zdnn.v1 import trace_pb2
from nnpa.zdnn.v1.trace_pb2 import TRACE_END_REASON_ENDED, TraceRecord
from nnpa_client import ProgramCheck, Session, trace, zdnn
from nnpa_client.trace.format import MAGIC, TraceWriter
from nnpa_tools.cli import main
from nnpa_tools.estimates.coefficients import shipped
from nnpa_tools.estimates.published import ledger as point_ledger
from nnpa_tools.estimates.published import steeper
from onnx import helper

from tests.network.small_models import dense, model
from tests.server.instruction.instructions import ADD, QAF, sums

Open = Callable[..., Session]


def nnpa(*words: object) -> Result:
    """Run the command, and return what it printed."""
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    """The file of the dense model, whose batch is free."""
    file = tmp_path / "dense.onnx"
    file.write_bytes(dense().SerializeToString())
    return file


@pytest.fixture
def recorded(session: Session, tmp_path: Path) -> Path:
    """The file of a trace: a sum and a GELU of a page, and a call that is refused."""
    file = tmp_path / "run.nnpa"
    with session.trace(file):
        page = session.ztensor(np.ones((32, 64), np.float32))
        zdnn.gelu(zdnn.add(page, page)).numpy()
        with pytest.raises(ProgramCheck):
            zdnn.add(page, session.ztensor(np.ones((32, 65), np.float32)))
    return file


def single_numbers(document: Any) -> list[str]:
    """Return the paths of times that are one number, in a JSON document."""
    if isinstance(document, dict):
        own = [
            key for key in document if key.endswith("_ns") and not isinstance(document[key], dict)
        ]
        return own + [path for child in document.values() for path in single_numbers(child)]
    if isinstance(document, list):
        return [path for child in document for path in single_numbers(child)]
    return []


def test_a_model_is_estimated_for_both_machines(onnx: Path, server_target: str) -> None:
    """Each machine has a table with intervals and grades, and a sentence on what dominates."""
    printed = nnpa("estimate", onnx, "--target", server_target)
    assert printed.exit_code == 0, printed.output
    for machine in ("telum1", "telum2"):
        assert f"dense.onnx on {machine}: " in printed.output
    assert printed.output.count("grade D\n") == 2
    assert printed.output.count("2 calls below the break-even with the CPU") == 2
    assert "D: derived: no public measurement" in printed.output
    assert "nothing covers contention" in printed.output


def test_json_of_a_model_has_intervals(onnx: Path, server_target: str) -> None:
    """The JSON has both ends of every time, its grade, and no time as one number."""
    printed = nnpa("estimate", onnx, "--json", "--machine", "z17", "--target", server_target)
    document = json.loads(printed.output)
    (of,) = document["estimates"]
    assert of["machine"] == "telum2"
    assert [(line["operation"], line["calls"]) for line in of["operations"]] == [
        ("relu", 1), ("matmul_op", 1), ("unstickify", 1), ("stickify", 1),
    ]  # fmt: skip
    for timed in (of, *of["operations"]):
        assert 0 < timed["estimated_machine_ns"]["low"] < timed["estimated_machine_ns"]["high"]
        assert timed["grade"] in document["grades"]
    assert single_numbers(document) == []
    assert of["host_nodes"] == 0


def test_shapes_of_a_model_count(onnx: Path, server_target: str) -> None:
    """--shape gives free dims a size: a larger batch takes longer, with a better grade."""
    of = {
        batch: json.loads(
            nnpa("estimate", onnx, "--json", "--machine", "z16", "--shape", f"x={batch},4",
                 "--target", server_target).output
        )["estimates"][0]
        for batch in (32, 32000)
    }  # fmt: skip
    assert of[32]["grade"] == "B"
    small, large = (of[batch]["estimated_machine_ns"] for batch in (32, 32000))
    assert small["high"] < large["low"]


def test_nodes_on_the_host_are_said_to_be_left_out(tmp_path: Path, server_target: str) -> None:
    """A model with no node on the accelerator has no time, and lists the nodes left out."""
    node = helper.make_node("HardSwish", ["x"], ["y"], "swish")
    file, x, y = tmp_path / "swish.onnx", ("x", np.float32, [2, 4]), ("y", np.float32, [2, 4])
    file.write_bytes(model([node], [x], [y]).SerializeToString())
    words = ("estimate", file, "--machine", "z16", "--target", server_target)
    printed = nnpa(*words).output
    assert "swish.onnx on telum1: nothing to estimate" in printed
    assert "Not in it: what runs on the host, 1 of the model's nodes." in printed
    assert "swish.onnx on telum1: 3" not in nnpa(*words, "--placement", "all").output
    assert "grade D" in nnpa(*words, "--placement", "all").output


def test_a_trace_is_estimated_without_a_server(recorded: Path) -> None:
    """Calls are counted by function; z16 lacks one function, and a refused call takes no time."""
    document = json.loads(nnpa("estimate", recorded, "--json").output)
    older, newer = document["estimates"]
    counts = {line["operation"]: line["calls"] for line in newer["operations"]}
    assert counts == {"add": 1, "gelu": 1, "transform_ztensor": 2, "transform_origtensor": 1}
    assert (older["machine"], newer["machine"]) == ("telum1", "telum2")
    assert older["not_estimated"] == {"gelu: not on IBM z16, Telum I": 1}
    assert newer["not_estimated"] == {}
    assert [line["grade"] for line in newer["operations"] if line["operation"] == "add"] == ["A"]
    assert single_numbers(document) == []
    assert newer["dominant"].startswith("Transforms between arrays and sticks")


def test_a_trace_that_was_cut_says_so(recorded: Path) -> None:
    """An estimate of a trace without its end says that it is not of all, once for each machine."""
    cut = recorded.with_name("cut.nnpa")
    cut.write_bytes(recorded.read_bytes()[:-20])
    sentence = "This trace is not complete: interrupted"
    assert sentence not in nnpa("estimate", recorded).output
    printed = nnpa("estimate", cut, "--machine", "z16", "--machine", "telum1", "--machine", "z17")
    assert printed.output.count(sentence) == 2


def test_instructions_of_a_trace_are_estimated(tmp_path: Path) -> None:
    """A program with its own library is estimated by its instructions; queries take no time."""
    issued = [
        trace_pb2.TracedInstruction(session=1, general_register_0=code, parameter_block=block)
        for code, block in ((QAF, b""), (ADD, sums(64)[:512]), (ADD, sums(64)[:512]), (96, b""))
    ]
    refused = trace_pb2.TracedInstruction(
        session=1, general_register_0=ADD, parameter_block=sums(64)[:512], condition_code=1
    )
    file = tmp_path / "instructions.nnpa"
    writer = TraceWriter(file)
    records = [TraceRecord(instruction=instruction) for instruction in (*issued, refused)]
    end = TraceRecord(end=trace_pb2.TraceEnd(reason=TRACE_END_REASON_ENDED))
    for record in (*records, end):
        data = record.SerializeToString()
        writer.write(_varint(len(data)) + data)
    writer.close()
    (of,) = json.loads(nnpa("estimate", file, "--json", "--machine", "z16").output)["estimates"]
    assert [(line["operation"], line["calls"]) for line in of["operations"]] == [("add", 2)]
    assert of["not_estimated"] == {"NNPA_LSTMACT: no figure is public": 1}


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 0x7F else bytes([number])


@pytest.mark.heavy
def test_the_ledger_prints_published_over_predicted() -> None:
    """Each point has batch, length, both times and their ratio; widths by grade are printed."""
    printed = nnpa("estimate", "--ledger")
    assert printed.exit_code == 0, printed.output
    (fraud,) = (line for line in printed.output.splitlines() if "credit-card fraud" in line)
    assert " 128 " in fraud
    assert " 7 " in fraud
    assert "1.10 to 1.18 ms" in fraud
    assert "0.42" in fraud
    assert "inside" in fraud
    assert (
        "Not tested: GPT-2 (gpt2-10): the reports give neither batch nor length." in printed.output
    )
    assert "Median width by grade, most over least: A 1.6, B 2.2, C 4, D 8.8" in printed.output
    assert "Held by no tested point: telum1 add, " in printed.output
    document = json.loads(nnpa("estimate", "--ledger", "--json").output)
    assert len(document["points"]) == len(point_ledger())
    assert {point["verdict"] for point in document["points"]} == {"inside", "not tested"}


@pytest.mark.heavy
def test_a_broken_coefficient_fails_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slope four times as steep the command says which point lies outside, and exits 1."""
    seeded = steeper(shipped(), "telum2", "tanh", 4.0)
    monkeypatch.setattr("nnpa_tools.estimates.published.shipped", lambda: seeded)
    printed = nnpa("estimate", "--ledger")
    assert printed.exit_code == 1
    (outside,) = (line for line in printed.output.splitlines() if line.rstrip().endswith("outside"))
    assert "tanh 32x64x64" in outside


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["no-such.onnx"], 2, "File 'no-such.onnx' does not exist."),
        (["newer.nnpa"], 2, "newer.nnpa: a trace of version 2, expected version 1: a newer nnpa"),
        (["cut.nnpa"], 2, "cut.nnpa: a trace of version unknown, expected version 1"),
        (["broken.onnx"], 4, "MODEL_INVALID"),
        (["impossible.onnx"], 4, "MODEL_INVALID"),
        (["dense.onnx", "--machine", "z18"], 2, "machine: 'z18', expected one of telum1 (z16)"),
        (["dense.onnx", "--machine", "z15"], 2, "machine: 'z15' has no zAIU, expected one of"),
        (["dense.onnx", "--shape", "x=a"], 2, "--shape: 'x=a', expected NAME=D,D,.."),
        (["dense.onnx", "--shape", "z=1,4"], 2, "--shape: 'z' is no input, expected one of x"),
        (["dense.onnx", "--ledger"], 2, "FILE or --ledger: expected one of them"),
        ([], 2, "FILE or --ledger: expected one of them"),
        (["empty.nnpa", "--shape", "x=1,4"], 2, "empty.nnpa: a trace has its shapes"),
        (["dense.onnx", "--target", "unix:nobody"], 3, "UNAVAILABLE"),
    ],
    ids=str,
)  # fmt: skip
def test_bad_input_has_one_message(
    words: list[str], code: int, message: str, onnx: Path, server_target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each bad input ends with its exit code and a sentence that names it."""
    folder = onnx.parent
    monkeypatch.chdir(folder)
    (folder / "newer.nnpa").write_bytes(b"NNPATRC2 and what nobody knows yet")
    (folder / "cut.nnpa").write_bytes(MAGIC[:-1])
    TraceWriter(folder / "empty.nnpa").close()
    (folder / "broken.onnx").write_bytes(b"no model at all")
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], "what")
    ends = ("x", np.float32, [2]), ("y", np.float32, [2])
    (folder / "impossible.onnx").write_bytes(
        model([node], [ends[0]], [ends[1]]).SerializeToString()
    )
    hosted = code != 3 and any(word.endswith(".onnx") for word in words) and "--ledger" not in words
    printed = nnpa("estimate", *words, *(("--target", server_target) if hosted else ()))
    assert printed.exit_code == code, printed.output
    assert message in " ".join(printed.output.split())
    assert "Traceback" not in printed.output


def test_analyze_has_a_column(onnx: Path, server_target: str) -> None:
    """The layers have times with grades on machines that have a zAIU, in text and JSON."""
    words = ("network", "analyze", onnx, "--target", server_target)
    text = nnpa(*words).output
    assert "time on the machine: 2.3 to 15 us, grade D, by public figures" in text
    (row,) = (line for line in text.splitlines() if "act (Relu)" in line)
    assert "0.67 to 6.2 us, grade D" in row
    report = json.loads(nnpa(*words, "--json").output)
    assert single_numbers(report) == []
    timed = [layer["name"] for layer in report["layers"] if "estimated_machine_ns" in layer]
    assert timed == ["product", "act"]
    assert report["estimated_machine_ns"]["high"] > report["estimated_machine_ns"]["low"]
    without = nnpa(*words, "--machine", "z15")
    assert without.exit_code == 0, without.output
    assert "time on the machine:" not in without.output


def test_show_has_a_column(recorded: Path) -> None:
    """An operation that was carried out has an interval, beside the microseconds of the server."""
    lines = nnpa("trace", "show", recorded).output.splitlines()
    carried_out, refused = (line for line in lines if " add " in line)
    assert "1.5 to 2.5 us, A" in carried_out
    assert not refused.rstrip().endswith(", A")
    operations = json.loads(nnpa("trace", "show", recorded, "--json").output)["operations"]
    timed = {operation["operation"] for operation in operations if "grade" in operation}
    assert timed == {"add", "gelu", "transform_ztensor", "transform_origtensor"}


def test_lint_advises_and_does_not_fail(recorded: Path) -> None:
    """A call below the break-even is an advice with its operation; the exit code stays 0."""
    printed = nnpa("trace", "lint", recorded)
    assert printed.exit_code == 0, printed.output
    assert "advice: 1 call below the break-even with the CPU of telum2 (operation " in (
        printed.output
    )
    report = json.loads(nnpa("trace", "lint", recorded, "--json").output)
    assert (report["clean"], report["findings"], len(report["advice"])) == (True, [], 1)


def test_a_session_of_another_machine_has_no_estimate(open_session: Open, tmp_path: Path) -> None:
    """On a machine whose times nobody published, show has an empty column, and lint no advice."""
    session = open_session("z15")
    with session.trace(tmp_path / "t") as recording:
        session.is_nnpa_installed()
    report = trace.lint(recording.read())
    assert report.advice == ()
    shown = json.loads(nnpa("trace", "show", tmp_path / "t", "--json").output)
    assert not any("grade" in operation for operation in shown["operations"])
