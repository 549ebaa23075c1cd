# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: lstm and gru, which the library composes of matrix products and activations.

Symbols: ts timesteps, b batch, f features, s hidden size, S = s padded to whole sticks, g gates
(4 for LSTM: F, I, C, O; 3 for GRU: Z, R, H), d directions. Transformed shapes:

    input (ts,1,b,f)   h0, c0 (d,1,b,s)   hidden_weights (d,1,s,g*S)   weights (d,1,f,g*S)
    biases, hidden_biases (d,1,1,g*S)   hn_output (ts or 1,1,b,s), BIDIR (ts or 1,1,b,2*S)
    cf_output (1,1,b,s), BIDIR (1,1,b,2*S)

Per direction the library issues MATMUL_OP_BCAST23 once (fused = input * weights + biases), then for
each timestep MATMUL_OP (h * hidden_weights + hidden_biases) and LSTMACT or GRUACT; all in parameter
block format 0. Values are rounded at these points and at h and c, nowhere else.
A status other than ZDNN_OK of any of them ends the call, also a range violation: outputs keep what
was written and their is_transformed.
Without precheck nothing is read of outputs but their buffers, and whether dim4 of hn_output is that
of input: their other dims, types and formats may be anything.

Fidelity: as `matmul` for the products; the interior of the activation functions is not public and
is exact to 1e-10 here, h from the unrounded c.
"""

from nnpa_emulator.arith import explain_violation
from nnpa_emulator.engines.matmul import Range
from nnpa_emulator.engines.recurrent import (
    NOWHERE,
    FusedGates,
    Product,
    States,
    Whole,
    clear_padding,
)
from nnpa_emulator.instruction import Argument, require_storage
from nnpa_emulator.machine import FORMAT_0, FunctionCode, Guest
from nnpa_emulator.pipeline import (
    DEFAULT_ULPS,
    OK,
    Call,
    Descriptors,
    Outcome,
    function,
    require_facility,
)
from nnpa_emulator.recurrent_activation import ACTIVATIONS, GRU, LSTM
from nnpa_emulator.recurrent_layer import (
    BIDIR,
    BWD,
    FWD,
    SLICED,
    Direction,
    Layer,
    require_direction,
    require_timesteps,
    slice_of,
    verify,
)
from nnpa_emulator.reference import recurrent_layers as layers
from nnpa_emulator.reference.layout import Singles
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import DataLayouts, TensorDesc, Ztensor, padded


def _run_direction(direction: Direction, backward: bool) -> Outcome | None:
    """Take one direction through its sequence; return the outcome that ends the call, if any."""
    direction.check_product("matmul_bcast_op")
    whole = Whole(direction.tensors, direction.layer.gates)
    if direction.call.guest.accumulate == "fp64" or not whole.fits():
        return _run_by_steps(direction, backward)
    ended = whole.fuse()
    if ended == layers.GATES_VIOLATED:
        return _violation(FunctionCode.NNPA_MATMUL_OP_BCAST23, direction, *_FUSED)
    if ended == layers.COMPLETED:
        direction.check_product("matmul_op")
        outputs = tuple(direction.layer.tensors[name] for name in direction.layer.outputs.values())
        if not direction.call.checked:
            ended = whole.run(outputs, direction.half, backward, probing=True)
            if ended == layers.COMPLETED:
                direction.check_activation()
        if ended == layers.COMPLETED:
            ended = whole.run(outputs, direction.half, backward, probing=False)
    if ended == layers.PADDED:
        return _run_by_steps(direction, backward)
    return _ended(direction, ended)


def _ended(direction: Direction, ended: int) -> Outcome | None:
    """Return the outcome of a sequence that a range violation ended."""
    if ended == layers.GATES_VIOLATED:
        return _violation(FunctionCode.NNPA_MATMUL_OP, direction, *_ADDED)
    if ended == layers.STATES_VIOLATED:
        definition, layer = ACTIVATIONS[direction.layer.gates], direction.layer
        return _violation(definition.code, direction, layer.state, *layer.outputs.values())
    return None


_FUSED = "input", "weights", "biases"
_ADDED = "h0", "hidden_weights", "hidden_biases"


def _run_by_steps(direction: Direction, backward: bool) -> Outcome | None:
    """Run a direction step by step: with fp64 sums, large padding or huge sizes."""
    tensors, guest = direction.tensors, direction.call.guest
    size = direction.layer.hidden
    fused = FusedGates(guest, tensors["input"], tensors["weights"], tensors["biases"], size)
    if fused.violated():
        return _violation(FunctionCode.NNPA_MATMUL_OP_BCAST23, direction, *_FUSED)
    direction.check_product("matmul_op")
    weights, biases = tensors["hidden_weights"], tensors["hidden_biases"]
    hidden = Product(guest, weights, biases, size, "hidden")
    for rows in fused.row_spans:
        outcome = _run_rows(direction, fused, hidden, rows, backward)
        if outcome is not None:
            return outcome
    return None


def _run_rows(
    direction: Direction, fused: FusedGates, hidden: Product, rows: Range, backward: bool
) -> Outcome | None:
    """Take some rows of the batch through all timesteps; see `_run_by_steps`."""
    layer = direction.layer
    states = States(direction.tensors["h0"], rows, (fused.gate, hidden.gate))
    order = range(layer.timesteps)[:: -1 if backward else 1]
    for timestep in order:
        added, violated = hidden.rounded(states.h)
        if violated or states.any_ninf:
            return _violation(FunctionCode.NNPA_MATMUL_OP, direction, *_ADDED)
        if timestep == order[0] and rows[0] == 0:
            direction.check_activation()
            _clear_padding(direction)
        if timestep == order[0] and layer.gates == LSTM:
            states.take_cell(direction.tensors["c0"])
        gates = fused.read(rows, timestep), added
        if _step(direction, states, gates, timestep, timestep == order[-1]):
            return _ended(direction, layers.STATES_VIOLATED)
    return None


def _step(
    direction: Direction, states: States, gates: tuple[Singles, Singles], timestep: int, last: bool
) -> bool:
    """Make the step of a timestep and store h and c; tell whether one of them became NINF.

    Without a place for every step LSTM overwrites h, GRU stores the last; c stores the last.
    """
    layer, half = direction.layer, direction.half
    h = layer.tensors["hn_output"]
    slab = timestep if layer.every_step else 0
    if layer.gates != LSTM:
        stored = layer.every_step or last
        return states.gru(*gates, h, states.place(h, half, slab) if stored else NOWHERE)
    c = layer.tensors["cf_output"]
    places = states.place(h, half, slab), states.place(c, half, 0) if last else NOWHERE
    return states.lstm(*gates, h, places[0], c, places[1])


def _clear_padding(direction: Direction) -> None:
    layer = direction.layer
    for name in layer.outputs.values():
        output = layer.tensors[name]
        clear_padding(output, direction.half, padded(layer.hidden), layer.batch, layer.hidden)


def _violation(code: FunctionCode, direction: Direction, *names: str) -> Outcome:
    """Explain the range violation of an instruction by its operands."""
    named = {name: direction.tensors.get(name, direction.layer.tensors[name]) for name in names}
    inputs = tuple(name for name in names if name in direction.tensors)
    violation = explain_violation(code, named, inputs)
    return Outcome(Status.ZDNN_ELEMENT_RANGE_VIOLATION, violation=violation)


def _run(call: Call, layer: Layer) -> Outcome:
    """Take a call through its checks and both directions, in the library's order of events."""
    guest, described = call.guest, layer.tensors
    if not call.checked:
        _require(guest, layer)
    layer = layer.with_outputs_as_written()
    if call.checked:
        for name in layer.outputs.values():
            require_storage(name, layer.tensors[name])
    for half in _HALVES[layer.direction]:
        side = half if layer.direction == BIDIR else 0
        tensors = {name: slice_of(layer, name, side) for name in SLICED if name in layer.tensors}
        tensors["input"] = layer.tensors["input"]
        try:
            outcome = _run_direction(Direction(call, layer, side, tensors), half == 1)
        except MemoryError as error:
            status = Status.ZDNN_ALLOCATION_FAILURE
            limit = "at most the storage that is left: fewer timesteps or a smaller batch"
            raise Refused(status, "work area", "too large", limit) from error
        if outcome is not None:
            return outcome
    for name in layer.outputs.values():
        described[name].is_transformed = True
    return OK


