# SPDX-License-Identifier: Apache-2.0
"""`nnpa network`: its output, its files, and its exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa_tools.cli import main
from onnx import helper

from tests.network.small_models import dense, dense_reference, model, quantised, two_ends

X = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the dense model."""
    file = tmp_path / "dense.onnx"
    file.write_bytes(dense().SerializeToString())
    return file


@pytest.fixture
def nnpa(server_target: str) -> Any:
    """A function that runs `nnpa network` against the tests' server."""

    def run(command: str, *arguments: object) -> Result:
        words = ["network", command, *map(str, arguments), "--target", server_target]
        return CliRunner().invoke(main, words)

    return run


def test_analyze_has_a_line_for_each_layer(nnpa: Any, path: Path) -> None:
    """The report has X-CUBE-AI's header lines and a line per layer with where it runs."""
    result = nnpa("analyze", path)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(" : ", 1) for line in result.output.splitlines() if " : " in line)
    fields = {name.strip(): value for name, value in lines.items()}
    assert fields["model file"] == "dense.onnx"
    assert fields["input 1/1"] == "4 items, 16 B, FLOAT, (1, 1, 4)"
    assert fields["params #"] == "15 items"
    # 4 * 3 + 3 for the product, 3 sums, 3 comparisons.
    assert fields["macc"] == "21"
    assert fields["weights (ro)"] == "60 B"
    assert fields["placement"].startswith(
        "compiler: 3 nodes on the accelerator (100.0% of macc), 0 on the"
    )
    assert "product (MatMul)" in result.output
    assert "matmul_op" in result.output


def test_analyze_answers_first(nnpa: Any, tmp_path: Path) -> None:
    """The summary of nodes by place, work, memory and time precedes the fields of X-CUBE-AI."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Cos", ["product"], ["cosine"]),
        helper.make_node("Neg", ["w"], ["negative"]),
        helper.make_node("MatMul", ["cosine", "negative"], ["y"]),
    ]
    file, ends = tmp_path / "part.onnx", ([("x", np.float32, [2, 4])], [("y", np.float32, [2, 4])])
    file.write_bytes(model(nodes, *ends, {"w": np.ones((4, 4), np.float32)}).SerializeToString())
    answer, _, fields = nnpa("analyze", file).stdout.partition("\n\n")
    assert fields.startswith("model file         : part.onnx\n")
    verdict, cosine, accelerator, host, folded, memory, time = answer.splitlines()
    assert verdict == (
        "2 of 3 operators run on the accelerator of telum2 (IBM z17, Telum II), "
        "with 100.0% of the multiply-accumulates (MACC)."
    )
    assert cosine == "  Cos (1): no zDNN function for it"
    # 2 * 4 * 4 + 4 for each product.
    assert accelerator == "on the accelerator : 2 operators, 72 MACC, 64 B of weights: MatMul"
    assert host == "on the host CPU    : 1 operator, 0 MACC, 0 B of weights: Cos"
    assert folded.startswith("folded at import   : 1 operator, ")
    assert memory.startswith("memory             : 64 B of weights, ")
    assert memory.endswith(", 64 B of inputs and outputs")
    assert time.startswith("time on the machine: ")


def test_analyze_of_a_model_on_the_accelerator(nnpa: Any, path: Path) -> None:
    """The first line says that all runs on the accelerator, and of which machine."""
    for words, machine in (
        ((), "telum2 (IBM z17, Telum II)"),
        (("--machine", "z16"), "telum1 (IBM z16, Telum I)"),
        (("--machine", '{"max_dim1": 64}'), "telum2-custom"),
    ):
        first = nnpa("analyze", path, *words).stdout.splitlines()[0]
        assert first == f"All of this model runs on the accelerator of {machine}."


def test_analyze_as_json(nnpa: Any, path: Path) -> None:
    """The JSON has the keys of X-CUBE-AI's report."""
    report = json.loads(nnpa("analyze", path, "--json").output)
    assert (report["tools_version"], report["tools_api_version"]) == ("7.0.0", "1.4.0")
    assert (report["rom_size"], report["rom_n_macc"], report["ram_io_size"]) == (60, 21, [16, 12])
    assert [layer["op_type"] for layer in report["layers"]] == ["MatMul", "Add", "Relu"]
    assert len(report["hash"]) == 32


def test_analyze_by_placement(nnpa: Any, tmp_path: Path) -> None:
    """Text and JSON name the placement, and each node's line gives the reason for its place."""
    node = helper.make_node("HardSwish", ["x"], ["y"], "swish")
    file, x, y = tmp_path / "swish.onnx", ("x", np.float32, [2, 4]), ("y", np.float32, [2, 4])
    file.write_bytes(model([node], [x], [y]).SerializeToString())
    for words, placement, device, why in (
        ((), "compiler", "host", "--placement all makes it of mul, add and relu"),
        (("--placement", "all"), "all", "accelerator", "beyond the compiler: no zDNN function"),
    ):
        report = json.loads(nnpa("analyze", file, "--json", *words).output)
        (layer,) = report["layers"]
        assert (report["placement"], layer["device"]) == (placement, device)
        assert report["placed"].startswith(f"{placement}: ")
        assert why in layer["reason"]
        assert f"placement          : {placement}: " in nnpa("analyze", file, *words).output
    assert nnpa("analyze", file, "--placement", "most").exit_code == 2


def test_analyze_a_quantised_model(nnpa: Any, tmp_path: Path) -> None:
    """Scale and zero point of integer inputs are in the report."""
    file = tmp_path / "q.onnx"
    file.write_bytes(quantised().SerializeToString())
    assert "S8, scale=0.5, zero=3, (1, 1, 5)" in nnpa("analyze", file).output


