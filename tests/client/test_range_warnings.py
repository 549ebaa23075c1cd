# SPDX-License-Identifier: Apache-2.0
"""Warnings of values beyond the range of DLFLOAT16, and warnings as errors."""

import subprocess
import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nnpa_client import (
    Session,
    Status,
    ZdnnWarning,
    zdnn,
)
from nnpa_client.rnn import lstm_gates

from tests.client.conftest import Open


def test_warning_carries_the_violation(session: Session) -> None:
    """A range violation warns, names op, operand, index, bits and source, at the caller's line."""
    ztensor = session.ztensor(np.array([1, -2, 3], np.float32))
    with pytest.warns(ZdnnWarning) as caught:
        out = zdnn.log(ztensor)
    warning = caught[0].message
    assert isinstance(warning, ZdnnWarning)
    assert warning.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert warning.op == "log"
    assert warning.violation is not None
    assert list(warning.violation.operands[0].elements[0].index) == [0, 0, 0, 1]
    assert "output: 1 not numbers, first at [0, 0, 0, 1]: 0xFFFF from -2" in str(warning)
    assert caught[0].filename == __file__
    assert out.is_transformed


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)])
@pytest.mark.parametrize("shape", [(2, 3), (48, 70), (640, 3000)])
def test_values_beyond_the_range_are_told_as_they_enter(
    open_session: Open, machine: str, dtype: np.dtype[Any], shape: tuple[int, int]
) -> None:
    """A transform warns of finite values beyond the range: their number, places, and the first."""
    values = np.ones(shape, dtype)
    values[1, 0], values[1, 2] = 1e12, -9e9
    session = open_session(machine=machine)
    for _ in range(2):
        with pytest.warns(ZdnnWarning) as records:
            ztensor = session.ztensor(values)
        (warning,) = [record.message for record in records]
        assert isinstance(warning, ZdnnWarning)
        assert warning.violation is not None
        (operand,) = warning.violation.operands
        first = operand.elements[0]
        assert (operand.operand, operand.count) == ("data", 2)
        assert (list(first.index), first.code) == ([0, 0, 1, 0], 0x7FFF)
        assert first.operand_values == [values[1, 0].astype(np.float32)]
        assert "data: 2 not numbers, first at [0, 0, 1, 0]: 0x7FFF from 1" in str(warning)
        cells = ztensor.buffer
        assert cells is not None
        assert cells.view(np.uint16)[64:67].tolist() == [0x7FFF, 0x3E00, 0xFFFF]


def test_values_beyond_the_range_in_a_pipeline_and_of_gates(session: Session) -> None:
    """A queued transform, and a transform of gates, warn as well."""
    entered = r"data: 1 not numbers, first at \[0, 0, 0, 1\]: 0x7FFF from 1e\+10"
    with pytest.warns(ZdnnWarning, match=entered), session.pipeline():
        session.ztensor(np.array([1, 1e10], np.float32))
    plain, beyond = np.ones((2, 1, 2, 3), np.float32)
    beyond[0, 1, 2] = -1e30
    with pytest.warns(ZdnnWarning, match=r"data\[2\]: 1 not numbers, .*: 0xFFFF from -1e\+30"):
        lstm_gates(
            session, zdnn.USAGE_WEIGHTS, forget=plain, input=plain, cell=beyond, output=plain
        )


def test_the_range_ends_where_it_ends(session: Session) -> None:
    """The greatest value enters without a warning, the next of FP32 with one."""
    greatest = np.float32(8573157376)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.ztensor(np.array([greatest, -greatest]))
    with pytest.warns(ZdnnWarning, match="from 8.58"):
        session.ztensor(np.array([8581545984], np.float32))


def test_warnings_as_errors(session: Session) -> None:
    """Under `-W error` a range violation is raised, and the output exists nevertheless."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 3)
    out = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    ztensor = session.ztensor(np.array([1, -2, 3], np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZdnnWarning, match="zdnn_log"):
            zdnn.log(ztensor, out)
    assert out.is_transformed


def test_dash_w_error_names_the_op(server_target: str) -> None:
    """`python -W error` fails with the name of the op that violated the range."""
    program = (
        "import numpy as np\nfrom nnpa_client import connect, zdnn\n"
        f"with connect({server_target!r}) as s: zdnn.log(s.ztensor(-np.ones(3, np.float32)))"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert "ZdnnWarning: zdnn_log: ZDNN_ELEMENT_RANGE_VIOLATION" in ended.stderr
