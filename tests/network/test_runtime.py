# SPDX-License-Identifier: Apache-2.0
"""The life of a network: create, init, get_error, get_info, destroy.

Rows of the error matrix: X-CUBE-AI 7.0 public headers for names and numbers; the pairs that ST does
not document are the ones that `nnpa_network.client_api.network` states.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_network.client_api.buffer_format import Buffer, Format, FormatFlag
from nnpa_network.client_api.creation import Caller, NetworkParams, Options
from nnpa_network.client_api.errors import NO_ERROR, ErrorLatch, NetworkRefused
from nnpa_network.client_api.instances import INVALID_HANDLE, NOT_RUN, Instances
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.report import TYPE_SIGNATURES, Version
from nnpa_network.importing.plan import Plan

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
from tests.network.small_models import BIAS, WEIGHT, dense, dense_reference, image


def test_a_network_from_create_to_destroy() -> None:
    """Create, init, run over batches, destroy: each batch gives what the model computes."""
    network = ready()
    inputs, outputs = buffers(network, X)
    result = network.run(inputs, outputs)
    assert result.n_batches == 3
    expected = dense_reference(X)
    np.testing.assert_allclose(floats(result.outputs[0]).reshape(3, 3), expected, rtol=0.01)
    assert network.get_error() is NO_ERROR
    assert network.destroy()
    assert network.run(inputs, outputs).n_batches == -1


def test_forward_gives_no_outputs() -> None:
    """Forward processes the batches and hands nothing out."""
    network = ready()
    inputs, _ = buffers(network, X)
    result = network.forward(inputs)
    assert (result.n_batches, result.outputs) == (3, ())
    assert network.runs == 1


# create


def test_create_checks_the_tools_api() -> None:
    """Another tools API is TOOL_PLATFORM_API_MISMATCH / NETWORK, the own one passes."""
    with pytest.raises(NetworkRefused) as refused:
        Network(plan_of(dense()), NOW, Options(), Caller(Version(1, 5, 0)))
    assert words(refused.value.error) == (0x01, 0x10)
    Network(plan_of(dense()), NOW, Options(), Caller(Version(1, 4, 0)))


def test_create_checks_the_types() -> None:
    """Other type sizes are TYPES_MISMATCH / NETWORK, the own ones pass."""
    own = bytes(TYPE_SIGNATURES.values())
    assert own == bytes.fromhex("0181028204840888" + "0484")
    with pytest.raises(NetworkRefused) as refused:
        Network(plan_of(dense()), NOW, Options(), Caller(type_sizes=own[:-1] + b"\x88"))
    assert words(refused.value.error) == (0x02, 0x10)
    Network(plan_of(dense()), NOW, Options(), Caller(type_sizes=own))


def test_create_with_a_closed_gate() -> None:
    """A closed device gate is CREATE_FAILED / NETWORK."""
    with pytest.raises(NetworkRefused) as refused:
        created(gate_closed=True)
    assert words(refused.value.error) == (0x33, 0x10)


@pytest.fixture
def instances() -> Instances:
    """A table of at most two networks."""
    numbers = itertools.count(1)
    return Instances(2, lambda: f"networks/{next(numbers)}")


def create_in(instances: Instances, name: str = "network", **options: Any) -> str:
    """Create a dense network under a C name and return its handle."""
    plan = plan_of(dense())
    origin = replace(NOW, c_name=name)
    return instances.create(plan.signature, lambda: plan, origin, Options(**options), NOBODY)


def test_create_twice_gives_the_same_handle(instances: Instances) -> None:
    """Without `strict` a C name's handle always references the same object."""
    assert create_in(instances, strict=False) == create_in(instances, strict=False)
    assert len(instances.all()) == 1


def test_create_twice_when_strict(instances: Instances) -> None:
    """A strict second create is CREATE_FAILED / IN_USE."""
    create_in(instances)
    with pytest.raises(NetworkRefused) as refused:
        create_in(instances)
    assert words(refused.value.error) == (0x33, 0x40)


def test_create_another_model_of_the_same_name(instances: Instances) -> None:
    """A C name whose network is of another model is CREATE_FAILED / IN_USE, strict or not."""
    create_in(instances, strict=False)
    plan = plan_of(image())
    with pytest.raises(NetworkRefused) as refused:
        instances.create(plan.signature, lambda: plan, NOW, Options(strict=False), NOBODY)
    assert words(refused.value.error) == (0x33, 0x40)


