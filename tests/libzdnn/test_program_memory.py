# SPDX-License-Identifier: Apache-2.0
"""Memory of the program: the library's reads, its writes, and its use of malloc."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import TRANSFERS, Prefix

PROGRAMS = Path(__file__).parent / "programs"
RECORD_BYTES = 192
VALGRIND = ("valgrind", "--quiet", "--error-exitcode=99", "--undef-value-errors=yes")
Run = Callable[..., str]


@pytest.fixture
def run(prefix: Prefix, server: str, tmp_path: Path) -> Run:
    """A function that compiles one of the programs and runs it with arguments, quietly."""

    def compiled_and_run(name: str, *arguments: str, **variables: str) -> str:
        source = PROGRAMS / f"{name}.c"
        program = toolchain.compiled(source, tmp_path / name, prefix, "-std=gnu11")
        environment = {"ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off", **variables}
        return toolchain.run([str(program), *arguments], **environment)

    return compiled_and_run


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_refused_call_reads_no_sticks(run: Run, transfer: str) -> None:
    """A refused reshape or transform back gives the library's status and reads no buffer."""
    assert run("reshapes", ZDNN_TRANSFER=transfer).splitlines() == [
        "elements 00040001",
        "layouts 00040002",
        "layout 00040002",
        "src's state 00100004",
        "dest's state 00100004",
        "kernels 00040004",
        "back 00100004",
        "range 00100004",
        "gates back 00040002",
        "range of gates 00040002",
    ]


@pytest.mark.parametrize("transfer", TRANSFERS)
@pytest.mark.parametrize("direction", [0, 1, 2])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_outputs_of_layers_give_buffers(run: Run, name: str, direction: int, transfer: str) -> None:
    """Without precheck the library reads hn_output's dim4, and only the buffer of cf_output.

    The first page of a work area is written.
    """
    lines = run("recurrent", name, str(direction), ZDNN_TRANSFER=transfer).splitlines()
    descriptions = ("right", "slices", "large", "small", "rubbish")
    assert lines == [f"{words} 00000000 same touched" for words in descriptions]


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_with_precheck_outputs_of_layers_are_looked_at(run: Run, name: str) -> None:
    """With precheck the library compares the dims of outputs and inputs."""
    lines = run("recurrent", name, "0", ZDNN_ENABLE_PRECHECK="true").splitlines()
    statuses = dict(line.split()[:2] for line in lines if " touched" in line or "untouched" in line)
    assert statuses["right"] == "00000000"
    assert statuses["large"] == statuses["small"] == statuses["rubbish"] == "00040001"


def test_work_area_of_quantized_products(run: Run) -> None:
    """The first page of a work area is written on ZDNN_OK where the product needs one."""
    used, unused = "00000000 touched kept", "00000000 untouched kept"
    assert run("work_area").splitlines() == [used, used, unused, unused, "00040003 untouched"]


def test_concatenated_weights_of_other_rows(run: Run) -> None:
    """The rows of concatenated weights are the user's, whatever the transformed dim2."""
    assert run("concatenated").splitlines() == [
        "lstm 00000000 00000000 same 1",
        "gru 00000000 00000000 same 1",
        "halves 00000000 00000000 same 1",
        "odd halves 00040001",
    ]


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_calls_leave_malloc_alone(run: Run, transfer: str) -> None:
    """Connection, session and messages take no memory of malloc and leave nothing in it.

    The only use of malloc is the C library's record of a thread's destructors.
    """
    assert run("heap", "0") == "right: used 0, freed 0, mapped 0, leavings 0\n"
    for rounds in ("1", "50"):
        printed = run("heap", rounds, ZDNN_TRANSFER=transfer)
        used = re.fullmatch(r"right: used (\d+), freed 0, mapped 0, leavings 0\n", printed)
        assert used is not None, printed
        assert int(used[1]) <= RECORD_BYTES


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_memcheck(prefix: Prefix, server: str, tmp_path: Path, transfer: str) -> None:
    """Memcheck reports no error in a correct program."""
    toolchain.require("valgrind")
    source = PROGRAMS / "descriptors.c"
    program = toolchain.compiled(source, tmp_path / "descriptors", prefix, "-std=gnu11")
    variables = toolchain.environment(ZDNN_SERVER=server, ZDNN_TRANSFER=transfer)
    answer = subprocess.run(
        [*VALGRIND, str(program)], env=variables, capture_output=True, text=True, timeout=300
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "right\n", "")
