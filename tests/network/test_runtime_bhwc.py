# SPDX-License-Identifier: Apache-2.0
"""How a model's tensors become batches, height, width and channels, and back.

Mapping: X-CUBE-AI 7.0 Embedded Inference Client API, "IO tensor description".
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nnpa_network.client_api.bhwc import IoTensor, io_tensor, native_format
from nnpa_network.client_api.buffer_format import Format, MetaInfo
from nnpa_network.program import Port

FLOAT = np.dtype(np.float32)


def tensor(shape: tuple[int, ...], first: int = -1, dtype: Any = FLOAT) -> IoTensor:
    """Return an input whose first dim is `first` in the model."""
    port = Port("x", np.dtype(dtype), (first, *shape[1:]) if shape else ())
    return io_tensor(port, shape, None, None)


@pytest.mark.parametrize(
    ("shape", "first", "dims"),
    [
        ((), 0, (1, 1, 1)),
        ((7,), 7, (1, 1, 7)),
        ((1,), 1, (1, 1, 1)),
        ((1, 7), -1, (1, 1, 7)),
        ((1, 7), 1, (1, 1, 7)),
        ((1, 5, 7), -1, (5, 1, 7)),
        ((1, 3, 5, 7), -1, (5, 7, 3)),  # CHW becomes HWC
        ((4, 7), 4, (4, 1, 7)),  # no batch in the model: all of it is one element
        ((4, 5, 7), 4, (5, 7, 4)),
        ((2, 3, 5, 7), 2, (10, 7, 3)),
        ((1, 2, 3, 5, 7), -1, (10, 7, 3)),
        ((2, 2, 3, 5, 7), 2, (1, 1, 420)),
        ((1, 70000, 3), -1, (1, 1, 210000)),  # height has 16 bits
    ],
)
def test_dims_are_height_width_channels(
    shape: tuple[int, ...], first: int, dims: tuple[int, int, int]
) -> None:
    """A model's shape maps to height, width, channels as the module's table says."""
    assert tensor(shape, first).dims == dims


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 2, 3, 4, 5), (1, 6, 7), (1, 9)])
def test_round_trip(shape: tuple[int, ...]) -> None:
    """Bytes that go to the model and back are the same."""
    port = tensor(shape)
    values = np.random.default_rng(0).random(shape, np.float32)
    data = port.from_model(values)
    assert len(data) == port.nbytes
    np.testing.assert_array_equal(port.to_model(memoryview(data)), values)


def test_channels_are_innermost() -> None:
    """Element (h, w, c) of the application is element (c, h, w) of the model."""
    port = tensor((1, 2, 3, 4))
    data = np.arange(24, dtype=np.float32)  # index (h * 4 + w) * 2 + c
    model = port.to_model(memoryview(data.tobytes()))
    assert model.shape == (1, 2, 3, 4)
    for c, h, w in np.ndindex(2, 3, 4):
        assert model[0, c, h, w] == (h * 4 + w) * 2 + c


def test_bfloat16_travels_as_its_bits() -> None:
    """BFLOAT16, which no format describes, is 16 unsigned bits."""
    port = tensor((1, 2), dtype=ml_dtypes.bfloat16)
    assert port.format == Format.U16 == native_format(np.dtype(ml_dtypes.bfloat16))
    data = np.array([0x3F80, 0xC000], np.uint16).tobytes()
    values = port.to_model(memoryview(data))
    assert values.astype(np.float32).tolist() == [[1.0, -2.0]]
    assert port.from_model(values) == data


def test_eight_bits_for_a_float_model() -> None:
    """An input in S8 is dequantised for the model, an output quantised for the application."""
    port = Port("x", FLOAT, (-1, 3))
    ztensor = io_tensor(port, (1, 3), Format.S8, MetaInfo(0.5, -10))
    assert ztensor.nbytes == 3
    values = ztensor.to_model(memoryview(np.array([-128, -10, 127], np.int8).tobytes()))
    assert values.tolist() == [[-59.0, 0.0, 68.5]]
    assert ztensor.from_model(values) == np.array([-128, -10, 127], np.int8).tobytes()


def test_fixed_point_for_a_float_model() -> None:
    """An input in Q7 without a scale is a fixed-point number."""
    port = io_tensor(Port("x", FLOAT, (-1, 2)), (1, 2), Format.Q7, None)
    values = port.to_model(memoryview(np.array([64, -128], np.int8).tobytes()))
    assert values.tolist() == [[0.5, -1.0]]
    assert port.from_model(values) == np.array([64, -128], np.int8).tobytes()


@pytest.mark.parametrize(
    ("dtype", "word", "meta"),
    [
        (np.float32, Format.S32, None),
        (np.float32, Format.FLOAT64, None),
        (np.int64, Format.S8, MetaInfo(1.0, 0)),
        (np.float32, Format.S8, MetaInfo(0.0, 0)),
        (np.float32, Format.S8, MetaInfo(float("nan"), 0)),
    ],
)
def test_formats_refused(dtype: Any, word: int, meta: MetaInfo | None) -> None:
    """Only a float tensor can have another format, of 8 or 16 bits, with a scale above 0."""
    with pytest.raises(ValueError, match="format of x"):
        io_tensor(Port("x", np.dtype(dtype), (1, 2)), (1, 2), word, meta)
