# SPDX-License-Identifier: Apache-2.0
"""The plan of a network for the client API: shapes, weights, and an executor per shape.

An imported ONNX model is a plan; so is a program that came without its model.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

import numpy as np
from nnpa_emulator import Guest, Ztensor
from nnpa_emulator.machine import page_memory

from nnpa_network.program import ABSENT, Array, ModelRefused, Port, Program, may_be, writes
from nnpa_network.running.executor import Executor, ProgramRunner
from nnpa_network.running.host import Kernel
from nnpa_network.running.observed import Observer
from nnpa_network.running.results import Result, StepFailed
from nnpa_network.shortcuts import SHORTCUTS

SIGNATURE_DIGITS = 32  # source: AI_<NAME>_MODEL_SIGNATURE


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of the weights: its name in the model, and its elements, little-endian bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    @property
    def nbytes(self) -> int:
        """Its size, bytes."""
        return len(self.data)


class Plan(Protocol):
    """A network ready to run.

    `signature` are 32 hex digits, the same for the same model. Inputs and outputs are in the
    model's terms; inputs of `optional` have a default that counts if a run has no value for them.
    """

    guest: Guest
    name: str
    signature: str
    inputs: tuple[Port, ...]
    optional: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it holds: file, constants."""
        ...

    @property
    def dropped(self) -> int:
        """How many programs were dropped for others, and would be compiled anew."""
        ...

    def weights(self) -> tuple[Weight, ...]:
        """Return the weights in graph order."""
        ...

    def with_weights(self, parts: Sequence[bytes]) -> "Plan":
        """Return the network with other weights of the same sizes; raise `ModelRefused`."""
        ...

    def executor(self, shapes: Mapping[str, tuple[int, ...]]) -> ProgramRunner:
        """Return the executor for inputs of these shapes; raise `ModelRefused`."""
        ...

    def retire(self) -> None:
        """End the plan's own processes, if any, as soon as no run needs them."""
        ...


@contextmanager
def requiring_fit() -> Generator[None]:
    """Fail the run if the steps of a program that was not compiled here do not fit together."""
    try:
        yield
    except ModelRefused:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        text = "the steps of the program do not fit together"
        raise StepFailed("", "program", 0, text) from error


class ForeignExecutor(Executor):
    """An executor of a program that was not compiled here: steps that do not fit fail the run.

    An output of a host step fails the run, too, unless it has the declared shape.
    """

    def __init__(
        self,
        program: Program,
        guest: Guest,
        shortcuts: Collection[str] = SHORTCUTS,
        sources: Sequence[Executor] = (),
    ) -> None:
        super().__init__(program, guest, frozenset(shortcuts) - {"host-groups"}, sources)
        for index, kernel in self._loaded.kernels.items():
            outputs = [number for number in writes(program.steps[index]) if number != ABSENT]
            shapes = [program.arrays[number].shape for number in outputs]
            self._loaded.kernels[index] = _requiring_shapes(kernel, shapes)

    def run(self, inputs: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused` for wrong inputs, `StepFailed`."""
        with requiring_fit():
            return super().run(inputs, observer)


def _requiring_shapes(kernel: Kernel, shapes: Sequence[tuple[int, ...]]) -> Kernel:
    """Return a kernel that fails where an output has another shape, -1 for any size."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        results = kernel(arrays)
        for array, shape in zip(results, shapes, strict=True):
            if array.shape != shape and not may_be(array.shape, shape):
                raise ValueError(f"an output of shape {array.shape}, declared as {shape}")
        return results

    return run


class ProgramPlan:
    """A program that came without its model: one set of shapes, constants for weights.

    `load` makes it ready to run.
    """

    dropped = 0

    def __init__(
        self,
        program: Program,
        guest: Guest,
        signature: str,
        load: Callable[[Program, Guest], ProgramRunner] = ForeignExecutor,
    ) -> None:
        self.program, self.guest, self.signature = program, guest, signature
        self.name, self.inputs, self.outputs = program.name, program.inputs, program.outputs
        self.optional: tuple[Port, ...] = ()  # constants of a program are no inputs
        self._load = load
        self._executor = load(program, guest)

    @property
    def nbytes(self) -> int:
        """Bytes of the constants."""
        return sum(weight.nbytes for weight in self.weights())

    def weights(self) -> tuple[Weight, ...]:
        """Return the constants by id: arrays, and sticks as bytes."""
        return tuple(
            weight_of(str(number), constant)
            for number, constant in sorted(self.program.constants.items())
        )

    def with_weights(self, parts: Sequence[bytes]) -> "ProgramPlan":
        """Return the program with other constants of the same sizes."""
        pairs = zip(sorted(self.program.constants.items()), parts, strict=True)
        constants = {number: _refilled(constant, part) for (number, constant), part in pairs}
        changed = replace(self.program, constants=constants)
        return ProgramPlan(changed, self.guest, self.signature, self._load)

    def executor(self, shapes: Mapping[str, tuple[int, ...]]) -> ProgramRunner:
        """Return the executor of the program, which has one set of shapes."""
        del shapes
        return self._executor

    def retire(self) -> None:
        """Do nothing: the owner of the plan ends its processes."""


def weight_of(name: str, constant: Array | Ztensor) -> Weight:
    """Return a constant, sticks as bytes, as a tensor of the weights."""
    if isinstance(constant, Ztensor):
        sticks = constant.sticks
        return Weight(name, "uint8", sticks.shape, sticks.data)
    dense = np.ascontiguousarray(constant)
    raw = dense.reshape(-1).view(np.uint8)
    return Weight(name, dense.dtype.name, constant.shape, raw.data)


def _refilled(constant: Array | Ztensor, data: bytes) -> Array | Ztensor:
    if isinstance(constant, Ztensor):
        memory = page_memory(len(data))
        if memory is None:
            raise ModelRefused(f"weights: no storage for {len(data)} bytes")
        memory[:] = np.frombuffer(data, np.uint8)
        return replace(constant, buffer=memory)
    array: Array = np.frombuffer(data, constant.dtype).reshape(constant.shape)
    return array


def signature_of(data: bytes) -> str:
    """Return the signature of a model or program by its file's bytes."""
    return sha256(data).hexdigest()[:SIGNATURE_DIGITS]
