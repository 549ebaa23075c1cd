# SPDX-License-Identifier: Apache-2.0
"""State of tensors, flags and guest after a call, whichever way the call ends."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import (
    FUNCTIONS,
    Alignment,
    NotInLibrary,
    ProgramCheck,
    Status,
    Ztensor,
    run,
    stick,
)
from nnpa_emulator.pipeline import Call, Outcome, function
from nnpa_emulator.ztensor import DataTypes

from tests.emulator.operands import blank, cells, guest, tensor, values

DIMS = (1, 2, 33, 65)


def arguments(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a right call of add, with changes."""
    array = np.full(DIMS, 1.5)
    return {"input_a": values(array), "input_b": values(array), "output": blank(DIMS)} | changes


def test_inputs_are_not_written() -> None:
    """A call changes neither sticks nor structure of its inputs, nor the output's descriptors."""
    call_arguments = arguments()
    before = {
        name: (item.sticks.copy(), item.transformed_desc) for name, item in call_arguments.items()
    }
    assert run(guest(), "add", call_arguments).status == Status.ZDNN_OK
    for name in ("input_a", "input_b"):
        assert np.array_equal(call_arguments[name].sticks, before[name][0])
    assert all(call_arguments[name].transformed_desc is before[name][1] for name in call_arguments)


@pytest.mark.parametrize("precheck", [True, False])
def test_refused_calls_leave_the_output_alone(precheck: bool) -> None:
    """A refused call and a program check write nothing and do not mark the output."""
    call_arguments = arguments(output=blank((1, 2, 33, 64)))
    before = call_arguments["output"].sticks.copy()
    mine = guest(precheck=precheck)
    if precheck:
        assert run(mine, "add", call_arguments).status == Status.ZDNN_INVALID_SHAPE
    else:
        with pytest.raises(ProgramCheck):
            run(mine, "add", call_arguments)
    assert np.array_equal(call_arguments["output"].sticks, before)
    assert not call_arguments["output"].is_transformed


def test_the_guest_outlives_a_program_check() -> None:
    """After a program check the same guest goes on."""
    mine = guest()
    with pytest.raises(ProgramCheck):
        run(mine, "add", arguments(output=blank((1, 2, 33, 64))))
    assert run(mine, "add", arguments()).status == Status.ZDNN_OK


def test_warnings_mark_the_output() -> None:
    """A range violation is a warning: the output is written, marked, and the outcome valid."""
    codes = np.full(DIMS, 0x3E00, np.uint16)
    codes[0, 0, 0, 0] = 0x7FFF
    call_arguments = arguments(input_a=tensor(codes))
    outcome = run(guest(), "add", call_arguments)
    assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert outcome.valid
    assert outcome.refusal is None
    assert call_arguments["output"].is_transformed


def test_operations_do_not_touch_the_flags() -> None:
    """Operations leave the thread's IEEE flags alone, conversions tell which they raise."""
    assert run(guest(), "add", arguments()).fp_flags is None
    ztensor = arguments()["input_a"]
    ztensor.pre_transformed_desc = ztensor.transformed_desc.with_dims(DIMS)
    assert run(guest(), "reset_ztensor", {"ztensor": ztensor}).fp_flags is None


def test_in_place() -> None:
    """An output that is also an input holds the right result."""
    ztensor = values(np.full(DIMS, 1.5))
    call_arguments = {"input_a": ztensor, "input_b": ztensor, "output": ztensor}
    assert run(guest(), "add", call_arguments).status == Status.ZDNN_OK
    assert np.all(cells(ztensor) == 0x4100)


def test_save_area_is_read_by_its_functions_only() -> None:
    """A misaligned save area does not matter to a function that has none."""
    outcome = run(guest(), "add", arguments(), Alignment(save_area_misaligned=True))
    assert outcome.status == Status.ZDNN_OK


def test_library_comes_first() -> None:
    """A function that the library lacks does not exist, whatever else is wrong with the call."""
    mine = guest("z15")
    mine.library = "1.0.0"
    broken = blank((0, 0, 0, 0), kind=DataTypes.FP32)
    with pytest.raises(NotInLibrary, match="zdnn_sqrt"):
        run(mine, "sqrt", {"input": broken, "output": broken})


def test_unknown_functions() -> None:
    """A name outside the table is no function."""
    with pytest.raises(KeyError, match="convolve"):
        run(guest(), "convolve", {})


def test_functions_are_defined_once() -> None:
    """A second definition of a name is refused, and the first one stays."""
    first = FUNCTIONS["reset_ztensor"]

    def reset_ztensor(call: Call, ztensor: Ztensor) -> Outcome:
        """Do nothing."""
        return Outcome(value=bool(call.guest.precheck and ztensor.is_transformed))

    with pytest.raises(ValueError, match="reset_ztensor is defined twice"):
        function()(reset_ztensor)
    assert FUNCTIONS["reset_ztensor"] is first


def test_only_low_bits_of_formats_reach_the_machine() -> None:
    """The machine sees one byte of format and type, the library's precheck whole numbers."""
    for field in ("format", "type"):
        call_arguments = arguments()
        for ztensor in call_arguments.values():
            desc = ztensor.transformed_desc
            ztensor.transformed_desc = type(desc)(
                **{key: getattr(desc, key) for key in ("layout", "dim4", "dim3", "dim2", "dim1")},
                **{field: 256},
            )
        assert run(guest(precheck=True), "add", call_arguments).status == Status.ZDNN_OK


def _jittered(seed: int, line: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the codes of exp on a guest that jitters."""
    output = blank(DIMS)
    mine = guest()
    mine.numerics, mine.jitter_seed = "jitter", seed
    run(mine, "exp", {"input": values(line), "output": output})
    return stick.read_cells(output.sticks, output.transformed_desc).astype(np.int64)


def test_jitter_stays_within_the_tolerance_and_repeats() -> None:
    """Jitter moves results by at most eight units, some of them, and a seed repeats its moves."""
    line = np.linspace(-4, 4, 2 * 33 * 65).reshape(DIMS)
    output = blank(DIMS)
    run(guest(), "exp", {"input": values(line), "output": output})
    exact = stick.read_cells(output.sticks, output.transformed_desc).astype(np.int64)
    moves = np.abs(_jittered(1, line) - exact)
    assert 0 < moves.max() <= 8
    assert np.array_equal(_jittered(1, line), _jittered(1, line))
    assert not np.array_equal(_jittered(1, line), _jittered(2, line))
