# SPDX-License-Identifier: Apache-2.0
"""Calls that no honest program makes end with a status or a program check, and touch nothing else.

Buffers of these tests lie between protected pages: an access outside a buffer ends the process.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, Guest, Ztensor, run
from nnpa_emulator.prepared import prepare
from nnpa_emulator.status import Malformed, ProgramCheck, Status
from nnpa_emulator.ztensor import DataFormats, DataTypes, TensorDesc, getsize_ztensor

from tests.emulator.adversary import guarded
from tests.emulator.operands import guest

ROOT = Path(__file__).parents[2]
FEATURE, WEIGHTS = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS
PLAIN, BYTES = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8
HUGE = (1 << 32) - 1


def _tensor(*dims: int, fmt: int = FEATURE, kind: int = PLAIN, pages: int = 0) -> Ztensor:
    """Return a tensor of zeros that is transformed, with room for `pages` or for its sticks."""
    desc = TensorDesc(8, fmt, kind, *dims)
    buffer = guarded(4096 * pages or getsize_ztensor(desc))
    assert buffer is not None
    user = TensorDesc(8, 0, DataTypes.FP32, *dims)
    return Ztensor(user, desc, buffer.nbytes, buffer, is_transformed=True, rec_scale=1.0)


def _attack(first: int, count: int, timeout: float) -> dict[str, tuple[int, int]]:
    """Make calls in a separate process; count per function the calls, and those that computed."""
    command = [sys.executable, "-m", "tests.emulator.adversary", str(first), str(count)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"call {lines[-1]} ended the process: {done.stderr[-2000:]}"
    counts: dict[str, tuple[int, int]] = json.loads(lines[-1])
    return counts


def test_no_call_leaves_its_buffers() -> None:
    """Whatever descriptors and buffers claim, a call ends with an outcome or a program check."""
    counts = _attack(0, 2500, 300)
    computing = [name for name, entry in FUNCTIONS.items() if entry.tensors]
    assert all(counts[name][1] for name in computing), counts


def test_jitter_leaves_outputs_without_storage_alone() -> None:
    """A recurrent layer that ends with a warning before its output is reached jitters nothing."""
    assert tuple(_attack(1_047_540, 1, 100)["lstm"]) == (1, 1)


@pytest.mark.heavy
def test_no_call_of_many_leaves_its_buffers() -> None:
    """The same law for many more calls, of every function."""
    counts = _attack(1_000_000, 60_000, 1200)
    assert all(called for called, _ in counts.values()), counts


def _layer(direction: int, **changed: Ztensor) -> dict[str, Any]:
    """Return the arguments of an LSTM over one timestep, batch 40, 3 features, hidden size 4."""
    d = 2 if direction == 2 else 1
    width = 128 if direction == 2 else 4
    tensors = {
        "input": _tensor(1, 1, 40, 3), "h0": _tensor(d, 1, 40, 4), "c0": _tensor(d, 1, 40, 4),
        "weights": _tensor(d, 1, 3, 256), "biases": _tensor(d, 1, 1, 256),
        "hidden_weights": _tensor(d, 1, 4, 256), "hidden_biases": _tensor(d, 1, 1, 256),
        "hn_output": _tensor(1, 1, 40, width), "cf_output": _tensor(1, 1, 40, width),
    }  # fmt: skip
    return {**tensors, **changed, "direction": direction}


@pytest.mark.parametrize("output", ["hn_output", "cf_output"])
def test_an_output_without_a_backward_half_ends_the_program(output: str) -> None:
    """A BIDIR output as wide as h0 cannot hold both halves; nothing is written behind it."""
    narrow = _tensor(1, 1, 40, 4)
    with pytest.raises(ProgramCheck) as caught:
        run(guest(), "lstm", _layer(2, **{output: narrow}))
    assert caught.value.kind == "access"
    assert caught.value.refusal.field == f"{output}.buffer"
    assert caught.value.refusal.constraint == "pipeline_c11"


def test_both_halves_fit_where_there_are_two() -> None:
    """The same call with outputs as wide as both halves computes."""
    assert run(guest(), "lstm", _layer(2)).status == Status.ZDNN_OK


def _spoilt(output: Ztensor) -> Ztensor:
    """Return an output of the same buffer, described by rubbish but for its dim4."""
    dim4 = output.transformed_desc.dim4
    desc = TensorDesc(77, 77, 77, dim4, HUGE, 0, HUGE)
    return Ztensor(desc, desc, output.buffer_size, output.buffer)


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("direction", [0, 1, 2])
def test_outputs_of_layers_are_their_buffers(name: str, direction: int) -> None:
    """Without precheck outputs may be described by anything: the same bytes are written."""
    arguments = _layer(direction)
    if name == "gru":
        d = 2 if direction == 2 else 1
        del arguments["c0"], arguments["cf_output"]
        arguments |= {
            "weights": _tensor(d, 1, 3, 192), "hidden_weights": _tensor(d, 1, 4, 192),
            "biases": _tensor(d, 1, 1, 192), "hidden_biases": _tensor(d, 1, 1, 192),
        }  # fmt: skip
    arguments["biases"].sticks.view(np.uint16)[:] = 0x3A00
    outputs = [key for key in ("hn_output", "cf_output") if key in arguments]
    assert run(guest(), name, arguments).status == Status.ZDNN_OK
    right = {key: arguments[key].sticks.copy() for key in outputs}
    assert all(sticks.any() for sticks in right.values())
    spoilt = {key: _spoilt(arguments[key]) for key in outputs}
    for key in outputs:
        arguments[key].sticks[:] = 0
    assert run(guest(), name, arguments | spoilt).status == Status.ZDNN_OK
    assert all(spoilt[key].is_transformed for key in outputs)
    assert all(np.array_equal(spoilt[key].sticks, right[key]) for key in outputs)


def test_a_repeated_layer_finds_its_outputs_too_small() -> None:
    """A prepared call is repeated with a buffer that suits the description, not what is written."""
    program, narrow = guest(), _tensor(1, 1, 40, 4)
    roomy = _tensor(1, 1, 40, 4, pages=4)
    roomy.transformed_desc = narrow.transformed_desc
    arguments = _layer(2, hn_output=roomy)
    assert run(program, "lstm", arguments).status == Status.ZDNN_OK
    prepared = prepare(program, "lstm", arguments)
    assert prepared is not None
    with pytest.raises(ProgramCheck) as caught:
        prepared(program, arguments | {"hn_output": narrow})
    assert caught.value.kind == "access"


@pytest.mark.parametrize("wrong", ["small", "empty"])
def test_the_cell_state_is_looked_at_before_it_is_read(wrong: str) -> None:
    """Without precheck a c0 that is too small ends the program; nothing beyond it is read."""
    c0 = _tensor(1, 1, 40 if wrong == "empty" else 1, 4)
    if wrong == "empty":
        c0.buffer = None
    with pytest.raises(ProgramCheck) as caught:
        run(guest(), "lstm", _layer(0, c0=c0))
    assert caught.value.kind == ("access" if wrong == "empty" else "data")


@pytest.mark.parametrize(
    ("operand", "fmt", "kind"),
    [
        ("input_b", 0x102, 0x8),
        ("input_b", 0x2, 0x108),
        ("input_a", 0x100, 0x8),
        ("input_a", 0x0, 0x108),
    ],
)
def test_quantized_operands_have_numbers_of_one_byte(operand: str, fmt: int, kind: int) -> None:
    """A format or type whose low byte alone is one of INT8 sticks has no such sticks: F001."""
    tensors = {
        "input_a": _tensor(1, 1, 2, 64, kind=BYTES),
        "input_b": _tensor(1, 1, 64, 128, fmt=WEIGHTS, kind=BYTES),
        "input_c": _tensor(1, 1, 1, 128, kind=BYTES),
        "output": _tensor(1, 1, 2, 128),
    }
    dims = tensors[operand].transformed_desc.dims
    tensors[operand] = _tensor(*dims, fmt=fmt, kind=kind)
    scalars = {"op_type": 0, "clip_min": -128, "clip_max": 127, "disable_clipping": False,
               "dequantize": False, "pre_computed": False}  # fmt: skip
    outcome = run(guest(), "quantized_matmul_op", {**tensors, **scalars})
    assert outcome.status == Status.ZDNN_FUNC_RC_F001


def test_an_accepted_call_does_not_speak_for_another_order_of_operands() -> None:
    """Accepted descriptors are remembered by operand name, not by the order of the arguments."""
    program: Guest = guest()
    wide, narrow = _tensor(1, 1, 2, 4096), _tensor(1, 1, 2, 1)
    fitting = {"input_a": wide, "input_b": wide, "output": narrow}
    assert run(program, "norm", fitting).status == Status.ZDNN_OK
    turned = {"output": wide, "input_a": wide, "input_b": narrow}
    with pytest.raises(ProgramCheck):
        run(program, "norm", turned)


@pytest.mark.parametrize("name", ["add", "exp"])
def test_a_larger_output_buffer_does_not_make_inputs_longer(name: str) -> None:
    """A buffer with more room than its tensor is written, and inputs read, as far as tensors go."""
    output = _tensor(1, 1, 32, 64, pages=3)
    output.sticks[:] = 0x5A
    inputs = {
        operand_name: _tensor(1, 1, 32, 64)
        for operand_name in FUNCTIONS[name].tensors
        if operand_name != "output"
    }
    assert run(guest(), name, {**inputs, "output": output}).status == Status.ZDNN_OK
    assert np.all(output.sticks[4096:] == 0x5A)


def test_reshape_refuses_rows_that_are_not_there() -> None:
    """Transformed dims with unlike numbers of rows are malformed, whatever the user's dims say."""
    src, dest = _tensor(1, 1, 2, 8), _tensor(1, 1, 4, 8)
    dest.pre_transformed_desc, dest.is_transformed = src.pre_transformed_desc, False
    with pytest.raises(Malformed, match=r"dest\.transformed_desc\.dims is 4 rows"):
        run(guest(), "reshape_ztensor", {"src": src, "dest": dest})


@pytest.mark.parametrize("dims", [(HUGE, 1, 0, HUGE), (0, HUGE, HUGE, HUGE), (HUGE, HUGE, HUGE, 0)])
def test_tensors_without_elements_take_no_time(dims: tuple[int, int, int, int]) -> None:
    """With a dimension of 0 there is nothing to look at or to copy, however large the others are.

    The library checks no limits in these two functions.
    """
    empty = Ztensor(TensorDesc(8), TensorDesc(8, FEATURE, PLAIN, *dims), is_transformed=True)
    result = run(guest(), "getrange_ztensor", {"ztensor": empty})
    assert (result.status, result.value) == (Status.ZDNN_OK, (-0.0, 0.0))
    turned = empty.transformed_desc.with_dims((dims[1], dims[0], dims[2], dims[3]))
    for desc in (empty.transformed_desc, turned):
        dest = Ztensor(empty.pre_transformed_desc, desc)
        outcome = run(guest(), "reshape_ztensor", {"src": empty, "dest": dest})
        assert outcome.status == Status.ZDNN_OK
        assert dest.is_transformed
