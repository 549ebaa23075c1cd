# SPDX-License-Identifier: Apache-2.0
"""Code fragments inside the function descriptions of the zDNN API Reference 1.2.0."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_client import Session, ZdnnError, Ztensor, zdnn
from nnpa_client.rnn import gru_work_area_size, lstm_work_area_size

# Largest difference that IBM's own tests of the library allow with FP32 data.
TOLERANCE = 40960 * 2.0**-24
PAGE = 4096

Floats = npt.NDArray[np.float32]
Softmax = Callable[[Ztensor], Ztensor]


def _softmax(x: Floats) -> npt.NDArray[np.float64]:
    powers = np.exp(x.astype(np.float64))
    sums: npt.NDArray[np.float64] = powers.sum(axis=-1, keepdims=True)
    return powers / sums


def _ztensor(session: Session, layout: int, shape: tuple[int, ...], data: Floats) -> Ztensor:
    """Describe data by another shape, and transform the same array."""
    pre = zdnn.init_pre_transformed_desc(layout, zdnn.FP32, *shape)
    ztensor = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    return zdnn.transform_ztensor(ztensor, data)


def _plain(x: Ztensor) -> Ztensor:
    return zdnn.softmax(x, None, zdnn.SOFTMAX_ACT_NONE)


def _masked(x: Ztensor) -> Ztensor:
    return zdnn.softmax_mask(x, None, zdnn.SOFTMAX_ACT_NONE, 0)


@pytest.mark.parametrize("softmax", [_plain, _masked], ids=["softmax", "softmax_mask"])
@pytest.mark.parametrize("shape", [(8, 1, 2), (1, 8, 2)])
def test_softmax_coercion(session: Session, softmax: Softmax, shape: tuple[int, ...]) -> None:
    """A 2x2x2x2 array described as ZDNN_3DS 8x1x2 or 1x8x2 is valid for softmax."""
    data = ((np.arange(16) * 5 % 7 - 3) / 2).astype(np.float32).reshape(2, 2, 2, 2)
    result = softmax(_ztensor(session, zdnn.ZDNN_3DS, shape, data)).numpy()
    expected = _softmax(data).reshape(shape)
    np.testing.assert_allclose(result, expected, rtol=0, atol=TOLERANCE)


def test_softmax_without_coercion(session: Session) -> None:
    """The 2x2x2x2 tensor as ZDNN_4D has dim3 = 2, which softmax refuses."""
    data = np.zeros((2, 2, 2, 2), np.float32)
    whole = _ztensor(session, zdnn.ZDNN_4D, data.shape, data)
    with pytest.raises(ZdnnError) as caught:
        zdnn.softmax(whole, None, zdnn.SOFTMAX_ACT_NONE)
    assert caught.value.status == zdnn.ZDNN_FUNC_RC_F000


@pytest.mark.parametrize(
    ("op_type", "expected"),
    [
        (zdnn.REDUCE_OP_MINIMUM, np.min),
        (zdnn.REDUCE_OP_MAXIMUM, np.max),
        (zdnn.REDUCE_OP_MINIMUM_IDX, np.argmin),
        (zdnn.REDUCE_OP_MAXIMUM_IDX, np.argmax),
    ],
    ids=["minimum", "maximum", "minimum_idx", "maximum_idx"],
)
def test_reduce_descriptors(
    session: Session, op_type: int, expected: Callable[..., npt.NDArray[np.generic]]
) -> None:
    """Outputs of reduce are ZDNN_3DS (dim4, dim2, 1), INT32 for positions, else of input type."""
    input_layout = zdnn.ZDNN_3DS
    input_type = zdnn.FP32
    dim4, dim2, dim1 = 4, 5, 6
    input_pre = zdnn.init_pre_transformed_desc(input_layout, input_type, dim4, dim2, dim1)
    index = op_type in (zdnn.REDUCE_OP_MINIMUM_IDX, zdnn.REDUCE_OP_MAXIMUM_IDX)
    output_type = zdnn.INT32 if index else input_type
    output_pre = zdnn.init_pre_transformed_desc(input_layout, output_type, dim4, dim2, 1)

    data = ((np.arange(120) * 11 % 17) - 8).astype(np.float32).reshape(4, 5, 6)
    source = session.init_ztensor_with_malloc(input_pre, zdnn.generate_transformed_desc(input_pre))
    zdnn.transform_ztensor(source, data)
    output = session.init_ztensor_with_malloc(
        output_pre, zdnn.generate_transformed_desc(output_pre)
    )
    zdnn.reduce(source, None, op_type, output)
    result = zdnn.transform_origtensor(output)
    assert result.dtype == (np.int32 if index else np.float32)
    np.testing.assert_array_equal(result.reshape(4, 5), expected(data, axis=-1))


@pytest.mark.parametrize(
    ("gates", "extra", "helper"), [(4, 6, lstm_work_area_size), (3, 5, gru_work_area_size)]
)
@pytest.mark.parametrize(
    ("num_timesteps", "num_batches", "num_hidden"), [(1, 1, 1), (5, 3, 5), (7, 32, 64), (2, 33, 65)]
)
def test_work_area(
    gates: int,
    extra: int,
    helper: Callable[..., int],
    num_timesteps: int,
    num_batches: int,
    num_hidden: int,
) -> None:
    """The sample's descriptor gives the documented slabs, with room for the layer's data."""
    desc = zdnn.TensorDesc()
    desc.dim4 = (gates * num_timesteps) + extra
    desc.dim3 = 1
    desc.dim2 = num_batches
    desc.dim1 = num_hidden
    work_area_size = zdnn.getsize_ztensor(desc)

    slab = -(-num_batches // 32) * -(-num_hidden // 64) * PAGE
    assert work_area_size == (gates * num_timesteps + extra) * slab
    assert helper(num_timesteps, num_batches, num_hidden) == work_area_size
    twice = helper(num_timesteps, num_batches, num_hidden, bidirectional=True)
    assert twice == 2 * work_area_size
    fused_and_sum = gates * num_timesteps + gates
    assert work_area_size >= (fused_and_sum + min(num_timesteps - 1, 2)) * slab


class _Quantized:
    """Operands of a quantized product with offsets, as the pre_computed fragments name them."""

    Sa, Za = 0.5, 3.0
    Sb, Zb = 0.25, 0.0
    Sc, Zc = 0.5, -2.0
    Sy, Zy = 1.0, 4.0

    def __init__(self, session: Session) -> None:
        self.session = session
        self.a = (np.arange(6 * 4) * 7 % 19 - 9).astype(np.int8).reshape(6, 4)
        self.b = (np.arange(4 * 5) * 5 % 17 - 8).astype(np.int8).reshape(4, 5)
        self.c = (np.arange(5) * 9 % 23 - 11).astype(np.int8)
        self.input_a = self._int8(zdnn.ZDNN_2D, self.a, zdnn.QUANTIZED_INT8, self.Sa, self.Za)
        self.input_b = self._int8(
            zdnn.ZDNN_2D, self.b, zdnn.QUANTIZED_WEIGHTS_INT8, self.Sb, self.Zb
        )
        self.input_c = self._int8(zdnn.ZDNN_1D, self.c, zdnn.QUANTIZED_INT8, self.Sc, self.Zc)

    def _int8(
        self, layout: int, data: npt.NDArray[np.int8], form: int, scale: float, offset: float
    ) -> Ztensor:
        pre = zdnn.init_pre_transformed_desc(layout, zdnn.INT8, *data.shape)
        tfrmd = zdnn.generate_quantized_transformed_desc(pre, form)
        ztensor = self.session.init_quantized_ztensor_with_malloc(pre, tfrmd, scale, offset)
        return zdnn.transform_quantized_ztensor(ztensor, False, -128, 127, data)

    def floats(self, layout: int, *shape: int) -> Ztensor:
        """Return an untransformed QUANTIZED_DLFLOAT16 ztensor with the output's scale."""
        pre = zdnn.init_pre_transformed_desc(layout, zdnn.FP32, *shape)
        tfrmd = zdnn.generate_quantized_transformed_desc(pre, zdnn.QUANTIZED_DLFLOAT16)
        return self.session.init_quantized_ztensor_with_malloc(pre, tfrmd, self.Sy, self.Zy)

    def product(self, op_type: int, pre_computed: Floats | None) -> Floats:
        """Return the result of zdnn_quantized_matmul_op, not clipped."""
        c = self.input_c
        if pre_computed is not None:
            c = zdnn.transform_ztensor(self.floats(zdnn.ZDNN_1D, 5), pre_computed)
        is_pre_computed = pre_computed is not None
        output = self.floats(zdnn.ZDNN_2D, 6, 5)
        zdnn.quantized_matmul_op(
            self.input_a,
            self.input_b,
            c,
            op_type,
            -128,
            127,
            True,
            False,
            is_pre_computed,
            None,
            output,
        )
        return zdnn.transform_origtensor(output)

    def real(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the real numbers behind the operands: their product, and c."""
        a = (self.a.astype(np.float64) - self.Za) * self.Sa
        b = (self.b.astype(np.float64) - self.Zb) * self.Sb
        return a @ b, (self.c.astype(np.float64) - self.Zc) * self.Sc


def test_pre_computed_addition(session: Session) -> None:
    """The formula for addition, signs corrected, gives the quantized sum within one step.

    The manual's own, Zy - (Sc/Sy) * Zc - (Sc/Sy) * c + ((Sa * Sb) / Sy) * N * Za * Zb, does not.
    """
    q = _Quantized(session)
    sums = q.b.astype(np.float64).sum(axis=-2)
    ratio = q.Sc / q.Sy
    pre_computed = q.Zy - ratio * q.Zc + ratio * q.c - q.Sa * q.Sb / q.Sy * q.Za * sums
    product, c = q.real()
    expected = (product + c) / q.Sy + q.Zy
    result = q.product(zdnn.MATMUL_OP_ADDITION, pre_computed.astype(np.float32))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1)
    plain = q.product(zdnn.MATMUL_OP_ADDITION, None)
    np.testing.assert_allclose(result, plain, rtol=0, atol=1)
    printed = q.Zy - ratio * q.Zc - ratio * q.c + q.Sa * q.Sb / q.Sy * 4 * q.Za * q.Zb
    wrong = q.product(zdnn.MATMUL_OP_ADDITION, printed.astype(np.float32))
    assert np.abs(wrong - expected).max() > 1


@pytest.mark.parametrize(
    ("op_type", "compare"),
    [
        (zdnn.MATMUL_OP_GREATER, np.greater),
        (zdnn.MATMUL_OP_GREATER_EQUAL, np.greater_equal),
        (zdnn.MATMUL_OP_EQUAL, np.equal),
        (zdnn.MATMUL_OP_NOT_EQUAL, np.not_equal),
        (zdnn.MATMUL_OP_LESSER_EQUAL, np.less_equal),
        (zdnn.MATMUL_OP_LESSER, np.less),
    ],
    ids=["greater", "greater_equal", "equal", "not_equal", "lesser_equal", "lesser"],
)
def test_pre_computed_compare(session: Session, op_type: int, compare: np.ufunc) -> None:
    """The formula for comparisons compares the product of real numbers with c."""
    q = _Quantized(session)
    sums = q.b.astype(np.float64).sum(axis=-2)
    pre_computed = q.Sc / (q.Sa * q.Sb) * (q.c - q.Zc) + q.Za * sums
    result = q.product(op_type, pre_computed.astype(np.float32))
    product, c = q.real()
    np.testing.assert_array_equal(result, compare(product, c).astype(np.float32))
    np.testing.assert_array_equal(result, q.product(op_type, None))
