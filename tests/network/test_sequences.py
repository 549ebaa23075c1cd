# SPDX-License-Identifier: Apache-2.0
"""Sequences and optionals inside of a model: hosted as ONNX Runtime runs them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.importing.plan import ForeignExecutor, Plan
from nnpa_network.program import HostStep, ModelRefused
from nnpa_network.reporting.accuracy import measure
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import StepFailed
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import make_workers
from nnpa_server.sandbox import confinement
from onnx import helper

from tests.network.hosting import Array, load, nodes, normal, reference, text_model
from tests.network.random_sequences import random_model

X: dict[str, Array] = {"x": normal(3, 4)}
TAIL = "y = ConcatFromSequence <axis = 0> (s) }"
LOOP = f"""m (float[N,4] x, int64 n, bool c) => (float[A,4] y) {{
    e = SequenceEmpty <dtype = 1> ()
    s = Loop <body = b (int64 i, bool k, seq(float[N,4]) p) => (bool k2, seq(float[N,4]) q) {{
        k2 = Identity (k) f = Cast <to = 1> (i) z = Add (x, f) q = SequenceInsert (p, z) }}>
        (n, c, e) {TAIL}"""
TRIPS: dict[str, Array] = {"n": np.array(3), "c": np.array(True)}
CASES: dict[str, tuple[str, int, Mapping[str, Array]]] = {
    "split, read, changed and joined": (
        f"""m (float[N,4] x) => (float[A,4] y) {{
            q = SplitToSequence <axis = 0> (x) one = Constant <value_int = 1> ()
            e = SequenceAt (q, one) n = Neg (e) r = SequenceErase (q, one)
            s = SequenceInsert (r, n) {TAIL}""", 17, X
    ),
    "two uses with the accelerator between": (
        f"""m (float[N,4] x) => (float[A,4] y, int64 n) {{
            a = Relu (x) q = SequenceConstruct (a, x) n = SequenceLength (q)
            b = ConcatFromSequence <axis = 0, new_axis = 1> (q) two = Constant <value_ints = [0]> ()
            d = ReduceSum <keepdims = 0> (b, two) f = Exp (d)
            s = SequenceConstruct (f, a) {TAIL}""", 17, X
    ),
    "a way out and back": (
        f"""m (float[N,4] x) => (float[A,B] y, float[C,D] t) {{
            halves = Constant <value_int = 2> () q = SplitToSequence <axis = 1> (x, halves)
            zero = Constant <value_int = 0> () e = SequenceAt (q, zero)
            r = Relu (e) t = Exp (r) s = SequenceInsert (q, t) {TAIL}""", 17, X
    ),
    "an empty one": (
        f"""m (float[N,4] x) => (float[A,4] y) {{
            e = SequenceEmpty <dtype = 1> () q = SequenceInsert (e, x) s = SequenceInsert (q, x)
            {TAIL}""", 17, X
    ),
    "made by a branch": (
        f"""m (float[N,4] x, bool c) => (float[A,4] y) {{
            s = If (c) <then_branch = a () => (seq(float[N,4]) p)
                    {{ p = SequenceConstruct (x, x) }},
                else_branch = b () => (seq(float[N,4]) q) {{ q = SequenceConstruct (x) }}>
            {TAIL}""", 17, X | {"c": np.array(False)}
    ),
    "grown by a loop": (LOOP, 17, X | TRIPS),
    "read by a branch": (
        """m (float[N,4] x, bool c) => (float[N,4] y) { s = SequenceConstruct (x, x)
            y = If (c) <then_branch = a () => (float[N,4] p) { z = Constant <value_int = 0> ()
                    p = SequenceAt (s, z) },
                else_branch = b () => (float[N,4] p) { p = Neg (x) }> }""", 17,
        X | {"c": np.array(True)}
    ),
    "text": (
        f"""m (string[N] x) => (string[A] y) {{
            q = SplitToSequence <axis = 0> (x) zero = Constant <value_int = 0> ()
            e = SequenceAt (q, zero) s = SequenceInsert (q, e) {TAIL}""", 17,
        {"x": np.array(["one", "two"], object)}
    ),
    "an optional": (
        """m (float[N,4] x) => (float[N,4] y, bool has) { o = Optional (x)
            has = OptionalHasElement (o) r = OptionalGetElement (o) y = Relu (r) }""", 18, X
    ),
    "an optional of opset 15": (
        """m (float[N,4] x) => (float[N,4] y, bool has) { o = Optional (x)
            has = OptionalHasElement (o) y = OptionalGetElement (o) }""", 15, X
    ),
    "an optional sequence": (
        f"""m (float[N,4] x) => (float[A,4] y) {{ q = SequenceConstruct (x, x)
            o = Optional (q) r = OptionalGetElement (o) s = Identity (r) {TAIL}""", 18, X
    ),
    "one that nobody reads": (
        "m (float[N,4] x) => (float[N,4] y) { y = Relu (x) q = SequenceConstruct (x, y) }", 17, X
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools | None]:
    """Workers of the module, where the system has any."""
    workers = make_pools("auto") if confinement.is_linux() else None
    yield workers
    if workers is not None:
        workers.close()


def _plan(model: bytes, place: str, pools: Pools | None) -> Plan:
    guest = Guest(find_machine("telum2"))
    if place == "here":
        return OnnxPlan(model, guest)
    if pools is None:
        pytest.skip("workers are Linux processes")
    return WorkerPlan(model, guest, ImportOptions(), make_workers(pools))


def _runs_alike(model: bytes, feeds: Mapping[str, Array], plan: Plan) -> None:
    """Assert that a run is as one of ONNX Runtime."""
    shapes = {name: array.shape for name, array in feeds.items()}
    result = plan.executor(shapes).run(feeds)
    for got, expected in zip(result.outputs.values(), reference(model, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if got.dtype == object:
            assert got.tolist() == expected.tolist()
        else:
            most = max(1, float(np.abs(expected).max(initial=0)))
            np.testing.assert_allclose(got, expected, rtol=0.02, atol=0.02 * most)


@pytest.mark.parametrize("place", ["here", "worker"])
@pytest.mark.parametrize("case", CASES)
def test_a_run_equals_onnx_runtimes(case: str, place: str, pools: Pools | None) -> None:
    """Values, shapes and types equal ONNX Runtime's, with the sandbox and without."""
    body, opset, feeds = CASES[case]
    model = text_model(body, opset)
    _runs_alike(model, feeds, _plan(model, place, pools))


@pytest.mark.heavy
@pytest.mark.parametrize(("place", "count"), [("here", 150), ("worker", 20)])
def test_random_graphs(place: str, count: int, pools: Pools | None) -> None:
    """Random graphs with sequences run as in ONNX Runtime, none is refused."""
    for seed in range(count):
        model, rng = random_model(seed), np.random.default_rng(seed)
        feeds = {name: rng.normal(0, 1, (2, 3)).astype(np.float32) for name in "xz"}
        feeds["c"] = np.array(seed % 2 == 0)
        _runs_alike(model, feeds, _plan(model, place, pools))


@pytest.mark.parametrize("place", ["here", "worker"])
def test_a_map_over_a_sequence(place: str, pools: Pools | None) -> None:
    """SequenceMap, whose body ONNX defines by a function, runs, too."""
    proto = onnx.ModelProto.FromString(text_model(CASES["an empty one"][0], 17))
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "ar"]
    body = helper.make_graph([helper.make_node("Exp", ["a"], ["r"])], "b", ends[:1], ends[1:])
    proto.graph.node[-1].input[0] = "mapped"
    proto.graph.node.append(helper.make_node("SequenceMap", ["s"], ["mapped"], body=body))
    model = proto.SerializeToString()
    plan = _plan(model, place, pools)
    proto.graph.node.insert(3, proto.graph.node.pop())  # ONNX Runtime takes any order, too
    _runs_alike(proto.SerializeToString(), X, plan)


def test_what_needs_no_sequence_stays_on_the_accelerator() -> None:
    """Nodes before, behind and between two uses of sequences are placed as without them."""
    body, opset, feeds = CASES["two uses with the accelerator between"]
    placed = nodes(load(text_model(body, opset)), feeds)
    assert {node.device for node in placed if node.op_type == "Relu"} == {"accelerator"}
    enclosing = [node for node in placed if node.op_type == "If"]
    assert [node.device for node in enclosing] == ["host", "host"]
    assert "SequenceConstruct, SequenceLength, ConcatFromSequence" in enclosing[0].reason
    assert {"ReduceSum", "Exp"} <= {node.op_type for node in placed}


def test_a_report_compares_it() -> None:
    """A report beside FP32 takes models with sequences."""
    body, opset, feeds = CASES["a way out and back"]
    report = measure(text_model(body, opset), [feeds], ("telum2",))
    assert "relative error" in as_text(report)


@pytest.mark.parametrize("place", ["here", "worker"])
def test_a_loop_over_a_sequence_ends(place: str, pools: Pools | None) -> None:
    """Trips are counted, those that a constant says before anything runs."""
    model = text_model(LOOP, 17)
    plan = _plan(model, place, pools)
    many = X | TRIPS | {"n": np.array(10_001)}
    with pytest.raises(StepFailed, match="trip count of at most 10000"):
        _runs_alike(model, many, plan)
    proto = onnx.ModelProto.FromString(model)
    loop = next(node for node in proto.graph.node if node.op_type == "Loop")
    loop.input[0] = ""
    with pytest.raises(ModelRefused, match="trip count, its first input, which is left out"):
        _runs_alike(model, X | TRIPS, _plan(proto.SerializeToString(), place, pools))


def _inner_loop(trips: str) -> bytes:
    """Return an If of which a branch has a Loop, and makes a trip count `inside`."""
    return text_model(
        f"""m (float[4] x, bool c, int64 n) => (float[4] y) {{ y = If (c) <
            then_branch = a () => (float[4] p) {{ inside = Identity (n)
                p = Loop <body = b (int64 i, bool k, float[4] v) => (bool k2, float[4] w)
                    {{ k2 = Identity (k) w = Add (v, v) }}> ({trips}, c, x) }},
            else_branch = e () => (float[4] q) {{ q = Neg (x) }}> }}""", 17
    )  # fmt: skip


@pytest.mark.parametrize("place", ["here", "worker"])
def test_a_loop_inside_of_a_branch(place: str, pools: Pools | None) -> None:
    """A Loop in a branch runs if its trip count comes from outside, where it is checked."""
    model, feeds = _inner_loop("n"), TRIPS | {"x": normal(4)}
    plan = _plan(model, place, pools)
    _runs_alike(model, feeds, plan)
    with pytest.raises(StepFailed, match="trip count of at most 10000"):
        _runs_alike(model, feeds | {"n": np.array(1 << 40)}, plan)
    with pytest.raises(ModelRefused, match="trip count from outside of it, which inside is not"):
        _runs_alike(model, feeds, _plan(_inner_loop("inside"), place, pools))


def test_a_program_counts_trips() -> None:
    """A program from elsewhere is refused for a Loop in a branch of too many trips, or of unknown.

    Nobody has checked the model that it was made from.
    """
    program = load(_inner_loop("n")).specialise({"x": (4,)})
    (step,) = [step for step in program.steps if isinstance(step, HostStep)]
    trips = dict(zip(("x", "c", "n"), program.input_ids, strict=True))["n"]
    many = replace(program, constants={**program.constants, trips: np.array(1 << 40)})
    with pytest.raises(ModelRefused, match="trip count of at most 10000"):
        Executor(many, Guest(find_machine("telum2")))
    node = onnx.NodeProto.FromString(step.onnx)
    for attribute in node.attribute:
        for child in attribute.g.node:
            if child.op_type == "Loop":
                child.input[0] = "inside"
    steps = tuple(
        replace(each, onnx=node.SerializeToString()) if isinstance(each, HostStep) else each
        for each in program.steps
    )
    with pytest.raises(ModelRefused, match="inside is not"):
        ForeignExecutor(replace(program, steps=steps), Guest(find_machine("telum2")))


ENDS: Mapping[str, tuple[str, str]] = {
    "an output": (
        "m (float[N,4] x) => (seq(float[N,4]) y) { y = SequenceConstruct (x, x) }",
        r"output y is not a tensor .* but a sequence: make its elements outputs",
    ),
    "an input": (
        "m (seq(float[N,4]) s) => (float[A,4] y) { y = ConcatFromSequence <axis = 0> (s) }",
        r"input s is not a tensor .* but a sequence: make its elements inputs",
    ),
    "an optional input": (
        "m (optional(float[N,4]) o) => (bool y) { y = OptionalHasElement (o) }",
        r"input o is not a tensor .* but an optional: make what it holds the input",
    ),
}


@pytest.mark.parametrize("place", ["here", "worker"])
@pytest.mark.parametrize("end", ENDS)
def test_ends_are_tensors(end: str, place: str, pools: Pools | None) -> None:
    """A sequence or optional as input or output is refused, with what can be done."""
    body, text = ENDS[end]
    with pytest.raises(ModelRefused, match=text):
        _plan(text_model(body, 18), place, pools)
