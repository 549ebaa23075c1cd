# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate` and `nnpa_client.accuracy` over a server: report, files, exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import nnpa_client
import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import TransportError, connect
from nnpa_client._server.methods import MEASURE_ACCURACY
from nnpa_tools.cli import main
from onnx import helper

from tests.network.small_models import WEIGHT, Value, dense, dense_reference, image, model

Run: TypeAlias = Callable[..., Result]
Ends: TypeAlias = tuple[list[Value], list[Value]]
RNG = np.random.default_rng(4)
X = RNG.standard_normal((300, 4)).astype(np.float32)
Y = dense_reference(X).argmax(1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the dense model."""
    file = tmp_path / "dense.onnx"
    file.write_bytes(dense().SerializeToString())
    return file


@pytest.fixture
def validate(server_target: str) -> Run:
    """A function that runs `nnpa network validate` against the tests' server."""

    def run(*arguments: object) -> Result:
        words = ["network", "validate", *map(str, arguments), "--target", server_target]
        return CliRunner().invoke(main, words)

    return run


def test_a_dataset_with_labels(validate: Run, path: Path, tmp_path: Path) -> None:
    """More rows than a batch, labels in the same file, figures side by side, the worst saved."""
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    page, worst = tmp_path / "page.html", tmp_path / "worst.npz"
    result = validate(
        path, "--data", tmp_path / "data.npz", "--labels", "y", "--html", page, "--worst", worst,
        "--max-drop", "0.5%", "--batch", 128,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    first = result.stdout.splitlines()[0]
    assert first.startswith("Keeps its accuracy: 100.00% in FP32, 100.00% on Telum I and Telum II")
    assert first.endswith("over 300 rows; within the limit of 0.005 (0.50%).")
    assert "INT8 on Telum II" in result.output
    html = page.read_text(encoding="utf-8")
    assert f"<h1>{first}</h1>" in html
    assert "dense.onnx" in html
    with np.load(worst) as saved:
        rows = saved["row"]
        np.testing.assert_array_equal(saved["x"], X[rows])
        np.testing.assert_array_equal(saved["label"], Y[rows])
        assert len(rows) >= 20


def test_batches_do_not_change_the_sums(validate: Run, path: Path, tmp_path: Path) -> None:
    """Counts and errors are the same for any size of batch; the JSON has what the page shows."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", np.roll(Y, 1))
    words = (path, "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--json")
    reports = [json.loads(validate(*words, "--batch", size).stdout) for size in (64, 300)]
    for report in reports:
        assert report["fp32"]["accuracy"] == float((np.roll(Y, 1) == Y).mean())
        assert [run["machine"] for run in report["runs"] if run["drop"] is not None] == [
            "telum1", "telum2", "telum2",
        ]  # fmt: skip
        assert report["exponents"]["y"]["elements"] == 16 * 3
    by_64, by_300 = (report["runs"][0] for report in reports)
    assert by_64["labels"] == by_300["labels"]
    assert by_64["outputs"][0]["ulps"] == by_300["outputs"][0]["ulps"]
    assert [row["row"] for row in by_64["worst"]] == [row["row"] for row in by_300["worst"]]


def test_a_drop_above_the_limit_is_exit_code_1(validate: Run, tmp_path: Path) -> None:
    """Answers that DLFLOAT16 changes cost accuracy; verdict, limit and exit code say so."""
    nodes = [
        helper.make_node("Add", ["x", "big"], ["far"], "away"),
        helper.make_node("Sub", ["far", "big"], ["y"], "back"),
    ]
    ends: Ends = [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 4])]
    file = tmp_path / "far.onnx"
    constants = {"big": np.full(4, 1000, np.float32)}
    file.write_bytes(model(nodes, *ends, constants).SerializeToString())
    x = RNG.random((64, 4), np.float32) * np.float32(0.4)
    np.savez(tmp_path / "data.npz", x=x, y=x.argmax(1))
    words = (file, "--data", tmp_path / "data.npz", "--labels", "y", "--no-int8")
    result = validate(*words, "--max-drop", "0.5%")
    assert result.exit_code == 1
    assert result.stdout.startswith("Loses ")
    assert "above the limit" in result.output
    assert "must be at most 0.500%" in result.output
    assert "at away (Add)" in result.output
    assert validate(*words, "--max-drop", "100%").exit_code == 0
    for limit in ("110%", "-1", "much"):
        assert validate(*words, "--max-drop", limit).exit_code == 2


def test_images_with_json_beside_the_model(validate: Run, tmp_path: Path) -> None:
    """The JSON sets the preprocessing of images, an option overrides it, the report prints both."""
    pillow = pytest.importorskip("PIL.Image")
    file = tmp_path / "relu.onnx"
    wide = helper.make_node("Relu", ["x"], ["y"], "act")
    shape: list[int | str] = ["N", 3, 4, 6]
    ends: Ends = [("x", np.float32, shape)], [("y", np.float32, shape)]
    file.write_bytes(model([wide], *ends).SerializeToString())
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(5):
        pillow.new("RGB", (6, 4), (number, 2, 3)).save(folder / f"{number}.png")
    refused = validate(file, "--data", folder)
    assert refused.exit_code == 2
    assert "images need --layout and --scale" in refused.output
    (tmp_path / "relu.json").write_text('{"layout": "NCHW", "scale": 0.5}')
    result = validate(file, "--data", folder, "--scale", 0.25, "--mean", "0.5,0.25,0")
    assert result.exit_code == 0, result.output
    for line in ("layout: NCHW", "scale: 0.25", "mean: 0.5, 0.25, 0.0", "resize: none"):
        assert line in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--labels", "y.npy"), "--labels: labels belong to rows; give --data, too"),
        (("--data", "none.npz"), "none.npz: there is no such file"),
        (("--data", "wrong.npz"), "'z' is no input of the model: x float32[-1, 4]"),
        (("--data", "double.npy"), "float64 array, expected float32"),
        (("--data", "x.npy", "--labels", "lab"), "Error: --labels 'lab': no such file, and no"),
        (("--data", "x.npy", "--labels", "x.npy"), "labels are float32, expected whole numbers"),
        (("--data", "x.npy", "--labels", "three.npy"), "three.npy: 3 labels for 8 rows"),
        (("--data", "x.npy", "--labels", "pairs.npy"), "labels: 2 for each row; answers for each"),
    ],
)  # fmt: skip
def test_wrong_data_are_usage_errors(
    validate: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    """Wrong data end with exit code 2 and a sentence that names no library's internals."""
    monkeypatch.chdir(tmp_path)
    np.savez("wrong.npz", z=X[:8])
    np.save("double.npy", X[:8].astype(np.float64))
    np.save("x.npy", X[:8])
    np.save("three.npy", Y[:3])
    np.save("pairs.npy", np.zeros((8, 2), int))
    result = validate(path, *words)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
    for internal in ("INTERNAL", "Traceback", "onnxruntime", "numpy"):
        assert internal not in result.output


def test_free_dims_and_values_that_nodes_refuse(validate: Run, tmp_path: Path) -> None:
    """Free dims without a size, and an index beyond a table, have messages of their own."""
    file = tmp_path / "lookup.onnx"
    node = helper.make_node("Gather", ["table", "x"], ["y"], "lookup")
    ends: Ends = [("x", np.int64, ["N", "T"])], [("y", np.float32, ["N", "T", 2])]
    lookup = model([node], *ends, {"table": np.ones((3, 2), np.float32)})
    file.write_bytes(lookup.SerializeToString())
    unsettled = validate(file)
    assert unsettled.exit_code == 2
    assert "free dims that nothing settles: give --data, or --shape x=1,8" in " ".join(
        unsettled.output.split()
    )
    assert validate(file, "--shape", "x=1,5", "--samples", 3).exit_code == 0
    np.save(tmp_path / "x.npy", np.array([[0, 1], [2, 9]]))
    beyond = validate(file, "--data", tmp_path / "x.npy")
    assert beyond.exit_code == 2
    assert "node lookup cannot run over rows 0 to 1, not in FP32 either" in beyond.output
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"no model")
    refused = validate(garbage)
    assert refused.exit_code == 4
    assert "node named" not in refused.output


def test_accuracy_from_python(server_target: str, path: Path) -> None:
    """The result has a verdict, a table, HTML for notebooks, and a frame if pandas is installed."""
    calls: list[tuple[int, int]] = []

    def progress(done: int, rows: int) -> None:
        calls.append((done, rows))

    result = nnpa_client.accuracy(path, X, Y, target=server_target, batch=128, progress=progress)
    assert calls == [(128, 300), (256, 300), (300, 300)]
    assert result.verdict.startswith("Keeps its accuracy")
    assert [row["run"] for row in result.table] == ["FP32", "telum1", "telum2", "telum2 int8"]
    assert result.drop == 0
    assert result.verdict in str(result)
    notebook: Any = result
    assert result.verdict in notebook._repr_html_()
    assert result.html.startswith("<!DOCTYPE html>")
    assert list(result.report["about"]) == sorted(result.report["about"]) != []
    with connect(server_target) as session:
        sampled = nnpa_client.accuracy(path, {"x": X}, samples=10, target=session, int8=False)
    assert [row["run"] for row in sampled.table] == ["telum1", "telum2"]
    assert sampled.report["samples"] == 10
    with pytest.raises(ValueError, match="'z' is no input"):
        nnpa_client.accuracy(path, {"z": X}, target=server_target)
    with pytest.raises(ValueError, match=r"^labels='lab': no such file, and no array or column"):
        nnpa_client.accuracy(path, {"x": X}, "lab", target=server_target)


def test_foreign_measurements_on_the_wire_are_refused(server_target: str, path: Path) -> None:
    """Invalid measurements, and settings beyond the limits, are refused by field."""
    with connect(server_target) as session, session.load(path) as net:
        base: dict[str, Any] = {"session": net.handle.session.name, "network": net.handle.name}
        rows = net.named_arrays({"x": X[:4]})
        cases: list[tuple[dict[str, Any], str]] = [
            ({"measurements": b"{}"}, "not what MeasureAccuracy returned"),
            ({"measurements": b"\0\0\0{"}, "not what MeasureAccuracy returned"),
            ({"rows": rows, "batch_rows": 5000}, "batch_rows is 5000, must be at most 4096"),
            ({"rows": rows, "node_rows": 2000}, "node_rows is 2000, must be at most 1024"),
            ({"rows": rows, "max_drop": 2.0}, "max_drop is 2.0"),
            ({"rows": rows, "about": {"a": "b" * 1001}}, "about is 'a'"),
            ({"rows": rows * 2}, "rows[1].name"),
        ]
        for fields, message in cases:
            request = pb.MeasureAccuracyRequest(**base, **fields)
            with pytest.raises(TransportError) as refused:
                session.transport.unary(MEASURE_ACCURACY, request)
            assert refused.value.reason == "FIELD_INVALID"
            assert message in refused.value.message


@pytest.mark.parametrize("labelled", [False, True])
def test_the_worst_rows_come_from_the_worst_output(
    server_target: str, validate: Run, tmp_path: Path, labelled: bool
) -> None:
    """If the first output is a label, rows are ranked by the output that has errors."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], "product"),
        helper.make_node("ArgMax", ["scores"], ["label"], "argmax", axis=1, keepdims=0),
    ]
    ends: Ends = [("x", np.float32, ["N", 4])], [
        ("label", np.int64, ["N"]), ("scores", np.float32, ["N", 3]),
    ]  # fmt: skip
    file, data = tmp_path / "classifier.onnx", tmp_path / "data.npz"
    file.write_bytes(model(nodes, *ends, {"w": WEIGHT}).SerializeToString())
    exact = X @ WEIGHT
    arrays: dict[str, Any] = {"x": X, "y": exact.argmax(1)} if labelled else {"x": X}
    np.savez(data, **arrays)
    labels = ("--labels", "y") if labelled else ()
    printed = validate(file, "--data", data, *labels, "--json")
    assert printed.exit_code == 0, printed.output
    report = json.loads(printed.stdout)
    with connect(server_target) as session, session.load(file) as net:
        _label, got = net(X)
    errors = np.linalg.norm(got - exact, axis=1) / np.linalg.norm(exact, axis=1)
    turned = got.argmax(1) != exact.argmax(1)
    order = np.lexsort((-errors, ~turned))
    runs = (run for run in report["runs"] if run["machine"] == "telum2" and run["worst"])
    run = next(run for run in runs if run["numbers"] == "dlfloat16")
    listed = [row["error"] for row in run["worst"]]
    assert listed == pytest.approx([errors[row] for row in order[: len(listed)]], rel=1e-3)
    assert min(listed) > 0


@pytest.fixture
def host_only(tmp_path: Path) -> Path:
    """The file of a model with no node that the compiler places on the machine."""
    nodes = [
        helper.make_node("HardSwish", ["x"], ["s"], "first"),
        helper.make_node("HardSwish", ["s"], ["t"], "second"),
        helper.make_node("Mod", ["t", "x"], ["y"], "third", fmod=1),
    ]
    ends: Ends = [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 4])]
    file = tmp_path / "host.onnx"
    file.write_bytes(model(nodes, *ends).SerializeToString())
    return file


def test_validate_of_a_model_on_the_host(validate: Run, host_only: Path, tmp_path: Path) -> None:
    """The verdict on a model of the host alone says that no node ran on the machine, and why."""
    data, page = tmp_path / "data.npz", tmp_path / "page.html"
    np.savez(data, x=np.abs(X) + 1, y=Y)
    printed = validate(host_only, "--data", data, "--labels", "y", "--html", page)
    assert printed.exit_code == 0, printed.output
    first, swish, mod, blank = printed.stdout.splitlines()[:4]
    assert first == "Nothing of this model runs on the accelerator."
    assert swish.startswith("  HardSwish (2): ")
    assert "--placement all" in swish
    assert mod.startswith("  Mod (1): ")
    assert (len(mod) > 20, blank) == (True, "")
    html = page.read_text(encoding="utf-8")
    assert "<h1>Nothing of this model runs on the accelerator.</h1>" in html
    assert f"<li>{swish.strip()}".replace("'", "&#39;") in html


def test_the_host_is_no_machine(validate: Run, host_only: Path) -> None:
    """A report names the processor that computed it as the host's: a machine is a Telum."""
    words = (host_only, "--samples", 1)
    about = json.loads(validate(*words, "--json").stdout)["about"]
    assert "machine" not in about
    assert f"host CPU: {about['host CPU']}" in validate(*words).stdout


def test_analyze_of_a_model_on_the_host(server_target: str, host_only: Path) -> None:
    """The analysis of a model of the host alone says so first, and has no time and no grade."""
    words = ["network", "analyze", str(host_only), "--target", server_target]
    printed = CliRunner().invoke(main, words)
    first, swish, mod = printed.stdout.splitlines()[:3]
    assert first == "Nothing of this model runs on the accelerator."
    assert swish.startswith("  HardSwish (2): ")
    assert mod.startswith("  Mod (1): ")
    assert "grade" not in printed.stdout
    assert " us" not in printed.stdout
    report = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert "grade" not in report
    estimated = json.loads(CliRunner().invoke(main, ["estimate", *words[2:], "--json"]).stdout)
    assert {of["grade"] for of in estimated["estimates"]} == {None}


def test_a_machine_that_runs_nothing_of_a_model(validate: Run, tmp_path: Path) -> None:
    """Where one machine has nodes of a model and the other has none, the verdict names it."""
    node = helper.make_node("Gelu", ["x"], ["y"], "gelu")
    proto = model([node], [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 4])])
    proto.opset_import[0].version = 20
    file, data = tmp_path / "gelu.onnx", tmp_path / "data.npz"
    file.write_bytes(proto.SerializeToString())
    np.savez(data, x=X)
    first, why = validate(file, "--data", data).stdout.splitlines()[:2]
    assert "nothing of it runs on the accelerator of Telum I." in first
    assert why.startswith("  Gelu (1): ")
    assert why.endswith(", on Telum I")


