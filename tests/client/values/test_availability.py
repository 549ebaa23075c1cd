# SPDX-License-Identifier: Apache-2.0
"""The client's table of functions and machines against the emulator's own."""

import inspect
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_client import ZdnnError, connect, zdnn
from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._values.availability import (
    FUNCTIONS,
    LIBRARIES,
    MACHINES,
    Answer,
    find_host,
    verdict,
)
from nnpa_emulator import FUNCTIONS as EMULATED
from nnpa_emulator import MACHINES as EMULATED_MACHINES
from nnpa_emulator import Guest, run
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.machine import LIBRARY_VERSIONS, Machine
from nnpa_emulator.status import ProgramCheck, Status
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc, Ztensor

from tests.client.conftest import Open

EXAMPLES = Path(__file__).parents[3] / "client/python/examples"
OPERATIONS = sorted(
    name for name, function in FUNCTIONS.items() if function.parmblk_format is not None
)
# Sizes that the machine compares with its limits are asked for by these, and only these.
LIMITED = sorted(name for name, function in FUNCTIONS.items() if function.needs_limits)


def _tensor() -> Ztensor:
    layout, form = DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE
    pre = TensorDesc(layout, form, DataTypes.FP32, 1, 1, 1, 1)
    tfrmd = TensorDesc(layout, form, DataTypes.ZDNN_DLFLOAT16, 1, 1, 1, 1)
    return Ztensor(pre, tfrmd, 4096, np.zeros(4096, np.uint8), False, 0.0, 0.0)


def _status(name: str, machine: str | Machine, scalar: float = 0) -> int | None:
    """Return the status of a call with operands of one element; None: the program ends."""
    guest = Guest(machine if isinstance(machine, Machine) else EMULATED_MACHINES[machine])
    arguments: dict[str, Any] = {}
    for parameter in EMULATED[name].parameters.values():
        if parameter.annotation is Ztensor:
            arguments[parameter.name] = _tensor()
        elif parameter.annotation in (float, float | None):
            arguments[parameter.name] = scalar
        elif parameter.default is inspect.Parameter.empty:
            arguments[parameter.name] = 0
    try:
        return run(guest, name, arguments).status
    except ProgramCheck:
        return None


def test_functions() -> None:
    """The table has every function that the emulator has."""
    assert EMULATED.keys() <= FUNCTIONS.keys()
    assert len(FUNCTIONS) == 69


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_facts(name: str) -> None:
    """Version, function code and parameter block format equal the emulator's."""
    function, emulated = FUNCTIONS[name], EMULATED.get(name)
    if emulated is None:
        assert function.code is None
        assert function.parmblk_format is None
        return
    assert function.since == emulated.since
    operation = emulated.operation
    if operation is None:
        assert function.code is None
        return
    assert function.parmblk_format == operation.parmblk_format
    assert function.code in (None, operation.code)


def test_machines() -> None:
    """Names, aliases, titles and parameter block formats equal the emulator's."""
    assert list(MACHINES) == list(EMULATED_MACHINES)
    for name, host in MACHINES.items():
        machine = EMULATED_MACHINES[name]
        assert (host.title, host.aliases) == (machine.title, machine.aliases)
        assert host.vector_nnp == machine.vector_nnp
        installed = {number for number in range(128) if machine.qaf.has_parmblk_format(number)}
        assert host.parmblk_formats == installed
    assert tuple(LIBRARY_VERSIONS) == LIBRARIES
    assert find_host("z16") is MACHINES["telum1"]


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str, machine: str) -> None:
    """An operation answers ZDNN_UNAVAILABLE_FUNCTION exactly where the table says no."""
    unavailable = _status(name, machine) == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert unavailable == (verdict(name, MACHINES[machine]).answer is Answer.NO)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("code", sorted(set(FunctionCode) - {FunctionCode.NNPA_QAF}))
def test_operations_of_a_machine_without_a_function(code: FunctionCode, machine: str) -> None:
    """On a machine without a function, operations are unavailable exactly where the table says."""
    emulated = customise(
        EMULATED_MACHINES[machine], Overrides(removed_functions=frozenset((int(code),)))
    )
    text = json.dumps({"base": machine, "removed_functions": [code.name]})
    host = find_machine(text)
    assert (host.name, host.model) == (emulated.name, machine)
    for name in set(OPERATIONS) - {"lstm", "gru"}:
        unavailable = _status(name, emulated) == Status.ZDNN_UNAVAILABLE_FUNCTION
        answer = verdict(name, host).answer
        assert answer is Answer.PARTLY or unavailable == (answer is Answer.NO), name


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("step", ["MATMUL_OP", "MATMUL_OP_BCAST23", "MATMUL_OP_BCAST1", "ACT"])
def test_layers_of_a_machine_without_a_step(server_target: str, name: str, step: str) -> None:
    """A layer of several functions runs exactly where the machine has all of them."""
    code = f"NNPA_{name.upper()}ACT" if step == "ACT" else f"NNPA_{step}"
    text = json.dumps({"removed_functions": [code]})
    run_example = runpy.run_path(str(EXAMPLES / f"{name}_forward.py"))["main"]
    unavailable = False
    with connect(server_target, text):
        try:
            run_example()
        except ZdnnError as error:
            unavailable = error.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION
    assert unavailable == (verdict(name, find_machine(text)).answer is Answer.NO)