_HALVES = {FWD: (0,), BWD: (1,), BIDIR: (0, 1)}


def _require(guest: Guest, layer: Layer) -> None:
    """Make the checks before the first instruction."""
    if guest.precheck:
        verify(layer)
    if not guest.cached.has_parmblk_format(FORMAT_0):
        require_facility(guest, FunctionCode.NNPA_MATMUL_OP_BCAST23, FORMAT_0)
    require_timesteps(layer)
    require_direction(layer)


def _infer(
    h0: Ztensor, input: Ztensor, direction: int, all_timesteps: bool = False, **_arguments: object
) -> Descriptors:
    """Describe a hidden state of all timesteps or of the last."""
    h0_desc, pre = h0.transformed_desc, h0.pre_transformed_desc
    timesteps = input.transformed_desc.dim4 if all_timesteps else 1
    batch, hidden = h0_desc.dim2, h0_desc.dim1
    directions = 2 if direction == BIDIR else 1
    width = 2 * padded(hidden) if direction == BIDIR else hidden
    user = TensorDesc(DataLayouts.ZDNN_4DS, 0, pre.type, timesteps, directions, batch, hidden)
    return user, h0_desc.with_dims((timesteps, 1, batch, width))


def _infer_lstm(**arguments: Argument) -> tuple[Descriptors, ...]:
    last: dict[str, Argument] = {**arguments, "all_timesteps": False}
    return _infer(**arguments), _infer(**last)