def test_create_without_a_free_place(instances: Instances) -> None:
    """One network more than may be is ALLOCATION_FAILED / NETWORK, and compiles nothing."""
    create_in(instances, "one")
    create_in(instances, "two")

    def compiled() -> Plan:
        raise AssertionError("compiled")

    with pytest.raises(NetworkRefused) as refused:
        instances.create("", compiled, replace(NOW, c_name="three"), Options(), NOBODY)
    assert words(refused.value.error) == (0x31, 0x10)


def test_create_checks_the_caller_first(instances: Instances) -> None:
    """A caller that does not fit is refused even where the network exists."""
    create_in(instances, strict=False)
    with pytest.raises(NetworkRefused) as refused:
        instances.create("", lambda: plan_of(dense()), NOW, Options(), Caller(Version(1, 3, 0)))
    assert words(refused.value.error) == (0x01, 0x10)


@pytest.mark.parametrize("word", [Format.S32, Format.NONE])
def test_create_with_a_format_that_cannot_be(word: int) -> None:
    """A format that an input cannot have is INVALID_PARAM / INVALID_FORMAT."""
    with pytest.raises(NetworkRefused) as refused:
        created(formats={"x": (word, None)})
    assert words(refused.value.error) == (0x14, 0x19)


# handles


def test_invalid_handles(instances: Instances) -> None:
    """An unknown or destroyed handle is INVALID_HANDLE / NETWORK, and run answers 0."""
    handle = create_in(instances)
    assert instances.find(handle) is not None
    assert instances.destroy(handle) is NO_ERROR
    for gone in (handle, "networks/99", ""):
        assert instances.find(gone) is None
        assert words(instances.get_error(gone)) == (0x10, 0x10)
        assert words(instances.destroy(gone)) == (0x10, 0x10)
    assert NOT_RUN.n_batches == 0
    assert INVALID_HANDLE.word == 0x1010


def test_handles_are_never_used_again(instances: Instances) -> None:
    """A network created after another was destroyed has a handle of its own."""
    handle = create_in(instances)
    instances.destroy(handle)
    assert create_in(instances) != handle


# init


def test_init_without_params() -> None:
    """Params NULL is INIT_FAILED / NETWORK_PARAMS."""
    network = created()
    assert not network.init(None)
    assert words(network.get_error()) == (0x30, 0x11)


WEIGHTS_BYTES = WEIGHT.nbytes + BIAS.nbytes


@pytest.mark.parametrize(
    "weights",
    [
        Buffer(Format.U8 | FormatFlag.CONST, channels=WEIGHTS_BYTES),  # address NULL
        Buffer(Format.U8, channels=WEIGHTS_BYTES - 1, data=bytes(WEIGHTS_BYTES - 1)),
        Buffer(Format.U8, channels=WEIGHTS_BYTES, data=bytes(WEIGHTS_BYTES - 1)),
        Buffer(Format.U8, channels=WEIGHTS_BYTES, parts=(WEIGHT.tobytes(), BIAS.tobytes())),
    ],
    ids=["null", "small", "short", "split"],
)
def test_init_with_bad_weights(weights: Buffer) -> None:
    """Weights that are NULL, too small, or in pieces are INIT_FAILED / NETWORK_WEIGHTS."""
    network = created()
    assert not network.init(NetworkParams(weights, activations_of(network)))
    assert words(network.get_error()) == (0x30, 0x12)


def test_init_with_bad_activations() -> None:
    """Activations that are NULL or one byte short are INIT_FAILED / NETWORK_ACTIVATIONS."""
    network = created()
    null = replace(activations_of(network), data=None)
    for buffer in (null, activations_of(network, short=1)):
        assert not network.init(NetworkParams(DEFAULT_WEIGHTS, buffer))
        assert words(network.get_error()) == (0x30, 0x13)
        assert not network.ready


def test_init_of_another_model() -> None:
    """Another model's signature is INVALID_SIGNATURE / NETWORK, the own one passes."""
    network = created()
    params = NetworkParams(DEFAULT_WEIGHTS, activations_of(network))
    assert not network.init(params, "0" * 32)
    assert words(network.get_error()) == (0x15, 0x10)
    assert network.init(params, network.plan.signature)


def test_init_keeps_the_first_of_several_errors() -> None:
    """Every step of init runs, and the first that fails is the one to be read."""
    network = created()
    nothing = Buffer(Format.U8, channels=4)
    assert not network.init(NetworkParams(nothing, nothing))
    assert words(network.get_error()) == (0x30, 0x12)
    assert network.get_error() is NO_ERROR


