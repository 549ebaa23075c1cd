# SPDX-License-Identifier: Apache-2.0
"""Hosted networks through the Python client: in process, and over gRPC to a server process."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_client import NetworkError, Session, TransportError, ZdnnWarning, network
from nnpa_client.network import Buffer, Format, NetworkParams, Options
from nnpa_network.client_api import buffer_format
from onnx import helper

from tests.network.small_models import (
    BIAS,
    WEIGHT,
    Value,
    dense,
    dense_reference,
    image,
    model,
    quantised,
    two_ends,
)

X = np.array([[1, 2, 3, 4], [-1, 0.5, 2, -3]], np.float32)


def created(session: Session, model: Any = None, **options: Any) -> network.Handle:
    """Create a network and return its handle."""
    error, handle = network.create(session, model or dense(), options=Options(**options))
    assert not error, error
    assert handle is not None
    return handle


def report_of(handle: network.Handle) -> network.Report:
    """Describe a network."""
    report = network.get_info(handle)
    assert report is not None
    return report


def initialised(handle: network.Handle) -> network.Handle:
    """Initialise a network with its own weights."""
    size = report_of(handle).activations.channels
    params = NetworkParams(network.default_weights(), network.activations(size))
    assert network.init(handle, params)
    return handle


def bound(handle: network.Handle, *values: Any) -> tuple[list[Buffer], list[Buffer]]:
    """Return a network's buffers with arrays as inputs and memory for outputs."""
    report, count = report_of(handle), len(values[0])
    inputs = [
        replace(buffer, n_batches=count, data=value)
        for buffer, value in zip(report.inputs, values, strict=True)
    ]
    return inputs, [
        replace(buffer, n_batches=count, data=buffer.empty(count)) for buffer in report.outputs
    ]


def test_seed_sequence(session: Session) -> None:
    """The "Getting started" sequence: create, init, run with n_batches, get_error, destroy."""
    handle = initialised(created(session))
    inputs, outputs = bound(handle, X)
    assert network.run(handle, inputs, outputs) == 2
    result = np.asarray(outputs[0].data).reshape(2, 3)
    np.testing.assert_allclose(result, dense_reference(X), rtol=0.01)
    assert not network.get_error(handle)
    assert network.forward(handle, inputs) == 2
    assert network.destroy(handle) is None
    assert network.destroy(handle) == handle
    assert (network.get_error(handle).type, network.get_error(handle).code) == (0x10, 0x10)


def test_errors_by_value(session: Session) -> None:
    """Create returns its error; run and init return a failure, and get_error explains it once."""
    error, handle = network.create(session, dense(), tools_api_version=(1, 5, 0))
    assert (error.type, error.code, handle) == (0x01, 0x10, None)
    assert "AI_ERROR_TOOL_PLATFORM_API_MISMATCH" in str(error)
    ready = created(session)
    assert network.run(ready, *bound(ready, X)) == -1
    assert network.get_error(ready).code == 0x30
    assert not network.init(ready, None)
    assert network.get_error(ready, 3).code == 0x11
    assert network.get_error(ready, 3).code == 0x11
    assert not network.get_error(ready)


def test_bytes_and_bytearrays_are_memory(session: Session) -> None:
    """Inputs may be bytes, outputs bytearrays; other memory for results is refused."""
    handle = initialised(created(session))
    inputs, outputs = bound(handle, X)
    memory = bytearray(2 * 3 * 4)
    assert network.run(handle, [replace(inputs[0], data=X.tobytes())],
                       [replace(outputs[0], data=memory)]) == 2  # fmt: skip
    np.testing.assert_allclose(
        np.frombuffer(memory, np.float32).reshape(2, 3), dense_reference(X), rtol=0.01
    )
    for wrong in (bytes(24), np.empty((2, 6), np.float32), bytearray(23)):
        with pytest.raises(ValueError, match=r"output\.data"):
            network.run(handle, inputs, [replace(outputs[0], data=wrong)])


