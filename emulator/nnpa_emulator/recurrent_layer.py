# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as calls: shapes, the library's checks, and the instructions' own.

A layer is composed of instructions, and each is checked when it is its turn: with precheck by the
verifier of its operation, then by the machine. `ops.recurrent` says which and in what shapes.
Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; zDNN library behaviour.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from nnpa_emulator.checks import Operands, require_dim, require_fields
from nnpa_emulator.engines.matmul import place_of
from nnpa_emulator.instruction import (
    Alignment,
    Arguments,
    Operation,
    require_operands,
    require_storage,
)
from nnpa_emulator.pipeline import FUNCTIONS, Call
from nnpa_emulator.recurrent_activation import ACTIVATIONS, LSTM
from nnpa_emulator.status import ProgramCheck, Refusal, Refused, Status
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    padded,
)

FWD, BWD, BIDIR = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Layer:
    """The tensors of one call, and the sizes that everything else has to fit."""

    gates: int
    direction: int
    tensors: dict[str, Ztensor]

    @property
    def timesteps(self) -> int:
        """Length of the sequence."""
        return self.tensors["input"].transformed_desc.dim4

    @property
    def batch(self) -> int:
        """Rows of one timestep."""
        return self.tensors["input"].transformed_desc.dim2

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return self.tensors["h0"].transformed_desc.dim1

    @property
    def width(self) -> int:
        """Columns of the concatenated gates."""
        return self.gates * padded(self.hidden)

    @property
    def state(self) -> str:
        """The tensor that the activation carries on."""
        return "c0" if self.gates == LSTM else "h0"

    @property
    def outputs(self) -> dict[str, str]:
        """Results of the activation by their tensors here."""
        return {"h": "hn_output", "c": "cf_output"} if self.gates == LSTM else {"h": "hn_output"}

    @property
    def every_step(self) -> bool:
        """Whether hn_output has a place for every timestep."""
        return self.tensors["hn_output"].transformed_desc.dim4 == self.timesteps

    def with_outputs_as_written(self) -> "Layer":
        """Return the layer with outputs described by its inputs, as the instructions get them.

        The library reads of them only the buffers, and dim4 of hn_output.
        """
        width = 2 * padded(self.hidden) if self.direction == BIDIR else self.hidden
        tensors = dict(self.tensors)
        for name in self.outputs.values():
            every_step = name == "hn_output" and self.every_step
            desc = _work_desc(self.timesteps if every_step else 1, 1, self.batch, width)
            output = tensors[name]
            tensors[name] = Ztensor(output.pre_transformed_desc, desc, buffer=output.buffer)
        return Layer(self.gates, self.direction, tensors)


def verify(layer: Layer) -> None:
    """Check as the library does with precheck; the docstrings of lstm and gru have the numbers."""
    label = map("c{}".format, count(3))
    t = layer.tensors
    cells = [name for name in ("c0", "cf_output") if name in t]
    source, h0 = t["input"].transformed_desc, t["h0"].transformed_desc
    require_timesteps(layer)
    hn = t["hn_output"].transformed_desc.dim4
    if hn not in (source.dim4, 1):
        field = "hn_output.transformed_desc.dim4"
        raise Refused(Status.ZDNN_INVALID_SHAPE, field, hn, f"{source.dim4} or 1", "c2")
    _require(layer, 2, source.dim2, "input.dim2", ["h0", "hn_output", *cells], next(label))
    _require(layer, 2, source.dim1, "input.dim1", ["weights"], next(label))
    matrices = ["input", "h0", *_CONCATENATED, "hn_output", *cells]
    _require(layer, 3, 1, "", matrices, next(label))
    _require(layer, 2, 1, "", ["biases", "hidden_biases"], next(label))
    _require(layer, 4, h0.dim4, "h0.dim4", [*_CONCATENATED, *cells[:1]], next(label))
    directions = 2 if layer.direction == BIDIR else 1
    _require(layer, 4, directions, "direction", ["h0"], next(label))
    side = 2 * padded(h0.dim1) if h0.dim4 == 2 else h0.dim1
    _require(layer, 1, side, "h0", ["hn_output", *cells[1:]], next(label))
    _require(layer, 1, layer.width, "padded gates", _CONCATENATED, next(label))
    if cells:
        _require(layer, 1, h0.dim1, "h0.dim1", ["c0"], next(label))
    _require(layer, 2, h0.dim1, "h0.dim1", ["hidden_weights"], next(label))
    operands: Operands = {name: t[name] for name in matrices[1:]}
    require_fields(source.type, source.format, operands, next(label), next(label))


_CONCATENATED = ["weights", "biases", "hidden_weights", "hidden_biases"]
SLICED = ("h0", "c0", *_CONCATENATED)


def _require(
    layer: Layer, dimension: int, size: int, source: str, names: list[str], label: str
) -> None:
    require_dim(dimension, size, source, {name: layer.tensors[name] for name in names}, label)


def require_timesteps(layer: Layer) -> None:
    """Check that there is a sequence; the library would divide by its length."""
    if layer.timesteps == 0:
        field = "input.transformed_desc.dim4"
        raise Refused(Status.ZDNN_INVALID_SHAPE, field, 0, "at least 1", "c1")