def test_init_again_binds_anew() -> None:
    """Init on a ready network binds other weights; an init that fails leaves it not ready."""
    network = ready()
    blob = np.concatenate([WEIGHT.reshape(-1) * 2, BIAS * 4]).tobytes()
    weights = Buffer(Format.U8, channels=len(blob), data=blob)
    assert network.init(NetworkParams(weights, activations_of(network)))
    inputs, outputs = buffers(network, X)
    result = floats(network.run(inputs, outputs).outputs[0]).reshape(3, 3)
    np.testing.assert_allclose(result, np.maximum(X @ (WEIGHT * 2) + BIAS * 4, 0), rtol=0.01)
    assert not network.init(None)
    assert network.run(inputs, outputs).n_batches == -1


def test_weights_of_the_model_itself() -> None:
    """A blob with the model's own bytes leaves its plan as it is."""
    network = created()
    blob = b"".join(bytes(weight.data) for weight in network.weights)
    assert len(blob) == network.weights_size == WEIGHTS_BYTES
    before = network.plan
    weights = Buffer(Format.U8, channels=len(blob), data=blob)
    assert network.init(NetworkParams(weights, activations_of(network)))
    assert network.plan is before


def test_split_weights() -> None:
    """Split weights come as one piece per tensor; a blob in their place is refused."""
    network = created(split_weights=True)
    parts = ((WEIGHT * -1).tobytes(), BIAS.tobytes())
    split = Buffer(Format.U8, channels=WEIGHTS_BYTES, parts=parts)
    assert network.init(NetworkParams(split, activations_of(network)))
    inputs, outputs = buffers(network, X)
    result = floats(network.run(inputs, outputs).outputs[0]).reshape(3, 3)
    np.testing.assert_allclose(result, np.maximum(X @ -WEIGHT + BIAS, 0), rtol=0.01)
    blob = replace(split, parts=None, data=b"".join(parts))
    wrong = replace(split, parts=parts[:1])
    for bad in (blob, wrong):
        assert not network.init(NetworkParams(bad, activations_of(network)))
        assert words(network.get_error()) == (0x30, 0x12)


# get_error


def test_the_first_error_stays_until_it_is_read() -> None:
    """The slot keeps the first error; reading it clears the slot."""
    network = ready()
    inputs, outputs = buffers(network, X)
    network.run(None, outputs)
    network.run(inputs, None)
    assert words(network.get_error()) == (0x12, 0x17)
    assert network.get_error() is NO_ERROR


def test_an_answer_can_be_asked_for_again() -> None:
    """The same sequence number gives the same answer; 0 never does."""
    latch = ErrorLatch()
    assert latch.set(INVALID_HANDLE)
    assert not latch.set(NO_ERROR)
    assert latch.take(7) is INVALID_HANDLE
    assert latch.take(7) is INVALID_HANDLE
    assert latch.take(8) is NO_ERROR
    assert latch.set(INVALID_HANDLE)
    assert latch.take(0) is INVALID_HANDLE
    assert latch.take(0) is NO_ERROR


# get_info


def test_the_report_describes_the_model() -> None:
    """The report has the versions, sizes and shapes of the model."""
    report = created().get_info()
    assert str(report.tool_version) == "7.0.0"
    assert (report.api_version.word, report.tool_api_version.word) == (0x01010000, 0x01040000)
    assert report.runtime_revision == report.tool_revision == "nnpa 0.1.0"
    assert len(report.model_signature) == 32
    assert (len(report.inputs), len(report.outputs), report.n_nodes) == (1, 1, 3)
    # dense: 4 * 3 + 3, then 3 sums and 3 comparisons at 1 each.
    assert report.n_macc == report.n_macc_64 >= 4 * 3
    assert report.params.channels == WEIGHTS_BYTES
    assert report.signature == 0


def test_report_before_and_after_init() -> None:
    """No buffer has an address before init; after it weights and activations have."""
    network = created(allocate_inputs=True)
    before = network.get_info()
    assert {buffer.data for buffer in (before.activations, before.params, *before.inputs)} == {None}
    network.init(NetworkParams(DEFAULT_WEIGHTS, activations_of(network)))
    after = network.get_info()
    assert after.activations.data == after.params.data == after.inputs[0].data == b""
    assert (after.inputs[0].offset, after.outputs[0].offset) == (0, None)


def test_macc_saturates_at_32_bits() -> None:
    """n_macc is at most 2^32 - 1, the longer figure is not cut."""
    report = replace(created().get_info(), n_macc_64=1 << 40)
    assert (report.n_macc, report.n_macc_64) == (0xFFFFFFFF, 1 << 40)