def test_heavy_nodes_on_the_host_are_in_the_headline(nnpa: Any, tmp_path: Path) -> None:
    """A product that the machine cannot run is named in the headline; --strict refuses it."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "wide")
    file = tmp_path / "host.onnx"
    weight = np.ones((3, 2), np.float64)
    file.write_bytes(
        model([node], [("x", np.float64, ["N", 3])], [("y", np.float64, ["N", 2])], {"w": weight})
        .SerializeToString()
    )  # fmt: skip
    assert "heavy on the host: wide" in nnpa("analyze", file).output
    refused = nnpa("analyze", file, "--strict")
    assert refused.exit_code == 4
    assert "wide" in refused.output


def test_run_reads_and_writes_arrays(nnpa: Any, path: Path, tmp_path: Path) -> None:
    """Inputs come from .npy or .npz, outputs go to .npz."""
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "all.npz", x=X)
    outputs = tmp_path / "y.npz"
    for source in (tmp_path / "x.npy", f"x={tmp_path / 'x.npy'}", tmp_path / "all.npz"):
        result = nnpa("run", path, "--input", source, "--output", outputs)
        assert result.exit_code == 0, result.output
        assert "matmul_op 1" in result.output
        with np.load(outputs) as arrays:
            np.testing.assert_allclose(arrays["y"], dense_reference(X), rtol=0.01)
    summary = json.loads(nnpa("run", path, "--input", tmp_path / "x.npy", "--json").output)
    assert summary["nans"] == {"y": 0}


def test_run_with_wrong_inputs(nnpa: Any, path: Path, tmp_path: Path) -> None:
    """An input of a wrong type or shape, or a file without an array, is a usage error."""
    np.save(tmp_path / "double.npy", X.astype(np.float64))
    np.save(tmp_path / "wide.npy", np.ones((1, 5), np.float32))
    for name, words in (("double.npy", "expected float32"), ("wide.npy", "expected [-1, 4]")):
        refused = nnpa("run", path, "--input", tmp_path / name)
        assert refused.exit_code == 2
        assert words in refused.output
    (tmp_path / "text.npy").write_text("no array")
    assert nnpa("run", path, "--input", tmp_path / "text.npy").exit_code == 2


def test_validate_prints_figures_and_keeps_limits(nnpa: Any, path: Path, tmp_path: Path) -> None:
    """Figures are printed, the page is written, and a limit decides the exit code."""
    page = tmp_path / "page.html"
    result = nnpa("validate", path, "--samples", 2, "--html", page, "--max-l2r", 0.01)
    assert result.exit_code == 0, result.output
    assert "COS" in result.output
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    np.savez(tmp_path / "data.npz", x=np.stack([X, X * 2, X - 1]))
    result = nnpa("validate", path, "--json", "--data", tmp_path / "data.npz")
    assert json.loads(result.stdout)["samples"] == 3
    assert nnpa("validate", path, "--samples", 2, "--max-l2r", 1e-9).exit_code == 1
    single = nnpa("validate", path, "--samples", 1).output
    assert ": 1 run beside FP32" in single
    assert not re.search(r"\b1 (?:runs|rows)\b", single)


def test_validate_with_uneven_data(nnpa: Any, tmp_path: Path) -> None:
    """Inputs of different numbers of samples are a usage error."""
    file = tmp_path / "two.onnx"
    file.write_bytes(two_ends().SerializeToString())
    array = np.ones((2, 1, 2, 3), np.float32)
    np.savez(tmp_path / "data.npz", a=array, b=array[:1])
    refused = nnpa("validate", file, "--data", tmp_path / "data.npz")
    assert refused.exit_code == 2
    assert "samples" in refused.output


def test_probe_has_a_row_for_each_run(nnpa: Any, path: Path) -> None:
    """A probe has a line per machine, size and kind of input, and passes its own check."""
    rows = json.loads(nnpa("probe", path, "--size", 33, "--json").output)
    assert {row["machine"] for row in rows} == {"telum1", "telum2"}
    assert {row["sizes"]["N"] for row in rows} == {33}
    checked = nnpa("probe", path, "--size", 33, "--check")
    assert checked.exit_code == 0
    assert "all masked" in checked.output


def test_probe_finds_nan(nnpa: Any, tmp_path: Path) -> None:
    """A model that divides by its input gives NaN over zeros, and --check says so."""
    node = helper.make_node("Div", ["x", "x"], ["y"], "ratio")
    division = model([node], [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 4])])
    file = tmp_path / "ratio.onnx"
    file.write_bytes(division.SerializeToString())
    checked = nnpa("probe", file, "--size", 1, "--check")
    assert checked.exit_code == 1
    assert "NaN over zeros: 2 runs." in checked.output


def test_exit_codes(nnpa: Any, path: Path, tmp_path: Path) -> None:
    """2 is usage, 3 an unreachable server, 4 a model that cannot be hosted."""
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"no model")
    refused = nnpa("analyze", garbage)
    assert refused.exit_code == 4
    assert "MODEL_INVALID" in refused.output
    assert nnpa("analyze", tmp_path / "missing.onnx").exit_code == 2
    assert nnpa("analyze", path, "--shape", "x=one").exit_code == 2
    assert nnpa("analyze", path, "--shape", "x=3,5").exit_code == 4
    lost = ["network", "analyze", str(path), "--target", "unix:/nowhere/nnpa.sock"]
    assert CliRunner().invoke(main, lost).exit_code == 3


@pytest.mark.parametrize("command", ["analyze", "run", "validate", "probe"])
def test_help_has_exit_codes(command: str) -> None:
    """Every command's help says what it does and how it ends."""
    result = CliRunner().invoke(main, ["network", command, "--help"])
    assert result.exit_code == 0
    assert "Exit codes" in result.output
    assert "--machine" in result.output