def _infer_gru(**arguments: Argument) -> tuple[Descriptors, ...]:
    return (_infer(**arguments),)


@function("1.0.0", outputs=("hn_output", "cf_output"), infer=_infer_lstm, ulps=DEFAULT_ULPS)
def lstm(
    call: Call,
    input: Ztensor,
    h0: Ztensor,
    c0: Ztensor,
    weights: Ztensor,
    biases: Ztensor,
    hidden_weights: Ztensor,
    hidden_biases: Ztensor,
    direction: int,
    hn_output: Ztensor,
    cf_output: Ztensor,
) -> Outcome:
    """Run a long short-term memory layer: gates F, I, C, O.

    F, I, O are sigmoids and C a tanh of x + y, input's and hidden gate sums; c = F*c + I*C and
    h = O*tanh(c). direction is FWD 0, BWD 1 or BIDIR 2. hn_output holds every timestep, in the
    order of the input, if it has the dim4 of input; else the timestep processed last. In BIDIR the
    forward half is hn[..., 0:s], the backward half hn[..., S:S+s]. Shapes as in the module.

    1. input has a timestep, else ZDNN_INVALID_SHAPE, with precheck or without (where the zDNN
       library divides by zero).
    2. hn_output has the dim4 of input, or 1, else ZDNN_INVALID_SHAPE.
    3. h0, hn_output, c0, then cf_output has the dim2 of input, else ZDNN_INVALID_SHAPE.
    4. dim2 of weights is dim1 of input, else ZDNN_INVALID_SHAPE.
    5. dim3 of all tensors is 1, else ZDNN_INVALID_SHAPE.
    6. dim2 of biases and hidden_biases is 1, else ZDNN_INVALID_SHAPE.
    7. weights, biases, hidden_weights, hidden_biases and c0 have the dim4 of h0, else
       ZDNN_INVALID_SHAPE.
    8. dim4 of h0 is 2 for BIDIR, else 1; if not ZDNN_INVALID_SHAPE.
    9. dim1 of hn_output and cf_output is s, or 2*S when dim4 of h0 is 2, else ZDNN_INVALID_SHAPE.
    10. dim1 of weights, biases, hidden_weights, hidden_biases is 4*S, else ZDNN_INVALID_SHAPE.
    11. dim1 of c0 is s, else ZDNN_INVALID_SHAPE.
    12. dim2 of hidden_weights is s, else ZDNN_INVALID_SHAPE.
    13. All others have the type of input, else ZDNN_INVALID_TYPE.
    14. The same of formats, each tested after the type of its tensor, else ZDNN_INVALID_FORMAT.
    15. direction is known, else ZDNN_INVALID_DIRECTION, with precheck or without.
    16. For BIDIR every tensor that has a dim4 for directions has 2, else ZDNN_INVALID_SHAPE, with
        precheck or without.

    Then each instruction is checked when it is its turn; a refusal names its constraint, such as
    matmul_bcast_op_c5. Limits of the machine bind the gates: 4*S may not exceed its largest dim1.

    Source: zDNN API Reference 1.2.0, zdnn_lstm (which says "Since 1.1.0"; the function is in
    1.0.0); the order of events is the zDNN library's.
    """
    tensors = {
        "input": input, "h0": h0, "c0": c0, "weights": weights, "biases": biases,
        "hidden_weights": hidden_weights, "hidden_biases": hidden_biases,
        "hn_output": hn_output, "cf_output": cf_output,
    }  # fmt: skip
    return _run(call, Layer(LSTM, direction, tensors))


