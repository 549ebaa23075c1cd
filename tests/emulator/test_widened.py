# SPDX-License-Identifier: Apache-2.0
"""Widened operands are kept between calls, and never after their sticks were written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import MACHINES, Guest, Ztensor, pipeline, run, widened
from nnpa_emulator.engines import operands
from nnpa_emulator.kernels import matmul
from nnpa_emulator.ztensor import DataFormats, DataLayouts, TensorDesc

from tests.emulator.operands import blank, cells, tensor, values
from tests.oracle.rounding import rounded

pytestmark = pytest.mark.shortcut

ONE = np.eye(3, dtype=np.float32)
WIDENED = 3 * 64 * 4
"""Bytes of three rows of a panel."""
Change = Callable[[Guest, Ztensor], None]


def weights(factor: float) -> Ztensor:
    """Return a multiple of the identity."""
    return values((factor * ONE)[None, None])


def codes(factor: float) -> list[Any]:
    """Return the cells of a multiple of the identity."""
    result: list[Any] = rounded((factor * ONE)[None, None]).tolist()
    return result


def product(guest: Guest, input_b: Ztensor) -> npt.NDArray[np.uint16]:
    """Return the identity times `input_b`, which is input_b."""
    output = blank((1, 1, 3, 3))
    arguments: dict[str, Any] = {"input_a": weights(1), "input_b": input_b}
    arguments |= {"input_c": values(np.zeros((1, 1, 1, 3))), "op_type": 0, "output": output}
    assert run(guest, "matmul_op", arguments).valid
    return cells(output)


def transformed(guest: Guest, ztensor: Ztensor) -> None:
    """Reset and transform again."""
    ztensor.pre_transformed_desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 255, 1, 1, 3, 3)
    run(guest, "reset_ztensor", {"ztensor": ztensor})
    data = [np.ascontiguousarray(5 * ONE)]
    assert run(guest, "transform_ztensor", {"ztensor": ztensor, "data": data}).valid


def computed(guest: Guest, ztensor: Ztensor) -> None:
    """Take the result of an operation."""
    factors = {"input_a": weights(2), "input_b": weights(2.5), "output": ztensor}
    assert run(guest, "mul", factors).valid


def in_place(guest: Guest, ztensor: Ztensor) -> None:
    """Multiply weights into themselves."""
    five = {"input_a": weights(5 / 2), "input_b": ztensor, "op_type": 0, "output": ztensor}
    five["input_c"] = values(np.zeros((1, 1, 1, 3)))
    assert run(guest, "matmul_op", five).valid


def reshaped(guest: Guest, ztensor: Ztensor) -> None:
    """Take the elements of another tensor."""
    ztensor.is_transformed = False
    assert run(guest, "reshape_ztensor", {"src": weights(5), "dest": ztensor}).valid


def replaced(_guest: Guest, ztensor: Ztensor) -> None:
    """Get another buffer."""
    ztensor.buffer = weights(5).buffer


def refilled(_guest: Guest, ztensor: Ztensor) -> None:
    """Be filled past the pipeline by code that announces its write."""
    ztensor.sticks[:] = weights(5).sticks
    widened.written(ztensor.buffer)


def aliased(guest: Guest, ztensor: Ztensor) -> None:
    """Share memory with a tensor that is written, by way of another view of it."""
    view = ztensor.sticks.view(np.uint16)[:].view(np.uint8)
    second = Ztensor(ztensor.pre_transformed_desc, ztensor.transformed_desc, buffer=view)
    computed(guest, second)


def elsewhere(_guest: Guest, ztensor: Ztensor) -> None:
    """Be written by another program."""
    computed(Guest(MACHINES["telum1"]), ztensor)


def allocated(guest: Guest, ztensor: Ztensor) -> None:
    """Free the buffer and allocate one again, perhaps at the same place."""
    assert run(guest, "free_ztensor_buffer", {"ztensor": ztensor}).valid
    assert run(guest, "allochelper_ztensor", {"ztensor": ztensor}).valid
    computed(guest, ztensor)


WRITERS = [
    transformed, computed, in_place, reshaped, replaced, refilled, aliased, elsewhere, allocated,
]  # fmt: skip


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("change", WRITERS, ids=lambda ztensor: ztensor.__name__)
def test_what_is_written_is_multiplied(change: Change, accumulate: Any) -> None:
    """After weights were used three times, the next product sees every way of writing them."""
    guest = Guest(MACHINES["telum2"], accumulate=accumulate)
    ztensor = weights(2)
    for _ in range(3):
        assert product(guest, ztensor).tolist() == codes(2)
    change(guest, ztensor)
    for _ in range(3):
        assert product(guest, ztensor).tolist() == codes(5)


def test_jittered_weights_are_those_that_are_multiplied() -> None:
    """A perturbed result that serves as weights is multiplied with its stored values."""
    guest = Guest(MACHINES["telum2"], numerics="jitter")
    ztensor = weights(2)
    for _ in range(3):
        product(guest, ztensor)
    for _ in range(3):
        computed(guest, ztensor)
        stored = cells(ztensor).tolist()
        guest.numerics = "exact"
        assert product(guest, ztensor).tolist() == stored
        guest.numerics = "jitter"


def test_kernels_of_convolutions_are_seen_when_written() -> None:
    """A kernel that was used three times and then written convolves with its new values."""
    guest = Guest(MACHINES["telum2"])
    kernel = values(np.full((1, 1, 1, 1), 2.0), DataFormats.ZDNN_FORMAT_4DKERNEL)
    output = blank((1, 2, 2, 1))
    arguments: dict[str, Any] = {"input": values(np.ones((1, 2, 2, 1))), "kernel": kernel}
    arguments |= {"bias": values(np.zeros((1, 1, 1, 1))), "padding_type": 1, "act_func": 0}
    arguments |= {"stride_height": 1, "stride_width": 1, "output": output}
    for factor in (2.0, 5.0):
        source = values(np.full((1, 1, 1, 1), factor), DataFormats.ZDNN_FORMAT_4DKERNEL)
        kernel.sticks[:] = source.sticks
        widened.written(kernel.buffer)
        for _ in range(3):
            assert run(guest, "conv2d", arguments).valid
            assert np.all(cells(output) == rounded(factor))


def test_weights_of_layers_are_seen_when_written() -> None:
    """Hidden weights of a GRU, both halves of them, count as they are when the call is made."""
    guest = Guest(MACHINES["telum2"])

    def layer(hidden: Ztensor) -> list[int]:
        shapes = {"input": (2, 1, 2, 3), "h0": (2, 1, 2, 3), "weights": (2, 1, 3, 192)}
        shapes |= {"biases": (2, 1, 1, 192), "hidden_biases": (2, 1, 1, 192)}
        arguments: dict[str, Any] = {
            name: values(np.full(dims, 0.5)) for name, dims in shapes.items()
        }
        output = blank((2, 1, 2, 128))
        arguments |= {"hidden_weights": hidden, "direction": 2, "hn_output": output}
        assert run(guest, "gru", arguments).valid
        result: list[int] = output.sticks.view(np.uint16).tolist()
        return result

    dims = 2, 1, 3, 192
    hidden, second = values(np.full(dims, 0.25)), np.full(dims, 0.25)
    second[1] = -1
    before = [layer(hidden) for _ in range(3)]
    zero = values(np.zeros(dims))
    assert run(guest, "add", {"input_a": values(second), "input_b": zero, "output": hidden}).valid
    after = [layer(hidden) for _ in range(3)]
    assert before[0] == before[1] == before[2] != after[0] == after[1] == after[2]
    assert after[0] == layer(values(second))


def test_weights_are_widened_to_be_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use of weights widens them in passing, the second to keep, later ones not."""
    guest, ztensor = Guest(MACHINES["telum2"]), weights(2)
    widen, met = matmul.all_panels, list[bool]()

    def counting(buffer: npt.NDArray[np.uint8], *details: Any) -> None:
        met.append(buffer is ztensor.buffer)
        widen(buffer, *details)

    monkeypatch.setattr(matmul, "all_panels", counting)
    counts: list[int] = []
    for _ in range(5):
        product(guest, ztensor)
        counts.append(met.count(True))
    assert counts == [0, 1, 1, 1, 1]


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values beyond the limit go, the least recently used first, and results stay right."""
    kept = widened.Kept()
    monkeypatch.setattr(widened, "_kept", kept)
    monkeypatch.setattr(widened, "MAX_BYTES", 5 * WIDENED // 2)
    guest = Guest(MACHINES["telum2"])
    tensors = {factor: weights(factor) for factor in (1, 2, 3, 4)}
    sizes: list[int] = []
    for factor, ztensor in tensors.items():
        for _ in range(3):
            assert product(guest, ztensor).tolist() == codes(factor)
            sizes.append(kept.size)
    assert max(sizes) == 2 * WIDENED


def test_freed_memory_takes_its_values_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache keeps no values of a freed tensor."""
    kept = widened.Kept()
    monkeypatch.setattr(widened, "_kept", kept)
    guest, ztensor = Guest(MACHINES["telum2"]), weights(2)
    for _ in range(3):
        product(guest, ztensor)
    assert kept.size == WIDENED
    del ztensor
    assert kept.size == 0


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_first_and_later_calls_give_the_same_bits(accumulate: Any) -> None:
    """Sums of real sizes do not depend on whether weights were kept."""
    random = np.random.default_rng(1)
    guest = Guest(MACHINES["telum2"], accumulate=accumulate)
    shapes = {"input_a": (3, 1, 33, 500), "input_b": (1, 1, 500, 70), "input_c": (1, 1, 1, 70)}
    arguments: dict[str, Any] = {
        name: values(random.standard_normal(dims)) for name, dims in shapes.items()
    }
    outputs = [blank((3, 1, 33, 70)) for _ in range(3)]
    for output in outputs:
        assert run(guest, "matmul_bcast_op", arguments | {"op_type": 0, "output": output}).valid
    first, *later = (cells(output).tolist() for output in outputs)
    assert all(item == first for item in later)