def test_weights(session: Session) -> None:
    """Weights are the model's own, another blob, or pieces."""
    handle = created(session)
    memory = network.activations(report_of(handle).activations.channels)
    blob = WEIGHT.tobytes() + (BIAS + 1).tobytes()
    assert network.init(handle, NetworkParams(network.weights(blob), memory))
    inputs, outputs = bound(handle, X)
    assert network.run(handle, inputs, outputs) == 2
    expected = np.maximum(X @ WEIGHT + BIAS + 1, 0)
    np.testing.assert_allclose(np.asarray(outputs[0].data).reshape(2, 3), expected, rtol=0.01)
    network.destroy(handle)
    handle = created(session, split_weights=True)
    pieces = network.split_weights([WEIGHT.tobytes(), (BIAS + 1).tobytes()])
    assert network.init(handle, NetworkParams(pieces, memory))


def test_places_in_activations(session: Session) -> None:
    """Outputs inside activations get their data; inputs there are kept for the next run."""
    handle = initialised(created(session, two_ends(), allocate_inputs=True, allocate_outputs=True))
    report = report_of(handle)
    inputs = [
        replace(buffer, data=np.full(6, n, np.float32)) for n, buffer in enumerate(report.inputs)
    ]
    outputs = [replace(buffer, data=None, activations_offset=None) for buffer in report.outputs]
    assert network.run(handle, inputs, outputs) == 1
    assert np.frombuffer(outputs[0].data or b"", np.float32).tolist() == [1.0] * 6
    inside = [replace(buffer, data=None) for buffer in report.inputs]
    assert network.run(handle, inside, outputs) == 1


def test_images_are_re_ordered(session: Session) -> None:
    """The helpers bring a channels-first batch into a buffer's order and back."""
    handle = initialised(created(session, image()))
    chw = np.random.default_rng(2).standard_normal((2, 2, 3, 4)).astype(np.float32)
    inputs, outputs = bound(handle, network.to_bhwc(chw))
    assert network.run(handle, inputs, outputs) == 2
    back = network.from_bhwc(np.asarray(outputs[0].data), 4)
    np.testing.assert_allclose(back, np.maximum(chw, 0), rtol=0.002)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_order_round_trip(shape: tuple[int, ...]) -> None:
    """Re-ordering and back is identity; (b, c, h, w) lies at ((b H + h) W + w) C + c."""
    values = np.arange(np.prod(shape)).reshape(shape)
    bhwc = network.to_bhwc(values)
    np.testing.assert_array_equal(network.from_bhwc(bhwc, len(shape)), values)
    if len(shape) == 4:
        assert bhwc.reshape(-1)[((1 * 4 + 2) * 5 + 3) * 3 + 1] == values[1, 1, 2, 3]


def test_orders_that_are_none() -> None:
    """Re-ordering takes 2 to 4 dims."""
    with pytest.raises(ValueError, match="2 to 4"):
        network.to_bhwc(np.zeros(3))
    with pytest.raises(ValueError, match="2 to 4"):
        network.from_bhwc(np.zeros((1, 1, 1, 1)), 5)


def test_quantised_with_the_documented_conversions(session: Session) -> None:
    """An application converts with scale and zero point of the report, in and out."""
    handle = initialised(created(session, quantised()))
    input_buffer, output_buffer = report_of(handle).inputs[0], report_of(handle).outputs[0]
    assert input_buffer.meta_info is not None
    assert output_buffer.meta_info is not None
    real = np.array([[-60.0, -1.5, 0.0, 0.5, 8.5]], np.float32)
    q = network.quantize(
        real, input_buffer.meta_info.scale, input_buffer.meta_info.zero_point, input_buffer.format
    )
    inputs, outputs = bound(handle, q)
    assert network.run(handle, inputs, outputs) == 1
    result = network.dequantize(
        np.asarray(outputs[0].data),
        output_buffer.meta_info.scale,
        output_buffer.meta_info.zero_point,
    )
    assert result.reshape(-1).tolist() == [0.0, 0.0, 0.0, 0.5, 8.5]


