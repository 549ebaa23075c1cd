# SPDX-License-Identifier: Apache-2.0
"""What all verbs share: ztensors become references, and outputs that are left out are created."""

from collections.abc import Mapping

from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa.zdnn.v1.tensor_pb2 import TensorRef

from nnpa_client._guest import Call
from nnpa_client.ztensor import Ztensor


class Verb:
    """A call of an operation: `refs` are its TensorRefs by C parameter name.

    An output that is None becomes a new ztensor, whose descriptors the server infers.
    """

    __slots__ = ("_created", "_name", "_outputs", "_tensors", "refs")

    def __init__(self, name: str, outputs: Mapping[str, Ztensor | None], **inputs: Ztensor) -> None:
        self._name = name
        guest = next(iter(inputs.values())).guest
        self._tensors = dict(inputs)
        self._created: list[Ztensor] = []
        self.refs = {operand: tensor.ref() for operand, tensor in inputs.items()}
        for operand, output in outputs.items():
            tensor = output
            if tensor is None:
                tensor = Ztensor(guest, None, guest.new_id())
                self._created.append(tensor)
                self.refs[operand] = TensorRef(new_id=tensor.id)
            else:
                self.refs[operand] = tensor.ref()
            self._tensors[operand] = tensor
        self._outputs = tuple(self._tensors[operand] for operand in outputs)
        for operand, tensor in self._tensors.items():
            if tensor.guest is not guest:
                raise ValueError(f"{operand}: of session {tensor.guest.name}, not {guest.name}")

    def run(self, operation: Operation) -> tuple[Ztensor, ...]:
        """Submit the operation and return its outputs."""
        call = Call(self._name, operation, self._tensors, tuple(self._created))
        self._outputs[0].guest.submit(call)
        return self._outputs

    def result(self, operation: Operation) -> Ztensor:
        """Submit an operation of one output and return that."""
        return self.run(operation)[0]
