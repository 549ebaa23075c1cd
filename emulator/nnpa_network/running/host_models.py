# SPDX-License-Identifier: Apache-2.0
"""Models of single host nodes and of groups of them, as ONNX Runtime takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nnpa_network.program import Array, DType

WIDER: Mapping[DType, DType] = {
    np.dtype(narrow): np.dtype(wide)
    for wide, types in (
        (np.float32, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
                      ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)),
        (np.int8, (ml_dtypes.int4,)),
        (np.uint8, (ml_dtypes.uint4,)),
    )
    for narrow in types
}  # fmt: skip
"""Element types that ONNX Runtime does not exchange with NumPy, by one that has their values."""
_WIDE = "wide "  # how the names of operands begin that stand for narrow ones
# The IR version that every opset from 7 on may be used with, and subgraphs without restrictions.
_IR_VERSION = 10
_INSIDE_BYTES = 4096  # of a constant within the model, where shape inference sees it


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes in order and the versions of their domains, the types of their inputs, their outputs.

    `types` has the element types of inputs by name, `shapes` their sizes with -1 for free dims.
    `constants` are no inputs: initializers, which ONNX Runtime arranges for products once.
    """

    nodes: Sequence[onnx.NodeProto]
    opsets: Mapping[str, int]
    types: Mapping[str, DType]
    outputs: Sequence[str]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    def narrow(self) -> dict[str, DType]:
        """The types of inputs that come in as wider types; casts stand before the nodes."""
        return {name: dtype for name, dtype in self.types.items() if dtype in WIDER}

    @property
    def has_int8_matrix(self) -> bool:
        """Whether a constant may be multiplied with saturation, unless it is rewritten."""
        return any(map(is_int8_matrix, self.constants.values()))

    @property
    def outside(self) -> dict[str, Array]:
        """The constants whose elements the model does not hold: it takes them where they lie."""
        if self.has_int8_matrix:  # rewritten in the model
            return {}
        return {
            name: np.ascontiguousarray(array)
            for name, array in self.constants.items()
            if array.nbytes > _INSIDE_BYTES
        }

    def model(self) -> onnx.ModelProto:
        """Return a model of the nodes."""
        inputs = [
            helper.make_tensor_value_info(
                wide_name(name, self.narrow),
                helper.np_dtype_to_tensor_dtype(WIDER.get(dtype, dtype)),
                _free(self.shapes[name]) if name in self.shapes else None,
            )
            for name, dtype in self.types.items()
        ]
        casts = [_cast(f"{_WIDE}{name}", name, dtype) for name, dtype in self.narrow.items()]
        outputs = list(map(helper.make_empty_tensor_value_info, self.outputs))
        outside = self.outside
        weights = [
            _reference(name, array) if name in outside else numpy_helper.from_array(array, name)
            for name, array in self.constants.items()
        ]
        graph = helper.make_graph([*casts, *self.nodes], "node", inputs, outputs, weights)
        imports = [helper.make_opsetid(*each) for each in self.opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def is_int8_matrix(constant: Array) -> bool:
    """Return whether a constant is an INT8 matrix, or a stack of them."""
    return constant.dtype == np.int8 and constant.ndim > 1


def wide_name(name: str, narrow: Mapping[str, DType]) -> str:
    """Return the name of an input or output of the model, another one for a narrow one."""
    return f"{_WIDE}{name}" if name in narrow else name


def _free(shape: tuple[int, ...]) -> list[int | None]:
    return [None if dim < 0 else dim for dim in shape]


def _reference(name: str, array: Array) -> TensorProto:
    """Return an initializer whose elements are handed over beside the model."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor


def with_wide_outputs(model: bytes, narrow: Mapping[str, DType]) -> bytes:
    """Return a model with casts behind its outputs of narrow types."""
    proto = onnx.ModelProto.FromString(model)
    for info in proto.graph.output:
        if info.name in narrow:
            wide = wide_name(info.name, narrow)
            proto.graph.node.append(_cast(info.name, wide, WIDER[narrow[info.name]]))
            info.name = wide
    return bytes(proto.SerializeToString())


def _cast(source: str, target: str, dtype: DType) -> onnx.NodeProto:
    """Return a Cast that changes no value: infinities of FLOAT8 stay, too."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    exact: dict[str, Any] = {"saturate": 0} if "float8" in dtype.name else {}
    return helper.make_node("Cast", [source], [target], to=kind, **exact)