def require_direction(layer: Layer) -> None:
    """Check the direction, as the library does while it works: the docstrings' last two numbers."""
    first = 15 if layer.gates == LSTM else 14
    if layer.direction not in (FWD, BWD, BIDIR):
        limit = "FWD (0), BWD (1) or BIDIR (2)"
        status = Status.ZDNN_INVALID_DIRECTION
        raise Refused(status, "direction", layer.direction, limit, f"c{first}")
    if layer.direction != BIDIR:
        return
    for name in SLICED:
        if name in layer.tensors and layer.tensors[name].transformed_desc.dim4 < 2:
            dim4 = layer.tensors[name].transformed_desc.dim4
            field, label = f"{name}.transformed_desc.dim4", f"c{first + 1}"
            raise Refused(Status.ZDNN_INVALID_SHAPE, field, dim4, "2 for BIDIR", label)


@lru_cache(maxsize=1024)
def _work_desc(*dims: int) -> TensorDesc:
    """Describe a tensor of the work area."""
    d4, d3, d2, d1 = dims
    fmt, kind = DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_DLFLOAT16
    return TensorDesc(DataLayouts.ZDNN_NHWC, fmt, kind, d4, d3, d2, d1)


def _work(*dims: int) -> Ztensor:
    desc = _work_desc(*dims)
    return Ztensor(desc, desc)


def slice_of(layer: Layer, name: str, half: int) -> Ztensor:
    """Return the part of a tensor that one direction works with: one of two along dim4."""
    tensor = layer.tensors[name]
    if layer.direction != BIDIR:
        return tensor
    desc = replace(tensor.transformed_desc, dim4=1)
    first = half * place_of(tensor.transformed_desc, (0, 1))[1] * 2
    buffer = None if tensor.buffer is None else tensor.buffer[first:]
    return Ztensor(tensor.pre_transformed_desc, desc, buffer=buffer)


def _side(layer: Layer, name: str) -> Ztensor:
    """Return an output as one activation sees it: one timestep, one direction."""
    tensor = layer.tensors[name]
    desc = _work_desc(1, 1, layer.batch, layer.hidden)
    return Ztensor(tensor.pre_transformed_desc, desc, buffer=tensor.buffer)


# What the operands of each instruction are called here.
_PRODUCT = ("input_a", "input_b", "input_c", "output")
_NAMES: dict[str, dict[str, str]] = {
    "matmul_bcast_op": dict(zip(_PRODUCT, ("input", "weights", "biases", "fused"), strict=True)),
    "matmul_op": dict(
        zip(_PRODUCT, ("h0", "hidden_weights", "hidden_biases", "added"), strict=True)
    ),
    "activation": {"h": "hn_output", "c": "cf_output", "state": "c0 or h0"},
}


@dataclass(frozen=True, slots=True)
class Direction:
    """One pass over the sequence: its slices of the operands, and the checks of instructions."""

    call: Call
    layer: Layer
    half: int
    tensors: dict[str, Ztensor]

    def check_product(self, name: str) -> None:
        """Check the product that an entry of the table issues."""
        if self.call.checked:
            return
        layer, names = self.layer, _NAMES[name]
        operands = {operand: self.tensors[mine] for operand, mine in list(names.items())[:3]}
        stacks = layer.timesteps if name == "matmul_bcast_op" else 1
        result = _work(stacks, 1, layer.batch, layer.width)
        definition = FUNCTIONS[name].operation
        if definition is None:
            raise LookupError(f"{name} is not an operation")
        self._check(name, definition, {**operands, "op_type": 0, "output": result})
        for operand, tensor in operands.items():
            require_storage(names[operand], tensor)

    def check_activation(self) -> None:
        """Check LSTMACT or GRUACT; gates are nowhere but in a step, and without storage."""
        if self.call.checked:
            return
        layer = self.layer
        gates, state = (layer.gates, 1, layer.batch, layer.hidden), self.tensors[layer.state]
        operands = {"fused": _work(*gates), "added": _work(*gates), "state": state}
        operands |= {operand: _side(layer, mine) for operand, mine in layer.outputs.items()}
        self._check("activation", ACTIVATIONS[layer.gates], operands)
        require_storage(layer.state, state)
        for name in layer.outputs.values():
            require_storage(name, layer.tensors[name])

    def _check(self, name: str, definition: Operation, arguments: Arguments) -> None:
        """Check one instruction; a refusal names this function's operands."""
        guest, addresses = self.call.guest, self.call.alignment
        misaligned = addresses.buffer_misaligned or addresses.work_area_misaligned
        alignment = Alignment(buffer_misaligned=misaligned)
        try:
            if guest.precheck:
                definition.verify(**arguments)
            require_operands(guest.machine, alignment, definition, arguments)
        except Refused as refused:
            renamed = _renamed(name, refused.refusal)
            raise Refused(
                renamed.status, renamed.field, renamed.value, renamed.limit, renamed.constraint
            ) from refused
        except ProgramCheck as check:
            raise ProgramCheck(check.kind, _renamed(name, check.refusal)) from check


def _renamed(name: str, refusal: Refusal) -> Refusal:
    """Put our operand and the instruction's name into the refusal of an instruction."""
    operand, dot, rest = refusal.field.partition(".")
    label = refusal.constraint
    label = f"{name}_{label}" if label.startswith("c") else label
    return replace(refusal, field=_NAMES[name].get(operand, operand) + dot + rest, constraint=label)