# The conversions and accessors that every SDK runs locally are those of the server.


@given(st.integers(0, (1 << 32) - 1))
def test_accessors_are_the_servers(word: int) -> None:
    """Every accessor of the format word answers as the server's accessor or the header's."""
    pairs: Sequence[tuple[Callable[[int], int], Callable[[int], int]]] = (
        (network.fmt_get_type, buffer_format.get_type),
        (network.fmt_get_float, lambda word: word >> 24 & 1),
        (network.fmt_get_sign, lambda word: word >> 23 & 1),
        (network.fmt_get_bits, buffer_format.get_bits),
        (network.fmt_get_fbits, buffer_format.get_fbits),
        (network.fmt_get, buffer_format.without_flags),
        (lambda word: network.byte_size(77, word), lambda word: buffer_format.byte_size(77, word)),
    )
    for mine, theirs in pairs:
        assert mine(word) == theirs(word)


def test_formats_are_the_servers() -> None:
    """The predefined formats and their types are the server's."""
    assert {fmt.name: fmt.value for fmt in Format} == {
        fmt.name: fmt.value for fmt in buffer_format.Format
    }
    for fmt in set(Format) - {Format.NONE, Format.Q, Format.UQ}:
        assert network.dtype_of(fmt) == buffer_format.dtype_of(fmt)
    with pytest.raises(ValueError, match="whole type"):
        network.dtype_of(Format.Q)


@given(
    values=st.lists(st.floats(width=32), min_size=1, max_size=20),
    scale=st.floats(2.0**-20, 2.0**20, width=32),
    zero=st.integers(0, 127),
    word=st.sampled_from([Format.S8, Format.U8, Format.S16]),
)
def test_conversions_are_the_servers(
    values: list[float], scale: float, zero: int, word: Format
) -> None:
    """`quantize` and `dequantize` give the server's bits."""
    array = np.array(values, np.float32)
    mine = network.quantize(array, scale, zero, word)
    theirs = buffer_format.quantise(array, scale, zero, word)
    np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(
        network.dequantize(mine, scale, zero), buffer_format.dequantise(theirs, scale, zero)
    )


# The short face.


def test_load_and_call(session: Session, tmp_path: Path) -> None:
    """A model from a path, bytes or a message is a function over arrays and lists."""
    model = dense()
    path = tmp_path / "dense.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (path, str(path), path.read_bytes(), model):
        with session.load(source) as net:
            np.testing.assert_allclose(net(X), dense_reference(X), rtol=0.01)
            assert net(x=X.tolist()).dtype == np.float32
    assert net.inputs == (network.Port("x", "float32", (-1, 4)),)
    assert repr(net).endswith("x float32[-1, 4] -> y float32[-1, 3]>")


def test_several_inputs_and_outputs(session: Session) -> None:
    """Inputs come in order or by name; several outputs are a tuple in the model's order."""
    a, b = np.ones((1, 2, 3), np.float32), np.full((1, 2, 3), 2, np.float32)
    with session.load(two_ends()) as net:
        for total, most in (net(a, b), net(a, b=b), net(b=b, a=a)):
            np.testing.assert_array_equal(total, a + b)
            np.testing.assert_array_equal(most, b)
        inference = net.infer(a, b)
        assert inference.calls["add"] == 1
        with pytest.raises(TypeError, match="inputs"):
            net(a, b, a)
        with pytest.raises(TypeError, match="inputs"):
            net(a, a=a)


