# SPDX-License-Identifier: Apache-2.0
"""A verb of zDNN: the names of its operands, and the outputs that it creates."""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa.zdnn.v1.tensor_pb2 import TensorRef

from nnpa_client._guest.call import Call, Tensor
from nnpa_client._guest.guest import Guest
from nnpa_client._values.fields import AnyMessage, message_of

__tracebackhide__ = True  # pytest shows the line that called, not these


class Operand(Tensor, Protocol):
    """A ztensor as verbs take it."""

    guest: Guest

    def ref(self) -> TensorRef:
        """Return the reference by which an operation names the ztensor."""
        ...

    def new_output(self) -> Self:
        """Return a ztensor of the same session that an operation is to create."""
        ...


AnyOperand = TypeVar("AnyOperand", bound=Operand)


class Verb(Generic[AnyOperand]):
    """A call of an operation: `refs` are its TensorRefs by C parameter name.

    An output that is None becomes a new ztensor, whose descriptors the server infers.
    """

    __slots__ = ("_created", "_guest", "_name", "_outputs", "_tensors", "refs")

    def __init__(
        self, name: str, outputs: Mapping[str, AnyOperand | None], **inputs: AnyOperand
    ) -> None:
        self._name = name
        self._tensors: dict[str, AnyOperand] = inputs
        self._created, self._outputs = list[AnyOperand](), list[AnyOperand]()
        self.refs = dict[str, TensorRef]()
        try:
            self._name_operands(next(iter(inputs.values())), outputs)
        except AttributeError as error:
            raise _no_ztensor(self._tensors) or error from None

    def _name_operands(self, first: AnyOperand, outputs: Mapping[str, AnyOperand | None]) -> None:
        self._guest = first.guest
        for operand, output in outputs.items():
            tensor = output
            if tensor is None:
                tensor = first.new_output()
                self._created.append(tensor)
                self.refs[operand] = TensorRef(new_id=tensor.id)
            self._tensors[operand] = tensor
            self._outputs.append(tensor)
        for operand, tensor in self._tensors.items():
            if tensor.guest is not self._guest:
                raise ValueError(f"{operand}: of another session, expected one of the first's")
            if operand not in self.refs:
                self.refs[operand] = TensorRef(id=tensor.id) if tensor.id else tensor.ref()

    def message(self, kind: type[AnyMessage], **scalars: Any) -> AnyMessage:
        """Return the operation's message; raise TypeError or ValueError for a scalar, by name."""
        return message_of(kind, {**self.refs, **scalars})

    def run(self, operation: Operation) -> tuple[AnyOperand, ...]:
        """Submit the operation and return its outputs."""
        self._guest.submit(Call(self._name, operation, self._tensors, self._created))
        return tuple(self._outputs)

    def result(self, operation: Operation) -> AnyOperand:
        """Submit an operation that has one output, and return the output."""
        self._guest.submit(Call(self._name, operation, self._tensors, self._created))
        return self._outputs[0]


def require_ztensors(**operands: object) -> None:
    """Raise TypeError for the first operand, by C parameter name, that is no ztensor."""
    error = _no_ztensor(operands)
    if error is not None:
        raise error


def _no_ztensor(operands: Mapping[str, object]) -> TypeError | None:
    """Return the error for the first operand that is no ztensor, None if there is none."""
    for name, operand in operands.items():
        if hasattr(operand, "guest"):
            continue
        advice = ""
        if isinstance(operand, (list, tuple)) or hasattr(operand, "__array__"):
            advice = "; session.ztensor(array) makes one of an array"
        kind = "None" if operand is None else type(operand).__name__
        return TypeError(f"{name}: {kind}, expected a ztensor{advice}")
    return None
