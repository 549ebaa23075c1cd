# SPDX-License-Identifier: Apache-2.0
"""Initializers that are inputs, too: a caller may have other values for them."""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import pytest
from nnpa_client import connect
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.importing.plan import Plan
from nnpa_network.program import ModelRefused
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import make_workers
from nnpa_server.sandbox import confinement
from onnx import numpy_helper

from tests.network.hosting import Array, normal, reference, text_model
from tests.server.onnx_models import Caller, offering, outputs_of, refusal, request

SCALED = """scaled (float[N,4] x, float[4] scale, int64[2] shape) => (float[A,B] y)
    <float[4] scale = {1, 2, 3, 4}, int64[2] shape = {-1, 2}>
    { m = Mul (x, scale) y = Reshape (m, shape) }"""
CONVOLVED = """convolved (float[N,1,5,5] x, float[2,1,3,3] w, float[K] b) => (float[N,2,3,3] y)
    { c = Conv (x, w, b) y = Relu (c) }"""
X: dict[str, Array] = {"x": normal(2, 4)}
SCALE: dict[str, Array] = {"scale": np.array([4, 3, 2, 1], np.float32)}
SHAPE: dict[str, Array] = {"shape": np.array([1, 8])}
ONE: dict[str, Array] = {"scale": np.ones(1, np.float32)}
FEEDS = [X, X | SCALE, X | SHAPE, X | SHAPE | SCALE]


def _convolved() -> bytes:
    """Return a convolution with weights, and a bias of any length, that are inputs."""
    proto = onnx.ModelProto.FromString(text_model(CONVOLVED))
    defaults = {"w": normal(2, 1, 3, 3, seed=1), "b": normal(2, seed=2)}
    for name, array in defaults.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return bytes(proto.SerializeToString())


def _of_old_format(model: bytes) -> bytes:
    """Return a model of IR version 3, in which all initializers are inputs."""
    proto = onnx.ModelProto.FromString(model)
    proto.ir_version = 3
    return bytes(proto.SerializeToString())


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools | None]:
    """Workers of the module, where the system has any."""
    workers = make_pools("auto") if confinement.is_linux() else None
    yield workers
    if workers is not None:
        workers.close()


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server that has the models."""
    with offering() as (_, client):
        client.load("scaled", text_model(SCALED))
        yield client


def _plan(model: bytes, place: str, pools: Pools | None) -> Plan:
    guest = Guest(find_machine("telum2"))
    if place == "here":
        return OnnxPlan(model, guest)
    if pools is None:
        pytest.skip("workers are Linux processes")
    return WorkerPlan(model, guest, ImportOptions(), make_workers(pools))


def _run(plan: Plan, feeds: Mapping[str, Array]) -> Array:
    executor = plan.executor({name: array.shape for name, array in feeds.items()})
    (output,) = executor.run(feeds).outputs.values()
    return output


@pytest.mark.parametrize("place", ["here", pytest.param("worker", marks=pytest.mark.heavy)])
def test_other_values_for_initializers(place: str, pools: Pools | None) -> None:
    """A value for an initializer that is an input counts in that run, as in ONNX Runtime."""
    model = text_model(SCALED)
    plan = _plan(model, place, pools)
    assert [port.name for port in plan.inputs] == ["x"]
    assert [port.name for port in plan.optional] == ["scale", "shape"]
    for feeds in (*FEEDS, *FEEDS):
        got, (expected,) = _run(plan, feeds), reference(model, feeds)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=0.01)


@pytest.mark.parametrize("place", ["here", "worker"])
def test_other_weights_for_an_operation_of_the_accelerator(place: str, pools: Pools | None) -> None:
    """Weights and bias of a convolution may be of a run, also a bias of a free length."""
    model, images = _convolved(), {"x": normal(3, 1, 5, 5)}
    plan = _plan(model, place, pools)
    for more in ({}, {"w": normal(2, 1, 3, 3, seed=3)}, {"b": normal(2, seed=4)}):
        feeds: dict[str, Array] = {**images, **more}
        (expected,) = reference(model, feeds)
        np.testing.assert_allclose(_run(plan, feeds), expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("place", ["here", "worker"])
def test_what_is_no_input_is_refused(place: str, pools: Pools | None) -> None:
    """A value of another shape is refused, and one for what is none of the inputs."""
    plan, old = (
        _plan(model, place, pools)
        for model in (text_model(SCALED), _of_old_format(text_model(SCALED)))
    )
    with pytest.raises(ModelRefused, match=r"input scale: got shape \[1\], expected \[4\]"):
        _run(plan, X | ONE)
    with pytest.raises(ModelRefused, match=r"input m: .* inputs are x; optional: scale, shape"):
        _run(plan, X | {"m": np.ones(1, np.float32)})
    with pytest.raises(ModelRefused, match=r"input scale: the model's inputs are x$"):
        _run(old, X | SCALE)
    np.testing.assert_array_equal(_run(old, X), _run(plan, X))


@pytest.mark.heavy
def test_a_session_takes_other_values_by_name() -> None:
    """A network is called without them, or with some of them by name."""
    model = text_model(SCALED)
    with connect() as session, session.load(model) as net:
        assert [port.name for port in net.inputs] == ["x"]
        for feeds in FEEDS:
            (expected,) = reference(model, feeds)
            np.testing.assert_allclose(net(dict(feeds)), expected, rtol=0.01)
        np.testing.assert_array_equal(net(X["x"]), net(**X))


def test_requests_of_a_published_model(caller: Caller) -> None:
    """Requests name them or do not, in any order; the configuration lists them."""
    assert caller.facts("scaled")["optional_inputs"] == "scale, shape"
    for feeds in ({**X}, X | SCALE, SCALE | X):
        (got,) = caller.infer("scaled", **feeds).values()
        (expected,) = reference(text_model(SCALED), feeds)
        np.testing.assert_allclose(got, expected, rtol=0.01)
    twice = request("scaled", **X, **SCALE)
    twice.inputs.append(twice.inputs[1])
    twice.raw_input_contents.append(twice.raw_input_contents[1])
    assert "scale: got 2 tensors" in refusal("FIELD_INVALID", caller.stub.ModelInfer, twice)
    wrong = request("scaled", **X, **ONE)
    assert "scale" in refusal("FIELD_INVALID", caller.stub.ModelInfer, wrong)
    assert outputs_of(caller.stub.ModelInfer(request("scaled", **X)))["y"].shape == (4, 2)


def test_many_weights_that_are_inputs(caller: Caller) -> None:
    """Of a model whose weights are all inputs the first names are told, and how many more."""
    names = [f"w{number}" for number in range(12)]
    inputs = "".join(f", float[4] {name}" for name in names)
    sums = "".join(f" s{at + 1} = Add (s{at}, {name})" for at, name in enumerate(names))
    model = text_model(
        f"many (float[N,4] x{inputs}) => (float[N,4] s12)"
        f" <{', '.join(f'float[4] {name} = {{1, 2, 3, 4}}' for name in names)}>"
        f" {{ s0 = Relu (x){sums} }}"
    )
    caller.load("many", model)
    listed = f"{', '.join(names[:8])}, 4 more"
    assert caller.facts("many")["optional_inputs"] == listed
    feeds: dict[str, Array] = {**X, "w11": np.zeros(4, np.float32)}
    (got,) = caller.infer("many", **feeds).values()
    np.testing.assert_allclose(got, reference(model, feeds)[0], rtol=0.01)
    unknown = request("many", **X, w12=X["x"])
    assert listed in refusal("FIELD_INVALID", caller.stub.ModelInfer, unknown)
