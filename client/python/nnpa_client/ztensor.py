# SPDX-License-Identifier: Apache-2.0
"""`zdnn_ztensor` from afar: the structure here, the sticks in the session."""

import weakref
from typing import Self

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.tensor_pb2 import DataTypes, TensorDesc, TensorRef

from nnpa_client import _transfer
from nnpa_client._call import Tensor
from nnpa_client._guest import Guest
from nnpa_client._wire import Array, dims, enum_name, layout_shape
from nnpa_client.errors import NnpaError


class Ztensor:
    """A ztensor of a session, made by `session.ztensor`, the init functions, or an operation.

    The fields are those of C's structure, read-only: `pre_transformed_desc`, `transformed_desc`,
    `buffer_size` (bytes), `buffer` (the sticks, fetched), `is_transformed`, `rec_scale`, `offset`;
    and `flags`, the IEEE flags that the last transform raised. When the object is dropped, the
    session forgets the tensor with its next call.
    """

    __slots__ = (
        "__weakref__",
        "finalizer",
        "flags",
        "freed_id",
        "guest",
        "held",
        "id",
        "missing",
        "quantization",
    )

    def __init__(self, guest: Guest, structure: tensor_pb2.Ztensor | None, number: int = 0) -> None:
        self.guest = guest
        self.id = number
        self.flags = 0
        self.freed_id = 0
        self.finalizer: weakref.finalize[[int], Tensor] | None = None
        self.quantization: tuple[float, float] | None = None
        self.held = structure
        self.missing = ""

    @property
    def structure(self) -> tensor_pb2.Ztensor:
        """The structure as the wire carries it, without contents."""
        if self.held is None and not self.missing:
            self.guest.flush()
        if self.held is None:
            raise NnpaError(f"ztensor: does not exist, {self.missing}")
        return self.held

    def new_output(self) -> Self:
        """Return a ztensor of the same session that an operation is to create."""
        return type(self)(self.guest, None, self.guest.new_id())

    def ref(self) -> TensorRef:
        """Return how an operation names this ztensor.

        One that never had a buffer lives here alone and travels with the operation.
        """
        if self.id:
            return TensorRef(id=self.id)
        ref = TensorRef(inline_ztensor=self.structure)
        if self.freed_id:
            ref.provenance.freed_id = self.freed_id
        return ref

    @property
    def pre_transformed_desc(self) -> TensorDesc:
        """The user's view of the tensor."""
        return self.structure.pre_transformed_desc

    @property
    def transformed_desc(self) -> TensorDesc:
        """The accelerator's view of the tensor."""
        return self.structure.transformed_desc

    @property
    def buffer_size(self) -> int:
        """The size of the sticks, bytes; 0 before they are allocated."""
        return self.structure.buffer_size

    @property
    def is_transformed(self) -> bool:
        """Whether the sticks hold data."""
        return self.structure.is_transformed

    @property
    def rec_scale(self) -> float:
        """The reciprocal of the quantization scale, FP32; 0 means not quantized."""
        return self.structure.rec_scale

    @property
    def offset(self) -> float:
        """The quantization offset, FP32."""
        return self.structure.offset

    @property
    def buffer(self) -> npt.NDArray[np.uint8] | None:
        """A copy of the sticks, cells little-endian; None where C has NULL."""
        return self.read_sticks() if self.id else None

    def read_sticks(self, byte_order: str = "little") -> npt.NDArray[np.uint8]:
        """Fetch the sticks; `byte_order` "big" gives the bytes that an IBM Z machine has."""
        return _transfer.read_sticks(self, byte_order)

    def write_sticks(
        self,
        sticks: Array | bytes,
        byte_order: str = "little",
        is_transformed: bool = True,
    ) -> None:
        """Replace the sticks; as many bytes as `buffer_size`."""
        _transfer.write_sticks(self, sticks, byte_order, is_transformed)

    def numpy(self) -> Array:
        """Fetch the data as a dense array of the pre-transformed type: transform_origtensor."""
        return _transfer.transform_origtensor(self)

    def __repr__(self) -> str:
        if self.held is None:
            return f"<Ztensor {self.missing or 'pending'}>"
        pre, tfrmd = self.held.pre_transformed_desc, self.held.transformed_desc
        state = "transformed" if self.is_transformed else "not transformed"
        quantized = f", rec_scale {self.rec_scale:g}, offset {self.offset:g}"
        return (
            f"<Ztensor {_description(pre)} as {_description(tfrmd)}, "
            f"{self.buffer_size} bytes, {state}{quantized if self.rec_scale else ''}>"
        )


def _description(desc: TensorDesc) -> str:
    layout = enum_name(tensor_pb2.DataLayouts.DESCRIPTOR, desc.layout)
    shape = layout_shape(desc) or dims(desc)
    return f"{layout} {'x'.join(map(str, shape))} {enum_name(DataTypes.DESCRIPTOR, desc.type)}"
