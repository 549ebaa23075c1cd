# SPDX-License-Identifier: Apache-2.0
"""Calls that the machine refuses end as there, and a line on stderr says why."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

SOURCE = Path(__file__).parent / "programs/refused.c"
EXCEEDS_MDIS = "000c0012\n"
"""The response code of a tensor with a dimension of 0, which the machine finds in zeros."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(prefix: Prefix, server: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs the program, with variables of the library."""
    program = tmp_path_factory.mktemp("refused") / "refused"
    toolchain.compiled(SOURCE, program, prefix, "-std=gnu11")

    def running(call: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = toolchain.environment(ZDNN_SERVER=server, ZDNN_LOGLEVEL="off", **variables)
        return subprocess.run(
            [str(program), call], env=environment, capture_output=True, text=True, timeout=120
        )

    return running


@pytest.mark.parametrize(
    ("call", "function", "operand"),
    [
        ("input_a", "add", "input_a"),
        ("input_b", "add", "input_b"),
        ("output", "add", "output"),
        ("bias", "matmul_op", "input_c"),
        ("bias_of_stack", "matmul_bcast_op", "input_c"),
    ],
)
def test_machine_refuses_an_operand_that_is_null(
    run: Run, call: str, function: str, operand: str
) -> None:
    """The library skips a NULL operand, the machine refuses its dimensions, a line names it."""
    answer = run(call)
    assert (answer.returncode, answer.stdout) == (0, EXCEEDS_MDIS)
    assert f"nnpa: zdnn_{function}: {operand} is NULL" in answer.stderr


@pytest.mark.parametrize(
    ("call", "precheck"), [("input_b", "true"), ("bias", "true"), ("factor_of_stack", "false")]
)
def test_library_crashes_where_it_reads_an_operand_that_is_null(
    run: Run, call: str, precheck: str
) -> None:
    """Precheck reads every operand, and a product of stacks its factors: NULL is a crash there."""
    assert run(call, ZDNN_ENABLE_PRECHECK=precheck).returncode == -signal.SIGSEGV


@pytest.mark.parametrize("call", ["unmapped", "read_only", "half"])
def test_save_area_that_cannot_be_written_is_an_access_exception(run: Run, call: str) -> None:
    """The instruction stores in both pages of a save area; a program without them gets SIGSEGV."""
    assert run(call).returncode == -signal.SIGSEGV


@pytest.mark.parametrize("call", ["none", "mapped", "with_bias"])
def test_right_calls_are_ok(run: Run, call: str) -> None:
    """A save area is memory or NULL, and an operand is there: ZDNN_OK, without a line."""
    answer = run(call)
    assert (answer.stdout, answer.stderr) == ("00000000\n", "")


def test_names_the_machine_that_a_function_needs(run: Run) -> None:
    """A function that the machine lacks is ZDNN_UNAVAILABLE_FUNCTION, with one line on stderr."""
    answer = run("gelu", ZDNN_MACHINE="telum1")
    assert answer.stdout == "000c0002\n"
    assert answer.stderr == (
        "nnpa: zdnn_gelu: ZDNN_UNAVAILABLE_FUNCTION: zdnn_gelu needs Telum II (z17); "
        "this session runs on telum1 (z16) [pipeline_c2]\n"
    )
