# SPDX-License-Identifier: Apache-2.0
"""An ONNX model as a plan: its file, its weights, and an executor per set of input shapes."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from nnpa_emulator import Guest
from onnx import numpy_helper

from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.importing.plan import Weight, signature_of, weight_of
from nnpa_network.running.executor import Executor


class OnnxPlan:
    """A model compiled for a guest's machine. Methods may be called from several threads.

    `data` is the model's file, kept for the reference in FP32 and for other weights.
    """

    def __init__(self, data: bytes, guest: Guest, options: ImportOptions | None = None) -> None:
        self.data, self.guest = data, guest
        self.model = model = import_onnx(data, guest, options)
        self.signature = signature_of(data)
        self.name, self.options = model.name, model.options
        self.inputs, self.optional, self.outputs = model.inputs, model.optional, model.outputs

    @property
    def nbytes(self) -> int:
        """Bytes that it holds: the file, the initializers as arrays, constants of programs."""
        return 2 * len(self.data) + self.model.stick_bytes

    @property
    def dropped(self) -> int:
        """How many programs were dropped for others, and would be compiled anew."""
        return self.model.dropped

    def weights(self) -> tuple[Weight, ...]:
        """Return the numeric initializers in graph order; text has no bytes to replace."""
        return weights_of(self.model)

    def with_weights(self, parts: Sequence[bytes]) -> "OnnxPlan":
        """Return the model with other initializers of the same sizes; its signature stays."""
        plan = OnnxPlan(with_weights(self.data, parts), self.guest, self.options)
        plan.signature = self.signature
        return plan

    def retire(self) -> None:
        """Do nothing: it has no processes."""

    def executor(self, shapes: Mapping[str, tuple[int, ...]]) -> Executor:
        """Return the executor for inputs of these shapes; raise `ModelRefused`."""
        return self.model.executor(shapes)


def weights_of(model: OnnxModel) -> tuple[Weight, ...]:
    """Return the initializers of a model's file in graph order."""
    return tuple(weight_of(name, array) for name, array in model.weights.items())


def with_weights(file: bytes, parts: Sequence[bytes]) -> bytes:
    """Return the file with other initializers of the same sizes."""
    proto = onnx.ModelProto.FromString(file)
    tensors = proto.graph.initializer
    numeric = [tensor for tensor in tensors if tensor.data_type != onnx.TensorProto.STRING]
    for tensor, part in zip(numeric, parts, strict=True):
        array = numpy_helper.to_array(tensor)
        replacement = np.frombuffer(part, array.dtype).reshape(array.shape)
        tensor.CopyFrom(numpy_helper.from_array(replacement, tensor.name))
    return proto.SerializeToString()