def test_ninf_of_kept_weights_is_reported_every_time() -> None:
    """Weights with NINF violate the range in the first use and in later ones."""
    guest = Guest(MACHINES["telum2"])
    cell = np.zeros((1, 1, 3, 3), np.uint16)
    cell[0, 0, 1, 1] = 0x7FFF
    ztensor = tensor(cell)
    results = [product(guest, ztensor).tolist() for _ in range(4)]
    assert all(result == results[0] for result in results)
    assert results[0][0][0][1][1] == 0x7FFF


def test_repeated_operands_are_seen_when_written() -> None:
    """A repeated widening returns the operand's present cells after every announced write."""
    ztensor, second = weights(2), weights(3)
    read = operands.repeated(ztensor.sticks, "cells", lambda _: (ztensor.sticks.copy(), False))
    write = widened.writing(ztensor.sticks, second.sticks)
    for factor in (2.0, 5.0):
        ztensor.sticks[:] = weights(factor).sticks
        write()
        for _ in range(4):
            assert read()[0].tolist() == weights(factor).sticks.tolist()
    assert read()[0] is read()[0]


def test_a_disabled_cache_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cache products have the same bits, and nothing is kept of their operands."""
    monkeypatch.setattr(widened, "_kept", cache := widened.Kept())
    guest, matrix = Guest(MACHINES["telum2"]), weights(2)
    results = [product(guest, matrix).tolist() for _ in range(3)]
    assert cache.size == WIDENED
    widened.disable()
    try:
        assert cache.size == 0
        results += [product(guest, matrix).tolist() for _ in range(3)]
        assert not cache
    finally:
        widened.enable()
    assert results == [codes(2)] * 6


def test_the_plain_path_does_not_run_the_cache() -> None:
    """With the cache disabled all seams hold their plain functions again."""
    widened.disable()
    try:
        assert operands.dense is operands.widen_now
        assert operands.repeated is operands.repeat
        assert pipeline.answer is pipeline.answer_plainly
    finally:
        widened.enable()
    assert operands.dense is widened.recall
    assert pipeline.answer is not pipeline.answer_plainly