def test_analyze_says_why_first(server_target: str, tmp_path: Path) -> None:
    """Reasons come before layers, one line each, and what was folded is counted, not listed."""
    nodes = [
        helper.make_node("Add", ["one", "one"], ["two"], "constant_sum"),
        helper.make_node("CumSum", ["x", "axis"], ["s"], "sums"),
        helper.make_node("Mul", ["s", "two"], ["y"], "double"),
    ]
    constants = {"one": np.ones(3, np.float32), "axis": np.array(1, np.int64)}
    ends: Ends = [("x", np.float32, ["N", 3])], [("y", np.float32, ["N", 3])]
    file = tmp_path / "sums.onnx"
    file.write_bytes(model(nodes, *ends, constants).SerializeToString())
    result = CliRunner().invoke(main, ["network", "analyze", str(file), "--target", server_target])
    assert result.exit_code == 0, result.output
    assert result.output.index("Nodes by device and reason") < result.output.index("Layers")
    assert "constant_sum (Add)" not in result.output
    assert "1 folded" in result.output
    words = ["network", "analyze", str(file), "--json", "--target", server_target]
    layers = json.loads(CliRunner().invoke(main, words).output)["layers"]
    assert [layer["device"] for layer in layers] == ["folded", "host", "accelerator"]


def test_a_model_of_images_has_rows(validate: Run, tmp_path: Path) -> None:
    """An image model takes rows of arrays, without any labels."""
    file = tmp_path / "image.onnx"
    file.write_bytes(image().SerializeToString())
    np.save(tmp_path / "x.npy", RNG.random((6, 2, 3, 4), np.float32))
    result = validate(file, "--data", tmp_path / "x.npy", "--samples", 4, "--no-int8")
    assert result.exit_code == 0, result.output
    assert "over 4 rows" in result.stdout.splitlines()[0]
