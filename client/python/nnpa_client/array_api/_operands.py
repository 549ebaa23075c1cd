# SPDX-License-Identifier: Apache-2.0
"""The operands of the namespace: ztensors of float32, in one layout per rank."""

from collections.abc import Sequence

import numpy as np
from nnpa.zdnn.v1.tensor_pb2 import (
    FP32,
    ZDNN_1D,
    ZDNN_2D,
    ZDNN_2DS,
    ZDNN_3D,
    ZDNN_3DS,
    ZDNN_4D,
    ZDNN_NHWC,
    DataLayouts,
)

from nnpa_client import zdnn
from nnpa_client._values.fields import enum_name
from nnpa_client.ztensor import Ztensor, _lifecycle

__tracebackhide__ = True  # pytest shows the line that called, not these

float32 = np.dtype(np.float32)
int32 = np.dtype(np.int32)

# The layouts of the namespace by number of dims: three are a stack of matrices.
LAYOUTS = {1: ZDNN_1D, 2: ZDNN_2D, 3: ZDNN_3DS, 4: ZDNN_NHWC}
_RESHAPED = {ZDNN_2DS, ZDNN_3D, ZDNN_4D}  # elements in the same order, dims elsewhere


def operand(function: str, x: Ztensor, name: str = "x") -> Ztensor:
    """Return a ztensor of float32 in the namespace's layout for its rank, reshaped if necessary.

    Raises TypeError for an object that is no ztensor, for other types, and for layouts of another
    order of elements. A pipeline runs its queue if the shape is not known yet.
    """
    require_ztensor(function, x, name)
    if x.dtype != float32:
        raise TypeError(f"{function}: {name}: dtype {x.dtype}, expected float32")
    layout = x.pre_transformed_desc.layout
    if layout in _RESHAPED:
        return reshaped(x, x.shape)
    if layout not in LAYOUTS.values():
        shown = enum_name(DataLayouts.DESCRIPTOR, layout)
        raise TypeError(f"{function}: {name}: layout {shown}, expected that of asarray")
    return x


def require_ztensor(function: str, x: object, name: str = "x") -> None:
    """Raise TypeError for an object that is no ztensor."""
    if not isinstance(x, Ztensor):
        advice = "asarray and full_like make one"
        raise TypeError(f"{function}: {name}: {type(x).__name__}, expected a ztensor; {advice}")


def require_float32(function: str, dtype: object) -> None:
    """Raise TypeError for a dtype that is neither None nor float32."""
    if dtype is not None and dtype not in (float32, np.float32):
        raise TypeError(f"{function}: dtype {dtype}, expected float32")


def require_rank(function: str, shape: Sequence[int]) -> None:
    """Raise NotImplementedError for a shape that no ztensor has: 1 to 4 dims."""
    if len(shape) not in LAYOUTS:
        dims = f"{len(shape)} dims"
        raise NotImplementedError(f"{function}: shape {tuple(shape)}: {dims}, expected 1 to 4")


def reshaped(x: Ztensor, shape: Sequence[int]) -> Ztensor:
    """Return a copy with another shape, 1 to 4 dims, same size: zdnn_reshape_ztensor."""
    pre = zdnn.init_pre_transformed_desc(LAYOUTS[len(shape)], FP32, *shape)
    target = _lifecycle.init_ztensor(x.guest, pre, zdnn.generate_transformed_desc(pre))
    return zdnn.reshape_ztensor(x, _lifecycle.allocate(target))


def shaped(x: Ztensor, shape: Sequence[int]) -> Ztensor:
    """Return a ztensor that has the shape already, or its `reshaped` copy."""
    return x if x.shape == tuple(shape) else reshaped(x, shape)
