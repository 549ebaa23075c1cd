# SPDX-License-Identifier: Apache-2.0
"""Calls of MLI recorded as cases, as JSON and as headers of C."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import mli

from tests.client.mli.test_mli import FRAMES, cell_arguments, small


def recorded() -> list[mli.Case]:
    """Cases of several kinds: states, a slice, a conversion in place, a refusal, a number."""
    with mli.record() as cases:
        mli.krn_lstm_cell_fx8(**cell_arguments(FRAMES))
        x = mli.tensor(np.array([[1, -(2**31)]], np.int32), scale=3, zero_point=1)
        mli.hlp_subtensor(x, mli.SubTensorCfg((0, 1), (1, 1), 1))
        mli.hlp_convert_tensor(x, mli.empty((1, 2), mli.MLI_EL_FP_32))
        y = small((6,), np.int8, 4, 0)
        mli.krn_tanh_fx8(y, mli.shared(y))
        with pytest.raises(mli.MliError):
            mli.krn_tanh_fx16(y)
        mli.hlp_tensor_scale_shift(y)
    return cases


@pytest.mark.usefixtures("connection")
def test_cases_as_json() -> None:
    """A case holds the arguments, the expected results, and the tensors that share memory."""
    cases = [json.loads(mli.export_case(case)) for case in recorded()]
    assert [case["kernel"] for case in cases] == [
        "mli_krn_lstm_cell_fx8",
        "mli_hlp_subtensor",
        "mli_hlp_convert_tensor",
        "mli_krn_tanh_fx8",
        "mli_krn_tanh_fx16",
        "mli_hlp_tensor_scale_shift",
    ]
    lstm, _, convert, tanh, refused, number = cases
    arguments = cell_arguments(FRAMES)
    assert lstm["tensors"]["cell"]["data"] == arguments["cell"].array.tolist()
    states = mli.krn_lstm_cell_fx8(**arguments)
    expected = lstm["expected"]["tensors"]
    assert expected["out"]["data"] == states.array.ravel().tolist()
    assert expected["cell"]["data"] == arguments["cell"].array.tolist()
    assert lstm["arguments"]["cfg"] == {"mode": 1, "act": 1}
    bits = np.array(convert["expected"]["tensors"]["dst"]["data"], np.uint32)
    np.testing.assert_array_equal(bits.view(np.float32), np.array([0, -3 * 2.0**31], np.float32))
    assert tanh["tensors"]["out"]["same_memory_as"] == {"field": "in", "offset": 0}
    assert tanh["expected"]["tensors"]["out"]["data"] != tanh["tensors"]["in"]["data"]
    assert refused["expected"]["status_name"] == "MLI_STATUS_TYPE_MISMATCH"
    assert refused["expected"]["tensors"] == {}
    assert number["expected"]["number"] == 4


@pytest.mark.usefixtures("connection")
@pytest.mark.skipif(shutil.which("cc") is None, reason="compiles C: needs a compiler named cc")
def test_cases_as_c_headers(tmp_path: Path) -> None:
    """Headers compile without a warning as strict C99, together, and hold the numbers."""
    cases, lines = recorded(), list[str]()
    for index, case in enumerate(cases):
        (tmp_path / f"case_{index}.h").write_text(mli.export_case(case, "c", f"case_{index}"))
        lines.append(f'#include "case_{index}.h"')
    program = """
    #include <stdio.h>
    int main(void) {
      for (unsigned i = 0; i < sizeof case_0_expected_out_data; i++)
        printf("%d ", case_0_expected_out_data[i]);
      printf("%d %d %u %d\\n", case_4_status, case_5_number,
             (unsigned)case_2_expected_dst_data[1], (int)case_1_in_data[1]);
      return 0;
    }"""
    (tmp_path / "test.c").write_text("\n".join(lines) + program)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wno-unused-const-variable"]
    command = ["cc", *flags, "-Wno-unused-variable", "test.c", "-o", "test"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    answer = subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=True)
    floats = int(np.float32(-3 * 2.0**31).view(np.uint32))
    states = cases[0].after["out"].array.ravel().tolist()
    assert [int(number) for number in answer.stdout.split()] == [*states, 12, 4, floats, -(2**31)]


@pytest.mark.usefixtures("connection")
def test_names_of_headers_are_identifiers() -> None:
    """A name that C would not take is refused."""
    with mli.record() as cases:
        mli.hlp_tensor_element_size(mli.empty(1, mli.MLI_EL_FX_8))
    with pytest.raises(ValueError, match="must be an identifier of C"):
        mli.export_case(cases[0], "c", "1 case")


@pytest.mark.usefixtures("connection")
def test_cases_of_a_batch() -> None:
    """Cases of a batch hold each call's tensors as they were at its turn."""
    x = small((4,), np.int8, 4, 0)
    alone = mli.krn_tanh_fx8(x)
    with mli.record() as cases, mli.batch():
        mli.krn_sigm_fx8(mli.krn_tanh_fx8(x))
    assert cases[1].before["in"].array.tolist() == alone.array.tolist()
    assert cases[1].before["out"].rank == 0
    assert cases[1].after["out"].rank == 1