@function("1.0.0", outputs=("hn_output",), infer=_infer_gru, ulps=DEFAULT_ULPS)
def gru(
    call: Call,
    input: Ztensor,
    h0: Ztensor,
    weights: Ztensor,
    biases: Ztensor,
    hidden_weights: Ztensor,
    hidden_biases: Ztensor,
    direction: int,
    hn_output: Ztensor,
) -> Outcome:
    """Run a gated recurrent unit layer: gates Z, R, H, reset after the linear part.

    Z and R are sigmoids of x + y, input's and hidden gate sums, H = tanh(x + R*y), and
    h = (1-Z)*H + Z*h. direction and hn_output as for lstm.

    1. input has a timestep, else ZDNN_INVALID_SHAPE, with precheck or without (where the zDNN
       library divides by zero).
    2. hn_output has the dim4 of input, or 1, else ZDNN_INVALID_SHAPE.
    3. h0, then hn_output has the dim2 of input, else ZDNN_INVALID_SHAPE.
    4. dim2 of weights is dim1 of input, else ZDNN_INVALID_SHAPE.
    5. dim3 of all tensors is 1, else ZDNN_INVALID_SHAPE.
    6. dim2 of biases and hidden_biases is 1, else ZDNN_INVALID_SHAPE.
    7. weights, biases, hidden_weights and hidden_biases have the dim4 of h0, else
       ZDNN_INVALID_SHAPE.
    8. dim4 of h0 is 2 for BIDIR, else 1; if not ZDNN_INVALID_SHAPE.
    9. dim1 of hn_output is s, or 2*S when dim4 of h0 is 2, else ZDNN_INVALID_SHAPE.
    10. dim1 of weights, biases, hidden_weights, hidden_biases is 3*S, else ZDNN_INVALID_SHAPE.
    11. dim2 of hidden_weights is s, else ZDNN_INVALID_SHAPE.
    12. All others have the type of input, else ZDNN_INVALID_TYPE.
    13. The same of formats, each tested after the type of its tensor, else ZDNN_INVALID_FORMAT.
    14. direction is known, else ZDNN_INVALID_DIRECTION, with precheck or without.
    15. For BIDIR every tensor that has a dim4 for directions has 2, else ZDNN_INVALID_SHAPE, with
        precheck or without.

    Then each instruction is checked when it is its turn, as for lstm.

    Source: zDNN API Reference 1.2.0, zdnn_gru (which says "Since 1.1.0"; the function is in 1.0.0);
    the order of events is the zDNN library's.
    """
    tensors = {
        "input": input, "h0": h0, "weights": weights, "biases": biases,
        "hidden_weights": hidden_weights, "hidden_biases": hidden_biases, "hn_output": hn_output,
    }  # fmt: skip
    return _run(call, Layer(GRU, direction, tensors))