def test_a_mapping_is_an_argument(session: Session) -> None:
    """Arrays may come in mappings by any name, also beside arrays; a repeated name is refused."""
    ends: list[Value] = [(name, np.float32, ["N", 4]) for name in ("onnx::Flatten_0", "self")]
    node = helper.make_node("Sub", [name for name, *_ in ends], ["y"], "difference")
    a, b = X, X * 2
    with session.load(model([node], ends, [("y", np.float32, ["N", 4])])) as net:
        first, second = (port.name for port in net.inputs)
        feeds = MappingProxyType({first: a, second: b})
        for arguments in ((feeds,), (a, {second: b}), ({second: b}, a), ({first: a}, {second: b})):
            np.testing.assert_array_equal(net(*arguments), a - b)
            np.testing.assert_array_equal(net.infer(*arguments).outputs["y"], a - b)
        np.testing.assert_array_equal(net({second: b}, **{first: a}), a - b)
        wrong: tuple[Any, ...] = ((a, feeds), (feeds, {first: a}), (a, b, {second: b}))
        for arguments in wrong:
            with pytest.raises(
                TypeError, match=r"inputs: .*'self'.*, expected \['onnx::Flatten_0'"
            ):
                net(*arguments)
        with pytest.raises(TransportError, match="'z'"):
            net({"z": a})


def test_wrong_inputs(session: Session) -> None:
    """The client refuses an array of another type; the server refuses another shape or name."""
    with session.load(dense()) as net:
        with pytest.raises(TypeError, match="input x: float64 array, expected float32"):
            net(X.astype(np.float64))
        with pytest.raises(TransportError, match=r"expected \[-1, 4\]"):
            net(X[:, :3])
        with pytest.raises(TransportError, match="'z'"):
            net(X, z=X)


def test_range_violations_warn(session: Session) -> None:
    """A run whose values leave DLFLOAT16 warns, and `infer` reports them without a warning."""
    big = np.full((1, 2, 3), 1e30, np.float32)
    with session.load(two_ends(), options=Options(overflow="ninf")) as net:
        with pytest.warns(ZdnnWarning, match="node"):
            net(big, big)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            inference = net.infer(big, big)
    assert inference.nans["total"] == 6
    assert inference.violations


def test_load_refuses(session: Session) -> None:
    """A refusal of the client API is a NetworkError, and a bad model is a TransportError."""
    with pytest.raises(NetworkError, match="AI_ERROR_CREATE_FAILED"):
        session.load(dense(), options=Options(device_gate_closed=True))
    with pytest.raises(TransportError) as caught:
        session.load(b"no model")
    assert caught.value.reason == "MODEL_INVALID"
    with pytest.raises(ValueError, match="exactly one"):
        session.load()
    with pytest.raises(ValueError, match="overflow"):
        session.load(dense(), options=Options(overflow="wrap"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_program_without_model(session: Session) -> None:
    """An exported program is a network without its model, with the same bits."""
    with session.load(dense()) as net:
        program, expected = net.export_program(), net(X[:1])
    with session.load(program=program) as program_net:
        np.testing.assert_array_equal(program_net(X[:1]), expected)


def test_report(session: Session) -> None:
    """The report of a loaded network names the device of each node."""
    with session.load(dense()) as net:
        report = net.report()
    assert [node.op_type for node in report.nodes] == ["MatMul", "Add", "Relu"]
    assert {node.device for node in report.nodes} <= {"accelerator", "folded"}
    assert report.machine == "telum2"


def test_observe(session: Session) -> None:
    """Events of a run are read from an iterator, which unregisters when it is closed."""
    handle = initialised(created(session))
    events = network.observe(handle, 4, tensors=True)
    assert events is not None
    assert network.observe(handle) is None
    assert network.get_error(handle).code == 0x40
    inputs, outputs = bound(handle, X[:1])
    assert network.run(handle, inputs, outputs) == 1
    seen = [next(events) for _ in range(3)]
    assert [event.node.op_type for event in seen] == ["MatMul", "Add", "Relu"]
    assert [tensor.name for tensor in seen[-1].tensors] == ["y"]
    node = network.node_info(handle, 2)
    assert node is not None
    assert node.type == 0x107
    assert network.node_info(handle, 9) is None


def test_networks_end_with_their_session(open_session: Callable[..., Session]) -> None:
    """A network is gone when its session is closed."""
    session = open_session()
    net = session.load(dense())
    session.close()
    with pytest.raises(TransportError):
        net(X)
