# SPDX-License-Identifier: Apache-2.0
"""Shapes that ONNX Runtime makes and ONNX's shape inference does not tell, here and in a worker."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.building.type_inference import Value, infer
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.importing.plan import Plan
from nnpa_network.program import ModelRefused
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import make_workers
from nnpa_server.sandbox import confinement
from onnx import AttributeProto, NodeProto, TensorProto, helper
from packaging.version import Version

from tests.network.hosting import Array, reference, text_model

GUEST = find_machine("telum2")
FLOATS = np.dtype(np.float32)
PAIR, NONE = np.array([1.5, -2], np.float32), np.array(0, np.int64)
IMAGE = np.arange(25, dtype=np.float32).reshape(1, 1, 5, 5) / 8
WINDOW = "<kernel_shape = [1, 1], strides = [3, 3], ceil_mode = 1>"


def _looped(body: str, produced: str, outputs: str) -> str:
    """Return a Loop over x whose input `trips` is its number of rounds."""
    names = ", ".join(output.split()[-1] for output in outputs.split(", "))
    return f"""m (float[2] x, int64 trips) => ({outputs}) <bool go = {{1}}> {{
        {names} = Loop <body = step (int64 i, bool on, float[2] a) => (bool still, {produced})
            {{ still = Identity (on) {body} }}> (trips, go, x)
    }}"""


IMAGES: Mapping[str, Array] = {"x": IMAGE}
ROUNDS: Mapping[str, Array] = {"x": PAIR, "trips": NONE}
CASES: dict[str, tuple[str, Mapping[str, Array]]] = {
    "window beyond the data": (
        f"m (float[1,1,5,5] x) => (float[1,1,p,q] y) {{ y = AveragePool {WINDOW} (x) }}", IMAGES
    ),
    "window in the padding": (
        """m (float[1,1,5,5] x) => (float[1,1,p,q] y) { y = AveragePool <kernel_shape = [2, 2],
            strides = [4, 4], pads = [1, 1, 1, 1], ceil_mode = 1> (x) }""", IMAGES
    ),
    "declared as inferred": (
        f"m (float[1,1,5,5] x) => (float[1,1,3,3] y) {{ y = AveragePool {WINDOW} (x) }}", IMAGES
    ),
    "declared as run": (
        f"m (float[1,1,5,5] x) => (float[1,1,2,2] y) {{ y = LpPool {WINDOW} (x) }}", IMAGES
    ),
    "read by the accelerator": (
        f"""m (float[1,1,5,5] x) => (float[1,1,p,q] y) {{
            a = LpPool {WINDOW} (x)
            y = Relu (a) }}""", IMAGES
    ),
    "largest elements": (
        f"""m (float[1,1,5,5] x) => (float[1,1,p,q] y, int64[1,1,p,q] i) {{
            y, i = MaxPool {WINDOW} (x) }}""", IMAGES
    ),
    "no rounds": (
        _looped("b = Add (a, a)", "float[2] b", "float[2] y"), ROUNDS
    ),
    "no rounds, a value that grows": (
        _looped("b = Concat <axis = 0> (a, a)", "float[4] b", "float[4] y"), ROUNDS
    ),
    "no rounds, a value of another rank": (
        _looped("axis = Constant <value_ints = [0]> () b = Unsqueeze (a, axis)",
                "float[1,2] b", "float[1,2] y"), ROUNDS
    ),
    "no rounds, rows": (
        _looped("b = Identity (a) c = Concat <axis = 0> (a, a)", "float[2] b, float[4] c",
                "float[2] y, float[3,4] rows"), ROUNDS
    ),
    "no rounds, read by the accelerator": (
        _looped("b = Concat <axis = 0> (a, a)", "float[4] b", "float[4] z")
        .replace("=> (float[4] z)", "=> (float[4] y)").rstrip(" }") + "\n y = Relu (z) }", ROUNDS
    ),
    "branches of two ranks": (
        """m (float[2] x, bool go) => (float[2] y) {
            y = If <then_branch = a () => (float[2] s) { s = Neg (x) },
                    else_branch = b () => (float[2,2] t) <float[2,2] w = {1, 2, 3, 4}>
                        { t = Add (x, w) }> (go) }""", {"x": PAIR, "go": np.array(False)}
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools | None]:
    """Workers of the module, where the system has any."""
    workers = make_pools("auto") if confinement.is_linux() else None
    yield workers
    if workers is not None:
        workers.close()


@pytest.mark.parametrize("place", ["here", "worker"])
@pytest.mark.parametrize("name", CASES)
def test_a_run_has_the_shapes_of_onnx_runtime(name: str, place: str, pools: Pools | None) -> None:
    """Values and shapes equal ONNX Runtime's, with the sandbox and without."""
    body, feeds = CASES[name]
    model, guest = text_model(body), Guest(GUEST)
    plan: Plan = OnnxPlan(model, guest)
    if place == "worker":
        if pools is None:
            pytest.skip("workers are Linux processes")
        plan = WorkerPlan(model, guest, ImportOptions(), make_workers(pools))
    result = plan.executor({name: array.shape for name, array in feeds.items()}).run(feeds)
    for got, expected in zip(result.outputs.values(), reference(model, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=0.01)


def windows() -> Iterator[tuple[NodeProto, int, int]]:
    """Yield poolings of one axis with their opset, and the size of the axis."""
    padded = [("NOTSET", pads) for pads in product((0, 1, 2), repeat=2)]
    padding = [*padded, *((auto, (0, 0)) for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"))]
    for (operator, opset), size, kernel, stride, dilation, ceil, (auto, pads) in product(
        (("AveragePool", 19), ("MaxPool", 12), ("LpPool", 22)),
        (3, 4, 6, 9), (1, 2, 3), (1, 3, 4), (1, 2), (0, 1), padding,
    ):  # fmt: skip
        if max(pads) < kernel:
            places: dict[str, Any] = {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
            node = helper.make_node(
                operator, ["x"], ["y"], kernel_shape=[kernel], strides=[stride],
                dilations=[dilation], ceil_mode=ceil, **places,
            )  # fmt: skip
            yield node, opset, size


def _run_shape(node: NodeProto, opset: int, size: int) -> tuple[int, ...] | None:
    """Return the shape of what ONNX Runtime makes; None where it takes no such node."""
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size])
    graph = helper.make_graph([node], "pool", [data], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        (output,) = session.run(None, {"x": np.ones((1, 1, size), np.float32)})
    except Exception:  # a window that is larger than the data: what is raised is ONNX Runtime's
        return None
    shape: tuple[int, ...] = np.asarray(output).shape
    return shape


@pytest.mark.heavy
def test_poolings_have_the_sizes_of_onnx_runtime() -> None:
    """Kernel, stride, dilation, padding, auto_pad and ceil_mode: each size is the run's."""
    different, count = list[object](), 0
    for node, opset, size in windows():
        expected = _run_shape(node, opset, size)
        if expected is None:
            continue
        count += 1
        shape: object = None
        try:
            ((_, shape),) = infer(node, {"": opset}, [Value("x", FLOATS, (1, 1, size))])
        except ModelRefused as refused:
            shape = refused.reason
        if shape != expected:
            different.append((node.op_type, size, str(node.attribute), shape, expected))
    assert not different
    assert count > 2500


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        ((1, 1, -1, 5), {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1}),
        pytest.param(
            (1, 1, 5),
            {"kernel_shape": [1], "strides": [0]},
            marks=pytest.mark.skipif(
                Version(onnx.__version__).release[:2] <= (1, 19),
                reason="onnx 1.19 divides by the stride, which ends the process",
            ),
        ),
        ((1, 1, 5), {"kernel_shape": [1, 1]}),
        ((1, 1, 5), {"kernel_shape": [1], "pads": [1]}),
        ((1, 1, 5), {"kernel_shape": [1], "dilations": []}),
        ((1,), {"kernel_shape": []}),
        ((1, 1, 5), {}),
    ],
)
def test_attributes_of_any_size_break_nothing(
    data: tuple[int, ...], attributes: dict[str, object]
) -> None:
    """A pooling whose attributes do not fit is refused, or inferred as far as can be."""
    node = helper.make_node("AveragePool", ["x"], ["y"])
    for name, value in attributes.items():
        kind = AttributeProto.INT if name == "ceil_mode" else AttributeProto.INTS
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    try:
        ((_, shape),) = infer(node, {"": 19}, [Value("x", FLOATS, data)])
    except ModelRefused:
        return
    if -1 in data:
        assert shape == (1, 1, -1, 2)
