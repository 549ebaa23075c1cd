# SPDX-License-Identifier: Apache-2.0
"""Running a network: results, refusals, and places of data.

Rows of the error matrix: X-CUBE-AI 7.0 public headers for names and numbers; the pairs that ST does
not document are the ones that `nnpa_network.client_api.network` states.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.client_api.activations import Activations
from nnpa_network.client_api.buffer_format import Buffer, Format, FormatFlag, MetaInfo
from nnpa_network.client_api.creation import NetworkParams, Options
from nnpa_network.client_api.network import Network
from nnpa_network.importing.plan import ProgramPlan

from tests.network.lifecycle import (
    DEFAULT_WEIGHTS,
    NOBODY,
    NOW,
    X,
    activations_of,
    buffers,
    created,
    floats,
    plan_of,
    ready,
    words,
)
from tests.network.small_models import dense, dense_reference, image, quantised, two_ends

# run


def run_error(network: Network, inputs: Any, outputs: Any) -> tuple[int, int]:
    """Run, expect a failure, and return its numbers."""
    result = network.run(inputs, outputs)
    assert (result.n_batches, result.outputs) == (-1, ())
    return words(network.get_error())


def test_run_before_init() -> None:
    """A run before init is INVALID_STATE / MISSED_INIT."""
    network = created()
    assert run_error(network, *buffers(network, X)) == (0x11, 0x30)


Spoil = Callable[[list[Buffer]], list[Buffer] | None]
SPOILT: dict[str, tuple[Spoil, int]] = {
    "no array": (lambda _: None, 0x17),
    "empty array": (lambda _: [], 0x17),
    "too many": (lambda all_: all_ * 2, 0x18),
    "no data": (lambda all_: [replace(all_[0], data=None)], 0x17),
    "format": (lambda all_: [replace(all_[0], format=Format.S8)], 0x19),
    "height": (lambda all_: [replace(all_[0], height=2)], 0x18),
    "width": (lambda all_: [replace(all_[0], width=2)], 0x18),
    "channels": (lambda all_: [replace(all_[0], channels=9)], 0x18),
    "no batches": (lambda all_: [replace(all_[0], n_batches=0)], 0x21),
}


@pytest.mark.parametrize("name", SPOILT)
def test_run_with_a_bad_input(name: str) -> None:
    """A bad input is INVALID_INPUT with the code of its fault."""
    network = ready()
    inputs, outputs = buffers(network, X)
    spoil, code = SPOILT[name]
    assert run_error(network, spoil(inputs), outputs) == (0x12, code)


@pytest.mark.parametrize("name", SPOILT)
def test_run_with_a_bad_output(name: str) -> None:
    """A bad output is INVALID_OUTPUT with the code of its fault; forward ignores it."""
    network = ready()
    inputs, outputs = buffers(network, X)
    spoil, code = SPOILT[name]
    assert run_error(network, inputs, spoil(outputs)) == (0x13, code)
    assert network.forward(inputs).n_batches == 3


def test_run_with_bytes_that_do_not_fit() -> None:
    """Data of other sizes than its batches take is INVALID_INPUT / INVALID_SIZE."""
    network = ready()
    inputs, outputs = buffers(network, X)
    data = inputs[0].data or b""
    for bad in (bytes(data)[:-1], bytes(data) + b"\0", b""):
        assert run_error(network, [replace(inputs[0], data=bad)], outputs) == (0x12, 0x18)


def test_run_with_different_batches() -> None:
    """Inputs of different batches are INVALID_INPUT, outputs INVALID_OUTPUT / INVALID_BATCH."""
    network = ready(two_ends())
    a = np.ones((2, 2, 3), np.float32)
    inputs, outputs = buffers(network, a, a)
    one_less = replace(inputs[1], n_batches=1, data=a[:1].tobytes())
    assert run_error(network, [inputs[0], one_less], outputs) == (0x12, 0x21)
    mixed = [outputs[0], replace(outputs[1], n_batches=3)]
    assert run_error(network, inputs, mixed) == (0x13, 0x21)


def test_run_compares_formats_without_flags() -> None:
    """Attribute flags of a descriptor do not count."""
    network = ready()
    inputs, outputs = buffers(network, X)
    flagged = replace(inputs[0], format=inputs[0].format | FormatFlag.IS_IO)
    assert network.run([flagged], outputs).n_batches == 3


def test_a_layer_that_fails() -> None:
    """A node that fails is INVALID_STATE / LAYER, and says which; the network stays ready."""
    network = ready(failing_node=1)
    inputs, outputs = buffers(network, X)
    assert network.run(inputs, outputs).n_batches == -1
    error = network.get_error()
    assert words(error) == (0x11, 0x14)
    assert "sum" in error.text
    assert network.ready


@contextmanager
def run_under_way(network: Network) -> Generator[None]:
    """Have a run of a network wait in the middle for as long as the block takes."""
    entered, leave = threading.Event(), threading.Event()

    @contextmanager
    def waiting() -> Generator[None]:
        entered.set()
        assert leave.wait(10)
        yield

    inputs, outputs = buffers(network, X)
    results: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(network.run(inputs, outputs, waiting()).n_batches)
    )
    thread.start()
    assert entered.wait(10)
    try:
        yield
    finally:
        leave.set()
        thread.join()
    assert results == [3]


def test_two_runs_at_a_time_when_strict() -> None:
    """A run during a run is INVALID_STATE / IN_USE for a strict network."""
    network = ready()
    with run_under_way(network):
        assert run_error(network, *buffers(network, X)) == (0x11, 0x40)


def test_two_runs_at_a_time_when_not_strict() -> None:
    """A run during a run of a network that is not strict waits for it."""
    network = ready(strict=False)
    results: list[int] = []
    inputs, outputs = buffers(network, X)
    with run_under_way(network):
        thread = threading.Thread(
            target=lambda: results.append(network.run(inputs, outputs).n_batches)
        )
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
    thread.join()
    assert results == [3]


def test_destroy_during_a_run() -> None:
    """Destroying a strict network that runs is DEALLOCATION_FAILED / NETWORK; it lives on."""
    network = ready()
    with run_under_way(network):
        assert not network.destroy()
        assert words(network.get_error()) == (0x32, 0x10)
    assert network.run(*buffers(network, X)).n_batches == 3
    assert network.destroy()


def test_shared_activations() -> None:
    """Networks may share activations; while one runs, the other is IN_USE."""
    dense, two = created(), created(image())
    memory = Activations(max(dense.activations_size, two.activations_size))
    for network in (dense, two):
        null = Buffer(Format.U8, channels=0)
        assert network.init(NetworkParams(DEFAULT_WEIGHTS, null), shared=memory)
    values = np.ones((1, 3, 4, 2), np.float32)
    with run_under_way(dense):
        assert run_error(two, *buffers(two, values)) == (0x11, 0x40)
    assert two.run(*buffers(two, values)).n_batches == 1


def test_shared_activations_too_small() -> None:
    """Shared activations that are too small for a network are INIT_FAILED there."""
    network = created()
    small = Activations(network.activations_size - 1)
    assert not network.init(NetworkParams(DEFAULT_WEIGHTS, Buffer()), shared=small)
    assert words(network.get_error()) == (0x30, 0x13)


# inputs and outputs in activations, other formats, other plans


def test_inputs_and_outputs_in_activations() -> None:
    """Tensors with a place in activations need no data: they are written and read there."""
    network = ready(two_ends(), allocate_inputs=True, allocate_outputs=True)
    report = network.get_info()
    assert [buffer.offset for buffer in (*report.inputs, *report.outputs)] == [0, 24, 48, 72]
    assert report.activations.channels >= 96
    a, b = np.arange(6, dtype=np.float32), np.full(6, 2.5, np.float32)
    filled = [
        replace(buffer, data=value.tobytes())
        for buffer, value in zip(report.inputs, (a, b), strict=True)
    ]
    inside = [replace(buffer, data=None, offset=None) for buffer in report.outputs]
    result = network.run(filled, inside)
    assert [buffer.offset for buffer in result.outputs] == [48, 72]
    assert floats(result.outputs[0]).tolist() == (a + b).tolist()
    inputs = [replace(buffer, data=None, offset=None) for buffer in report.inputs]
    assert floats(network.run(inputs, inside).outputs[1]).tolist() == np.maximum(a, b).tolist()


def test_external_data_beside_a_place_in_activations() -> None:
    """Memory of the application serves also where the activations have a place."""
    network = ready(allocate_inputs=True, allocate_outputs=True)
    report = network.get_info()
    operand = replace(report.inputs[0], offset=None, n_batches=3, data=X.tobytes())
    output = replace(report.outputs[0], offset=None, n_batches=3, data=b"")
    result = network.run([operand], [output]).outputs[0]
    assert result.offset is None
    np.testing.assert_allclose(floats(result).reshape(3, 3), dense_reference(X), rtol=0.01)


def test_activations_hold_one_batch() -> None:
    """More batches than the one that activations have a place for are INVALID_BATCH."""
    network = ready(allocate_inputs=True, allocate_outputs=True)
    report = network.get_info()
    inside = replace(report.inputs[0], data=None, n_batches=2)
    outside = replace(report.outputs[0], data=b"", offset=None, n_batches=2)
    assert run_error(network, [inside], [outside]) == (0x12, 0x21)
    operand = replace(report.inputs[0], offset=None, n_batches=3, data=X.tobytes())
    assert run_error(network, [operand], [replace(report.outputs[0], n_batches=3)]) == (0x13, 0x21)


def test_images_are_channels_last() -> None:
    """A model of CHW images takes and gives HWC."""
    network = ready(image())
    values = np.arange(-12, 12, dtype=np.float32).reshape(1, 3, 4, 2)
    result = network.run(*buffers(network, values)).outputs[0]
    assert (result.height, result.width, result.channels) == (3, 4, 2)
    assert floats(result).reshape(values.shape).tolist() == np.maximum(values, 0).tolist()


def test_a_quantised_model() -> None:
    """An int8 model reports S8 with its own scales, and takes and gives integers."""
    network = ready(quantised())
    report = network.get_info()
    assert report.inputs[0].format == report.outputs[0].format == Format.S8
    assert report.inputs[0].meta_info == MetaInfo(0.5, 3)
    assert report.outputs[0].meta_info == MetaInfo(0.25, -7)
    q = np.array([[-128, 0, 3, 4, 20]], np.int8)
    result = network.run(*buffers(network, q)).outputs[0]
    # 0.5 * (q - 3) is -65.5, -1.5, 0, 0.5, 8.5; relu; / 0.25 - 7 is -7, -7, -7, -5, 27.
    assert np.frombuffer(result.data or b"", np.int8).tolist() == [-7, -7, -7, -5, 27]


def test_eight_bits_around_a_float_model() -> None:
    """A float model serves an application of 8 bits when it is created so."""
    formats = {"x": (Format.U8, MetaInfo(0.5, 128)), "y": (Format.S8, MetaInfo(0.25, -10))}
    network = ready(formats=formats)
    report = network.get_info()
    assert report.inputs[0].meta_info == MetaInfo(0.5, 128)
    q = np.array([[130, 132, 128, 120]], np.uint8)
    result = network.run(*buffers(network, q)).outputs[0]
    y = dense_reference((q.astype(np.float32) - 128) * 0.5)
    expected = np.clip(np.trunc(y / 0.25 + 0.5) - 10, -128, 127)
    np.testing.assert_allclose(np.frombuffer(result.data or b"", np.int8), expected[0], atol=1)


def test_a_program_without_its_model() -> None:
    """A program is a plan too: same outputs, its constants for weights, other constants too."""
    plan = plan_of(dense())
    program = plan.executor({}).program
    alone = ProgramPlan(program, Guest(find_machine("telum2")), plan.signature)
    network = Network(alone, NOW, Options(), NOBODY)
    assert network.init(NetworkParams(DEFAULT_WEIGHTS, activations_of(network)))
    first = network.run(*buffers(network, X)).outputs[0]
    assert first.data == ready().run(*buffers(ready(), X)).outputs[0].data
    blob = bytes(network.weights_size)
    zero = Buffer(Format.U8, channels=len(blob), data=blob)
    assert network.init(NetworkParams(zero, activations_of(network)))
    assert not floats(network.run(*buffers(network, X)).outputs[0]).any()
