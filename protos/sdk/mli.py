# SPDX-License-Identifier: Apache-2.0
"""embARC MLI: the kernels of the SDKs, and the tensors that their callers may leave out."""

from collections.abc import Iterable
from dataclasses import dataclass

from sdk.verbs import Parameter, Verb

# By message: the operand of as many elements as an output, and how many times as many the
# intermediate results of a recurrent cell have. What is not here answers with a number, or with a
# tensor in the memory of another one.
_SIZES = {
    "FullyConnected": ("bias", 0),
    "LstmCell": ("cell", 4),
    "BasicRnnCell": ("bias", 1),
    "Activation": ("in", 0),
    "ConvertTensor": ("", 0),
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that writes one tensor, its last parameter, with memory of its own.

    An output that is left out has the size of the operand `sized`; "" if it must be given. The
    intermediate results of a recurrent cell are `gates` times larger, 0 for other kernels.
    """

    verb: Verb
    sized: str
    gates: int

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The tensors before the output."""
        return self.verb.inputs[:-1]

    @property
    def output(self) -> Parameter:
        """The tensor that the kernel writes."""
        return self.verb.parameters[-1]

    @property
    def scaled(self) -> bool:
        """True if the caller passes the fractional bits of the output."""
        return self.verb.message == "FullyConnected"

    @property
    def data(self) -> str:
        """The type of an output that the caller leaves out."""
        return "FX_8" if self.verb.name.endswith("_fx8") else "FX_16"

    @property
    def doc(self) -> list[str]:
        """The description in paragraphs; the first begins with the C name."""
        return [self.verb.title, *self.verb.doc]


def kernels(verbs: Iterable[Verb]) -> list[Kernel]:
    """Return the kernels that write a tensor with memory of its own."""
    return [Kernel(verb, *_SIZES[verb.message]) for verb in verbs if verb.message in _SIZES]
