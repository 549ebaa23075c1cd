# SPDX-License-Identifier: Apache-2.0
"""The structure and its life: what each call writes, and what it leaves alone."""

import math

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest, Refused, Status, TensorDesc, Ztensor, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.ztensor import DataLayouts, DataTypes, getsize_ztensor

PRE = TensorDesc(DataLayouts.ZDNN_2D, 0, DataTypes.FP32, 0, 0, 2, 3)
DESC = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, 1, 1, 2, 3)


def guest() -> Guest:
    """Return a program on a Telum II."""
    return Guest(MACHINES["telum2"])


def used() -> Ztensor:
    """Return a ztensor all of whose fields hold something."""
    return Ztensor(DESC, PRE, 77, np.ones(4096, np.uint8), True, 0.5, 3.0)


def test_init_leaves_the_buffer_alone() -> None:
    """init_ztensor writes everything but buffer and buffer_size."""
    ztensor = used()
    buffer = ztensor.buffer
    arguments = {"ztensor": ztensor, "pre_transformed_desc": PRE, "transformed_desc": DESC}
    assert run(guest(), "init_ztensor", arguments).status == Status.ZDNN_OK
    assert (ztensor.pre_transformed_desc, ztensor.transformed_desc) == (PRE, DESC)
    assert (ztensor.buffer_size, ztensor.is_transformed, ztensor.rec_scale, ztensor.offset) == (
        77,
        False,
        0,
        0,
    )
    assert ztensor.buffer is buffer


@pytest.mark.parametrize(
    ("scale", "rec_scale"),
    [
        (4.0, 0.25),
        (-0.5, -2.0),
        (0.0, 0.0),
        (-0.0, -0.0),
        (math.inf, 0.0),
        (3.0, float(np.float32(1) / np.float32(3))),
        (1e-39, math.inf),
        (math.nan, math.nan),
    ],
)
def test_scale_becomes_its_reciprocal(scale: float, rec_scale: float) -> None:
    """init_quantized_ztensor keeps 1/scale in FP32, 0 for 0, and the offset as it is."""
    ztensor = used()
    arguments = {"ztensor": ztensor, "pre_transformed_desc": PRE, "transformed_desc": DESC}
    scalars = {"scale": scale, "offset": 0.1}
    assert run(guest(), "init_quantized_ztensor", arguments | scalars).status == Status.ZDNN_OK
    assert ztensor.rec_scale == pytest.approx(rec_scale, rel=1e-7, nan_ok=True)
    assert math.copysign(1, ztensor.rec_scale) == math.copysign(1, rec_scale)
    assert ztensor.offset == float(np.float32(0.1))
    assert not ztensor.is_transformed


def test_reset_changes_the_state_only() -> None:
    """reset_ztensor clears is_transformed; data, scale and offset stay."""
    ztensor = used()
    assert run(guest(), "reset_ztensor", {"ztensor": ztensor}).status == Status.ZDNN_OK
    assert (ztensor.is_transformed, ztensor.rec_scale, ztensor.offset, ztensor.buffer_size) == (
        False,
        0.5,
        3.0,
        77,
    )
    assert ztensor.buffer is not None


def test_allocation_replaces_a_buffer() -> None:
    """allochelper_ztensor gives zero-filled pages and the size, and touches nothing else."""
    ztensor = Ztensor(TensorDesc(layout=99), DESC, 5, np.ones(9, np.uint8), True, 0.5, 3.0)
    assert run(guest(), "allochelper_ztensor", {"ztensor": ztensor}).status == Status.ZDNN_OK
    assert (ztensor.buffer_size, ztensor.is_transformed, ztensor.rec_scale) == (4096, True, 0.5)
    assert ztensor.sticks.nbytes == 4096
    assert not ztensor.sticks.any()


def test_failed_allocation() -> None:
    """Without storage the buffer is NULL and buffer_size is unchanged."""
    empty = Guest(MACHINES["telum2"], allocate=lambda _size: None)
    ztensor = used()
    ztensor.transformed_desc = DESC
    outcome = run(empty, "allochelper_ztensor", {"ztensor": ztensor})
    assert outcome.status == Status.ZDNN_ALLOCATION_FAILURE
    assert (ztensor.buffer, ztensor.buffer_size) == (None, 77)


def test_free_twice() -> None:
    """free_ztensor_buffer needs a buffer; the second call has none."""
    ztensor = used()
    assert run(guest(), "free_ztensor_buffer", {"ztensor": ztensor}).status == Status.ZDNN_OK
    assert run(guest(), "free_ztensor_buffer", {"ztensor": ztensor}).status == (
        Status.ZDNN_INVALID_BUFFER
    )


def test_too_few_dims() -> None:
    """Fewer dims than the layout has are a mistake of the caller, more are ignored as in C."""
    with pytest.raises(TypeError, match="1 given"):
        structs.init_pre_transformed_desc(DataLayouts.ZDNN_2D, DataTypes.FP32, 3)
    reported = structs.init_pre_transformed_desc(DataLayouts.ZDNN_1D, DataTypes.FP32, 3, 4)
    assert reported.dims == (0, 0, 0, 3)


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 63, 64, 65, 127, 128, 129])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 63, 64, 65])
def test_sizes(rows: int, columns: int) -> None:
    """A size is pages of 32 rows times stick columns of 64, 128, 32 or 64 pairs of cells."""
    pages = 6 * -(-rows // 32)
    for fmt, kind, cells in ((0, 0, 64), (1, 0, 64), (0, 8, 128), (0, 10, 32), (0, 77, 64)):
        desc = TensorDesc(8, fmt, kind, 2, 3, rows, columns)
        assert getsize_ztensor(desc) == pages * -(-columns // cells) * 4096
    pairs = TensorDesc(8, 2, 8, 2, 3, rows, columns)
    assert getsize_ztensor(pairs) == 6 * -(-rows // 64) * -(-columns // 64) * 4096


@pytest.mark.parametrize("hidden", [1, 63, 64, 65, 8192, 8193])
def test_concatenated_limits(hidden: int) -> None:
    """Telum I holds LSTM weights up to hidden size 8192: four padded gates in 32768 columns."""
    pre = TensorDesc(DataLayouts.ZDNN_2DS, 0, DataTypes.FP32, 0, 0, 1, hidden)
    desc = structs.generate_transformed_desc_concatenated(pre, structs.USAGE_BIASES)
    status = run(Guest(MACHINES["telum1"]), "allochelper_ztensor", {"ztensor": Ztensor(pre, desc)})
    assert (status.status == Status.ZDNN_OK) is (hidden <= 8192)


@pytest.mark.parametrize("width", [0, 1, 64, 65, 0xFFFFFFC0, 0xFFFFFFC1, 0xFFFFFFFF])
def test_padding_wraps(width: int) -> None:
    """PADDED works in 32 bits, as the library's unsigned arithmetic does."""
    assert structs.padded(width) == (-(-width // 64) * 64) % (1 << 32)


def test_refused_functions_say_why() -> None:
    """A local function's refusal names field, value and limit."""
    with pytest.raises(Refused, match=r"pre_transformed_desc\.type is INT8, must be FP32, FP16"):
        structs.generate_transformed_desc(TensorDesc(type=DataTypes.INT8))


def test_sticks_need_a_buffer() -> None:
    """Asking for the sticks of a ztensor without a buffer is an error of ours."""
    with pytest.raises(ValueError, match="NULL"):
        assert Ztensor(PRE, DESC).sticks is None