def test_a_custom_machine_of_newer_formats() -> None:
    """A z16 with the format and the functions of a z17 runs the functions of a z17."""
    newer = sorted(EMULATED_MACHINES["telum2"].qaf.function_codes())
    text = {"base": "z16", "parmblk_formats_mask": 3 << 30, "added_functions": newer}
    host = find_machine(json.dumps(text))
    for name in FUNCTIONS:
        assert verdict(name, host) == verdict(name, MACHINES["telum2"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_scalars_on_z15(name: str) -> None:
    """A float parameter ends the program on a z15 exactly where the table says so."""
    ends = _status(name, "z15", 1.0) is None
    assert ends == ("ends the program" in verdict(name, MACHINES["z15"]).reason)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_libraries(name: str, library: str) -> None:
    """On a machine with all functions, a function runs since the library that introduced it."""
    missing = verdict(name, MACHINES["telum2"], library).answer is Answer.NO
    assert missing == (LIBRARY_VERSIONS[FUNCTIONS[name].since] > LIBRARY_VERSIONS[library])


@pytest.mark.parametrize("machine", ["z15", "telum1-nonnpa"])
def test_limits_without_nnpa(open_session: Open, machine: str) -> None:
    """Allocation compares with limits that are 0 without NNPA; the query is unavailable."""
    session = open_session(machine)
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 1)
    for function in ("init_ztensor_with_malloc", "refresh_nnpa_query_result"):
        assert verdict(function, MACHINES[machine]).answer is Answer.NO
    with pytest.raises(ZdnnError) as caught:
        session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    assert caught.value.status == zdnn.ZDNN_UNSUPPORTED_AIU_EXCEPTION
    with pytest.raises(ZdnnError) as caught:
        session.refresh_nnpa_query_result()
    assert caught.value.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION


@pytest.mark.parametrize("name", LIMITED)
def test_limited_functions_without_nnpa(name: str) -> None:
    """Functions that compare sizes answer ZDNN_UNSUPPORTED_AIU_EXCEPTION without NNPA."""
    assert verdict(name, MACHINES["telum2-nonnpa"]).answer is Answer.NO
    if name in EMULATED and name != "transform_origtensor":
        status = _status(name, "telum2-nonnpa")
        assert status == Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION


@pytest.mark.parametrize(
    ("stacks_a", "stacks_b", "stacks_c", "comparison", "on_telum1"),
    [
        (2, 2, 2, False, True),
        (2, 2, 2, True, True),
        (2, 1, 1, False, True),
        (2, 1, 1, True, False),
        (1, 2, 2, False, False),
        (1, 2, 2, True, False),
    ],
)
def test_matmul_bcast_op_on_telum1(
    open_session: Open,
    stacks_a: int,
    stacks_b: int,
    stacks_c: int,
    comparison: bool,
    on_telum1: bool,
) -> None:
    """On Telum I the broadcast product runs in the forms that the table names, and in no other."""
    assert verdict("matmul_bcast_op", MACHINES["telum1"]).answer is Answer.PARTLY
    session = open_session("telum1")
    a = session.ztensor(np.ones((stacks_a, 2, 3), np.float32), zdnn.ZDNN_3DS)
    b = session.ztensor(np.ones((stacks_b, 3, 4), np.float32), zdnn.ZDNN_3DS)
    c = session.ztensor(np.ones((stacks_c, 4), np.float32), zdnn.ZDNN_2DS)
    op_type = zdnn.MATMUL_BCAST_OP_GREATER if comparison else zdnn.MATMUL_BCAST_OP_ADDITION
    expected = np.full((2, 2, 4), 1 if comparison else 4, np.float32)
    if on_telum1:
        result = zdnn.matmul_bcast_op(a, b, c, op_type).numpy()
        np.testing.assert_array_equal(result, expected)
        return
    with pytest.raises(ZdnnError) as caught:
        zdnn.matmul_bcast_op(a, b, c, op_type)
    assert caught.value.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION
