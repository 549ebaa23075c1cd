# SPDX-License-Identifier: Apache-2.0
"""The life of a ztensor: init, allocate, transform, read back, free: 15 functions of zDNN.

Functions without a ztensor among their parameters use the innermost `with session:`.
"""

from collections.abc import Sequence

from nnpa.zdnn.v1.operation_pb2 import (
    GetrangeZtensor,
    Operation,
    ResetZtensor,
    ReshapeZtensor,
    TransformQuantizedZtensor,
    TransformZtensorWithSaturation,
)
from nnpa.zdnn.v1.tensor_pb2 import TensorDesc

from nnpa_client._guest.call import Call
from nnpa_client._guest.verb import Verb, require_ztensors
from nnpa_client._values.fields import message_of
from nnpa_client._values.user_arrays import Array
from nnpa_client.session import current_session
from nnpa_client.ztensor import Ztensor, _lifecycle, _transfer
from nnpa_client.ztensor._transfer import UserArray

__all__ = [
    "allochelper_ztensor",
    "free_ztensor_buffer",
    "getrange_ztensor",
    "init_quantized_ztensor",
    "init_quantized_ztensor_with_malloc",
    "init_ztensor",
    "init_ztensor_with_malloc",
    "is_quantized_ztensor",
    "reset_ztensor",
    "reshape_ztensor",
    "transform_origtensor",
    "transform_quantized_ztensor",
    "transform_ztensor",
    "transform_ztensor_with_saturation",
]


def init_ztensor(pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc) -> Ztensor:
    """Return a ztensor without a buffer; descriptors are copied.

    Source: zDNN API Reference 1.2.0, zdnn_init_ztensor.
    """
    return current_session().init_ztensor(pre_tfrmd_desc, tfrmd_desc)


def init_quantized_ztensor(
    pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc, scale: float, offset: float
) -> Ztensor:
    """Return a quantized ztensor without a buffer; it keeps 1/scale in FP32, 0 for scale 0.

    Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor.
    """
    return current_session().init_quantized_ztensor(pre_tfrmd_desc, tfrmd_desc, scale, offset)


def init_ztensor_with_malloc(pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc) -> Ztensor:
    """Return a ztensor with zero-filled sticks.

    Raises ZdnnError as `allochelper_ztensor`.
    Source: zDNN API Reference 1.2.0, zdnn_init_ztensor_with_malloc.
    """
    return current_session().init_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc)


def init_quantized_ztensor_with_malloc(
    pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc, scale: float, offset: float
) -> Ztensor:
    """Return a quantized ztensor with zero-filled sticks.

    Raises ZdnnError as `allochelper_ztensor`.
    Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor_with_malloc.
    """
    session = current_session()
    return session.init_quantized_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc, scale, offset)


def is_quantized_ztensor(ztensor: Ztensor) -> bool:
    """Return True if the ztensor has a scale: rec_scale is not 0.

    Source: zDNN API Reference 1.2.0, zdnn_is_quantized_ztensor.
    """
    require_ztensors(ztensor=ztensor)
    return ztensor.rec_scale != 0


def allochelper_ztensor(ztensor: Ztensor) -> Ztensor:
    """Allocate zero-filled sticks, and return the ztensor.

    Raises ZdnnError: ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE,
    ZDNN_INVALID_SHAPE (0, or beyond what the machine allows), ZDNN_ALLOCATION_FAILURE.
    Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
    """
    require_ztensors(ztensor=ztensor)
    return _lifecycle.allocate(ztensor)


def free_ztensor_buffer(ztensor: Ztensor) -> None:
    """Free the sticks. Dropping the last reference to a ztensor does the same, later.

    Raises ZdnnError: ZDNN_INVALID_BUFFER when there are none.
    Source: zDNN API Reference 1.2.0, zdnn_free_ztensor_buffer.
    """
    require_ztensors(ztensor=ztensor)
    _lifecycle.free_ztensor_buffer(ztensor)


def reset_ztensor(ztensor: Ztensor) -> None:
    """Make a transformed ztensor transformable again; data, scale and offset stay.

    Source: zDNN API Reference 1.2.0, zdnn_reset_ztensor.
    """
    require_ztensors(ztensor=ztensor)
    operation = Operation(reset_ztensor=ResetZtensor(ztensor=ztensor.ref()))
    ztensor.guest.submit(Call("reset_ztensor", operation, {"ztensor": ztensor}))


_GATES = ("f", "i", "c", "o", "z", "r", "h")


def transform_ztensor(ztensor: Ztensor, *data: UserArray, **gates: UserArray) -> Ztensor:
    """Convert user arrays to sticks, and return the ztensor.

    `data` is one dense array of the pre-transformed type; for concatenated weights and biases one
    for each gate, in C order or by name: (f, i, c, o) for LSTM, (z, r, h) for GRU. `ztensor.flags`
    has the IEEE flags afterwards. Raises ZdnnError: ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT,
    ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE, ZDNN_INVALID_BUFFER, ZDNN_INVALID_STATE (already
    transformed), ZDNN_CONVERT_FAILURE. Warns for ZDNN_ELEMENT_RANGE_VIOLATION if the machine
    converts, and for finite values beyond DLFLOAT16's range, which software takes in silence.
    Source: zDNN API Reference 1.2.0, zdnn_transform_ztensor.
    """
    _transfer.transform_ztensor(ztensor, [*data, *_in_order(data, gates)])
    return ztensor


def _in_order(data: Sequence[UserArray], gates: dict[str, UserArray]) -> list[UserArray]:
    """Return named gates in C order."""
    names = [name for name in _GATES if name in gates]
    if gates and (
        data or len(names) != len(gates) or names not in (["f", "i", "c", "o"], ["z", "r", "h"])
    ):
        passed = ", ".join(gates)
        raise TypeError(f"gates: {passed}, expected f, i, c, o or z, r, h, and no other arrays")
    return [gates[name] for name in names]


def transform_ztensor_with_saturation(ztensor: Ztensor, data: UserArray) -> Ztensor:
    """As `transform_ztensor` of one array; finite values beyond DLFLOAT16 become its limits.

    Source: zDNN API Reference 1.2.0, zdnn_transform_ztensor_with_saturation.
    """

    def make(arrays: Sequence[bytes]) -> Operation:
        message = TransformZtensorWithSaturation(ztensor=ztensor.ref(), data=arrays)
        return Operation(transform_ztensor_with_saturation=message)

    _transfer.transform(ztensor, "transform_ztensor_with_saturation", [data], make)
    return ztensor


def transform_quantized_ztensor(
    ztensor: Ztensor, saturation_control: bool, clip_min: int, clip_max: int, data: UserArray
) -> Ztensor:
    """Convert a user array to a quantized ztensor, by its scale and offset.

    `saturation_control` clamps for QUANTIZED_DLFLOAT16; `clip_min` and `clip_max` (-128 to 127)
    bound INT8 results. Raises ZdnnError: ZDNN_INVALID_BUFFER, ZDNN_INVALID_STATE,
    ZDNN_INVALID_LAYOUT, ZDNN_INVALID_SHAPE, ZDNN_INVALID_TYPE, ZDNN_INVALID_FORMAT,
    ZDNN_INVALID_CLIPPING_VALUE, ZDNN_UNAVAILABLE_FUNCTION, ZDNN_FUNC_RC_F001.
    Source: zDNN API Reference 1.2.0, zdnn_transform_quantized_ztensor.
    """

    def make(arrays: Sequence[bytes]) -> Operation:
        fields = {
            "ztensor": ztensor.ref(),
            "saturation_control": saturation_control,
            "clip_min": clip_min,
            "clip_max": clip_max,
            "data": arrays,
        }
        message = message_of(TransformQuantizedZtensor, fields)
        return Operation(transform_quantized_ztensor=message)

    _transfer.transform(ztensor, "transform_quantized_ztensor", [data], make)
    return ztensor


def transform_origtensor(ztensor: Ztensor, out_buf: Array | None = None) -> Array:
    """Convert sticks back to a dense array of the pre-transformed type and shape.

    Fills and returns `out_buf`, contiguous and of the right number of bytes, or a new array. Inside
    a pipeline, `out_buf` is filled when the list runs; without it the list runs at once. Raises
    ZdnnError as `transform_ztensor`; `out_buf` is written also with ZDNN_CONVERT_FAILURE.
    Source: zDNN API Reference 1.2.0, zdnn_transform_origtensor.
    """
    return _transfer.transform_origtensor(ztensor, out_buf)


def reshape_ztensor(src: Ztensor, dest: Ztensor) -> Ztensor:
    """Give the elements of `src` the shape of `dest`, and return `dest`.

    Raises ZdnnError: ZDNN_INVALID_SHAPE, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_STATE, then as
    `transform_ztensor`. Source: zDNN API Reference 1.2.0, zdnn_reshape_ztensor.
    """
    verb = Verb("reshape_ztensor", {"dest": dest}, src=src)
    return verb.result(Operation(reshape_ztensor=ReshapeZtensor(**verb.refs)))


def getrange_ztensor(ztensor: Ztensor) -> tuple[float, float]:
    """Return the least element, at most -0.0, and the greatest, at least 0.0.

    Raises ZdnnError: ZDNN_INVALID_STATE, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_FORMAT,
    ZDNN_INVALID_TYPE. Source: zDNN API Reference 1.2.0, zdnn_getrange_ztensor.
    """
    require_ztensors(ztensor=ztensor)
    operation = Operation(getrange_ztensor=GetrangeZtensor(ztensor=ztensor.ref()))
    answer = ztensor.guest.ask(Call("getrange_ztensor", operation, {"ztensor": ztensor}))
    return answer.range.min, answer.range.max
