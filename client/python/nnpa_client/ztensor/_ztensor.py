# SPDX-License-Identifier: Apache-2.0
"""`zdnn_ztensor` of a remote session: the client has the structure, the session the sticks."""

import html
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1 import tensor_pb2
from nnpa.zdnn.v1.tensor_pb2 import DataTypes, TensorDesc, TensorRef

from nnpa_client._forwards import array_namespace
from nnpa_client._guest.call import Tensor
from nnpa_client._guest.guest import Guest
from nnpa_client._values.display import described, ztensor_table
from nnpa_client._values.fields import enum_name
from nnpa_client._values.user_arrays import DTYPES, Array, dims, layout_shape
from nnpa_client.errors import NnpaError, ZdnnError, ZdnnWarning
from nnpa_client.status import Status
from nnpa_client.ztensor import _operators, _transfer

__tracebackhide__ = True  # pytest shows the line that called, not these

_CPU = (1, 0)  # source: dlpack.h, kDLCPU
_PICTURE_BYTES = 1 << 18  # that a notebook may fetch to draw the first of them
# Attributes of a ztensor for the modules of this package.
_INTERNAL = {"finalizer", "freed_id", "guest", "held", "missing", "new_output", "quantization"}


class Ztensor:
    """A ztensor of a session, made by `session.ztensor`, the init functions, or an operation.

    It has the fields of C's structure, read-only: `pre_transformed_desc`, `transformed_desc`,
    `buffer_size` (bytes), `buffer` (the sticks, fetched), `is_transformed`, `rec_scale`, `offset`;
    and `flags`, the IEEE flags that the last transform raised. When the object is dropped, the
    session frees the tensor with its next call.

    `shape`, `ndim` and `dtype` describe the user's array. `+ - * /` and `@` compute on the
    accelerator, on equal shapes; `==` is identity. `np.asarray(z)` and DLPack fetch a copy.
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
        """Return the reference by which an operation names this ztensor.

        A ztensor that never had a buffer is not in the session, and travels with the operation.
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
        """Replace the sticks by an array or bytes of `buffer_size` bytes."""
        _transfer.write_sticks(self, sticks, byte_order, is_transformed)

    @property
    def shape(self) -> tuple[int, ...]:
        """The user's sizes, outermost first; for concatenated gates the sticks' sizes."""
        return layout_shape(self.pre_transformed_desc) or dims(self.transformed_desc)

    @property
    def ndim(self) -> int:
        """The number of dims of `shape`."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy's type of the user's data; raises TypeError for a type that NumPy lacks."""
        kind = self.pre_transformed_desc.type
        if kind not in DTYPES:
            name = enum_name(DataTypes.DESCRIPTOR, kind)
            raise TypeError(f"pre_transformed_desc.type: {name}, which NumPy lacks")
        return DTYPES[kind]

    def numpy(self, strict: bool = True) -> Array:
        """Fetch the data as a dense array of the pre-transformed type: transform_origtensor.

        Raises ZdnnError ZDNN_CONVERT_FAILURE for values that are no numbers; without `strict` they
        become NaN, with a ZdnnWarning.
        """
        if strict:
            return _transfer.transform_origtensor(self)
        self.guest.flush()  # a failure of what is queued is not this one's
        values = np.empty(self.shape, self.dtype)
        try:
            _transfer.transform_origtensor(self, values)
            self.guest.flush()
        except ZdnnError as error:
            if error.status != Status.ZDNN_CONVERT_FAILURE:
                raise
            warnings.warn(ZdnnWarning(error.status, error.op, error.violation), stacklevel=2)
        return values

    def preview(self, count: int = 8) -> str:
        """Fetch the values, and return the repr with the first `count` of them."""
        values = self.numpy(strict=False)
        shown = np.array2string(values.reshape(-1)[:count], separator=", ", threshold=count)
        more = "" if values.size <= count else f" ... {values.size} values"
        return f"{self!r}\n{shown}{more}"

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return True  # and no question to the server, as `len` may be

    __array_ufunc__ = None  # NumPy's functions would leave the accelerator in silence

    def __array_function__(
        self, function: Callable[..., object], *_details: object, **_more: object
    ) -> NoReturn:
        raise TypeError(
            f"numpy.{function.__name__} would leave the accelerator; give it z.numpy(), or use zdnn"
        )

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("copy: False, but the data are on the server")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy is False:
            raise BufferError("copy: False, but the data are on the server")
        if stream is not None or dl_device not in (None, _CPU):
            raise BufferError(f"dl_device: {dl_device}, stream: {stream}, expected the CPU's")
        return self.numpy().astype(np.float32).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return `nnpa_client.array_api`: the functions of the array API standard that zDNN has."""
        namespace = array_namespace()
        version = namespace.__array_api_version__
        if api_version not in (None, version):
            raise ValueError(f"api_version: {api_version!r}, expected {version!r}")
        return namespace

    def __add__(self, right: Self) -> Self:
        return _operators.elementwise("add", self, right)

    def __sub__(self, right: Self) -> Self:
        return _operators.elementwise("sub", self, right)

    def __mul__(self, right: Self) -> Self:
        return _operators.elementwise("mul", self, right)

    def __truediv__(self, right: Self) -> Self:
        return _operators.elementwise("div", self, right)

    def __matmul__(self, right: Self) -> Self:
        return _operators.matmul(self, right)

    def __radd__(self, left: object) -> NoReturn:
        _operators.refuse("+", left, self)

    def __rsub__(self, left: object) -> NoReturn:
        _operators.refuse("-", left, self)

    def __rmul__(self, left: object) -> NoReturn:
        _operators.refuse("*", left, self)

    def __rtruediv__(self, left: object) -> NoReturn:
        _operators.refuse("/", left, self)

    def __rmatmul__(self, left: object) -> NoReturn:
        _operators.refuse("@", left, self)

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - _INTERNAL)

    def __repr__(self) -> str:
        if self.held is None:
            return f"<Ztensor {self.missing or 'pending'}>"
        pre, tfrmd = self.held.pre_transformed_desc, self.held.transformed_desc
        state = "transformed" if self.is_transformed else "not transformed"
        quantized = f", rec_scale {self.rec_scale:g}, offset {self.offset:g}"
        return (
            f"<Ztensor {described(pre)} as {described(tfrmd)}, "
            f"{self.buffer_size} bytes, {state}{quantized if self.rec_scale else ''}>"
        )

    def _repr_html_(self) -> str:
        """Return layout, sizes, padding, and a picture of the first sticks of a small ztensor."""
        if self.held is None:
            return html.escape(repr(self))
        is_small = 0 < self.buffer_size <= _PICTURE_BYTES
        return ztensor_table(self.held, self.buffer if is_small else None)
