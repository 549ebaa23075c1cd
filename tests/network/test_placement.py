# SPDX-License-Identifier: Apache-2.0
"""Where nodes go and who decides; shapes, caches, events and storage of a hosted model."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, Guest, find_machine
from nnpa_emulator.machine import page_memory
from nnpa_network.importing.onnx_import import import_onnx
from nnpa_network.lowering.placement import placement_report, read_placement
from nnpa_network.operators import OPERATORS
from nnpa_network.program import ModelRefused
from nnpa_network.running.executor import Executor
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import StepFailed

from tests.network import real_models
from tests.network.baselines import compare_baseline, headline, heavy, write_baseline
from tests.network.hosting import agree, load, nodes, normal, text_model
from tests.network.operator_table import markdown

CHAIN = "g (float[N,4] x) => (float[N,4] y) { e = Exp(x) a = Erf(e) t = Tanh(a) y = Sigmoid(t) }"


def test_report_and_headline() -> None:
    """The report has a row per node; matrix products on the host are named first."""
    body = "g (double[2,2] x) => (double[2,2] y) { m = MatMul(x, x) y = Tanh(m) }"
    report = placement_report(load(text_model(body)).specialise())
    assert [row.node for row in heavy(report)] == ["MatMul_0"]
    assert headline(report).startswith(
        "HEAVY ON THE HOST: MatMul_0 (MatMul: element type is float64, must be float32"
    )
    report = placement_report(load(text_model(CHAIN)).specialise())
    assert headline(report) == "placement compiler: 3 of 4 nodes on telum2, 1 on the host, 0 folded"
    assert report.rows[1].reason == "no zDNN function for it"
    assert report.rows[0].functions == ("exp",)


def test_strict() -> None:
    """Strict refuses the first node that only the host can run, with its reason."""
    with pytest.raises(ModelRefused, match="node Erf_1: Erf runs only on the host: no zDNN"):
        load(text_model(CHAIN), strict=True).specialise()
    body = "g (float[2] x) => (float[2] y) { y = Exp(x) }"
    assert load(text_model(body), strict=True).specialise().nodes[0].device == "accelerator"


def test_placement_file_moves_nodes() -> None:
    """A device placement file sends matching nodes to the host, by operator or name."""
    rules = read_placement(
        json.dumps({"device_placement": [
            {"device": "cpu", "node_type": "onnx.T.*", "onnx_node_name": ".*"},
            {"device": "nnpa", "node_type": "onnx.Exp", "onnx_node_name": ".*"},
        ]})
    )  # fmt: skip
    _, placed = agree(CHAIN, {"x": normal(3, 4)}, device_placement=rules)
    assert [node.device for node in placed] == ["accelerator", "host", "host", "accelerator"]
    assert placed[2].reason == "the placement file says so"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "not JSON"),
        ("[]", "device_placement is absent or no list, must be a list"),
        ('{"device_placement": 3}', "device_placement is absent or no list, must be a list"),
        ('{"device_placement": [7]}', r"device_placement\[0\].device is None"),
        ('{"device_placement": [{"device": "gpu"}]}', "must be nnpa, cpu or empty"),
        (
            '{"device_placement": [{"device": "cpu", "node_type": "("}]}',
            "must be a regular expression",
        ),
        (
            '{"device_placement": [{"device": "cpu", "onnx_node_name": 3}]}',
            "must be a regular expression",
        ),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_placement_file(text: str, reason: str) -> None:
    """A placement file that makes no sense is refused, the entry named."""
    with pytest.raises(ModelRefused, match=reason):
        read_placement(text)


def test_baseline_tells_what_moved() -> None:
    """A baseline names nodes that moved, went and came; comments and order do not matter."""
    before = placement_report(load(text_model(CHAIN)).specialise())
    baseline = write_baseline(before)
    assert compare_baseline(before, baseline) == ()
    after = placement_report(load(text_model(CHAIN), "z15").specialise())
    assert compare_baseline(after, baseline) == (
        "Exp_0: accelerator before, host now",
        "Tanh_2: accelerator before, host now",
        "Sigmoid_3: accelerator before, host now",
    )
    shorter = text_model("g (float[4] x) => (float[4] y) { e = Exp(x) y = Relu(e) }")
    changes = compare_baseline(placement_report(load(shorter).specialise()), baseline)
    assert "Tanh_2: accelerator before, gone now" in changes
    assert "Relu_1: new, accelerator" in changes


def test_free_dims() -> None:
    """A free dim is -1 in the metadata, only where it is free; every size runs."""
    hosted = load(real_models.encoder())
    assert [port.shape for port in hosted.inputs] == [(-1, 128), (-1, 128)]
    assert hosted.symbols == ("batch",)
    assert hosted.outputs[0].shape == (-1, 128, 16)
    for batch in (1, 3):
        (output,) = hosted.run(real_models.sentences(batch)).outputs.values()
        assert output.shape == (batch, 128, 16)


def test_free_dims_of_one_name_agree() -> None:
    """Two inputs whose free dims have one name must have one size."""
    body = "g (float[N,2] a, float[N,2] b) => (float[N,2] y) { y = Add(a, b) }"
    with pytest.raises(ModelRefused, match="input b: dim N is 3 here and 2 before"):
        load(text_model(body)).run({"a": normal(2, 2), "b": normal(3, 2)})


def test_a_run_time_shape_blocks_its_node() -> None:
    """A shape known only at run time keeps a node on the host; the reason names the value."""
    body = (
        "g (float[4] x) => (float[M,1] y)"
        " { i = NonZero(x) t = Transpose(i) f = Cast <to = 1> (t) y = Tanh(f) }"
    )
    _, placed = agree(body, {"x": np.array([1, 0, 2, 3], np.float32)})
    assert placed[3].reason == "the shape of f is known only at run time"


def test_programs_are_cached_and_bounded() -> None:
    """The same shapes give the same program; the oldest of too many shapes is forgotten."""
    hosted = load(text_model(CHAIN), max_programs=2)
    first = hosted.executor({"x": (1, 4)})
    assert hosted.executor({"x": (1, 4)}) is first
    for size in (2, 3):
        hosted.executor({"x": (size, 4)})
    assert hosted.executor({"x": (1, 4)}) is not first


def test_constants_are_stickified_once() -> None:
    """Programs for other shapes share the sticks of constants."""
    hosted = load(real_models.residual_cnn())
    sticks = [
        {
            id(constant)
            for constant in hosted.specialise({"image": (size, 3, 32, 32)}).constants.values()
        }
        for size in (1, 2)
    ]
    shared = sticks[0] & sticks[1]
    assert len(shared) >= 20


def test_storage_comes_from_the_guest() -> None:
    """Sticks are allocated through the guest; a guest without room ends import or run clearly."""
    room = 200_000

    def allocate(size: int) -> Any:
        return page_memory(size) if size <= room else None

    guest = Guest(find_machine("telum2"), allocate=allocate)
    body = "g (float[N,64] x) => (float[N,64] y) { e = Exp(x) y = Tanh(e) }"
    hosted = import_onnx(text_model(body), guest)
    hosted.run({"x": normal(32, 64)})
    with pytest.raises(StepFailed, match="ZDNN_ALLOCATION_FAILURE"):
        hosted.run({"x": normal(4000, 64)})
    with pytest.raises(ModelRefused, match="a constant cannot be stickified: ZDNN_ALLOCATION"):
        import_onnx(real_models.residual_cnn(), Guest(find_machine("telum2"), allocate=_none)).run(
            real_models.images(1)
        )


def _none(_size: int) -> None:
    return None


def test_events() -> None:
    """An observer sees every node before and after, in order, and reads what is live."""
    hosted, feeds = load(text_model(CHAIN)), {"x": normal(3, 4)}
    executor = hosted.executor({"x": (3, 4)})
    seen: list[tuple[int, str]] = []
    outputs: dict[int, Any] = {}

    def observe(event: NodeEvent) -> None:
        seen.append((event.node, event.phase))
        node = executor.program.nodes[event.node]
        assert event.read(node.inputs[0]) is not None
        if event.phase == "after":
            outputs[event.node] = event.read(node.outputs[0])
        else:
            assert event.read(node.outputs[0]) is None

    result = executor.run(feeds, observe)
    assert seen == [(at, phase) for at in range(4) for phase in ("before", "after")]
    np.testing.assert_allclose(outputs[0], np.exp(feeds["x"]), rtol=1e-3)
    assert np.array_equal(outputs[3], result.outputs["y"])
    assert np.array_equal(executor.run(feeds).outputs["y"], result.outputs["y"])
    assert executor.run(feeds).calls == result.calls


def test_runs_side_by_side() -> None:
    """Runs of one executor from several threads do not touch each other."""
    hosted = load(real_models.tagger())
    feeds = [{"words": real_models.words(8)["words"] + shift} for shift in (-1, 0)]
    feeds = [{"words": np.abs(feed["words"]) % real_models.WORDS} for feed in feeds]
    alone = [next(iter(hosted.run(feed).outputs.values())) for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        many = list(pool.map(hosted.run, feeds * 8))
    for index, result in enumerate(many):
        assert np.array_equal(next(iter(result.outputs.values())), alone[index % 2])


def test_program_is_for_its_machine() -> None:
    """A program made for one machine is refused on another."""
    program = load(text_model(CHAIN)).specialise()
    with pytest.raises(ModelRefused, match="this program is for telum2"):
        Executor(program, Guest(find_machine("telum1")))


def test_macc() -> None:
    """MACC counts as X-CUBE-AI does: convolutions, dense layers, rectifiers, softmax."""
    body = (
        "g (float[1,3,8,8] x, float[4,3,3,3] w, float[64,10] d) => (float[1,10] y) {"
        " c = Conv <pads = [1,1,1,1]> (x, w) p = MaxPool <kernel_shape = [2,2], strides = [2,2]>"
        " (c) r = Relu(p) f = Flatten(r) m = MatMul(f, d) y = Softmax(m) }"
    )
    shapes = {"x": normal(1, 3, 8, 8), "w": normal(4, 3, 3, 3), "d": normal(64, 10)}
    placed = nodes(load(text_model(body)), shapes)
    counts = [node.macc for node in placed]
    assert counts == [4 * 64 * 27 + 4, 64 * 4, 64, 0, 640 + 10, 150]


def test_the_documented_table_is_the_table() -> None:
    """The table of operators in the manual is the one that the rules make."""
    text = (Path(__file__).parents[2] / "deploy/docs/placement.md").read_text()
    start, end = "operator_table.markdown\n-->\n", "<!-- generated: end -->"
    assert text.split(start, 1)[1].split(end, 1)[0] == markdown()


def test_every_rule_has_its_row() -> None:
    """Every operator of the table says when it is taken, and names functions that exist."""
    for operator in OPERATORS.values():
        assert operator.doc.endswith(".")
        assert set(operator.functions) <= set(FUNCTIONS)
