# SPDX-License-Identifier: Apache-2.0
"""Four edits add an operation: a scratch copy of the repository gets one that does not exist."""

import os
from pathlib import Path

import pytest

from tests import scratch_copy
from tests.libzdnn import toolchain
from tests.scratch_copy import BLOCK, CONTRACT, ORACLE, VECTORS, is_generated, run, run_tests
from tests.trap.conftest import CROSS_COMPILER, NNPA, require

EDITS = {CONTRACT, BLOCK, VECTORS, ORACLE}

PROGRAM = """
#include "nnpa.h"

int main(void)
{
  const uint16_t codes[] = {0x0000, 0x3e00, 0x4400, 0xc400};
  struct parameter_block *block = aligned_alloc(8, sizeof *block);
  uint16_t *input = page_of(0), *output = page_of(0x1234);
  memcpy(input, codes, sizeof codes);
  memset(block, 0, sizeof *block);
  block->version = 1;
  block->inputs[0] = vector_of(input);
  block->outputs[0] = vector_of(output);
  struct outcome outcome = nnpa(36, block);
  printf("cc %d r0 %016lx", outcome.condition_code, outcome.general_register_0);
  for (int i = 0; i < 4; i++)
    printf(" %04X", output[i]);
  return 0;
}
"""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the operation, generator run."""
    folder = tmp_path_factory.mktemp("scratch") / "nnpa"
    scratch_copy.make(folder)
    scratch_copy.add_operation(folder)
    scratch_copy.generate(folder)
    return folder


@pytest.mark.heavy
def test_nothing_else_is_edited(scratch: Path) -> None:
    """Only the four edits and generated files or blocks differ from the repository."""
    changed = scratch_copy.changed(scratch)
    assert changed >= EDITS
    for path in changed - EDITS:
        assert is_generated(path, (scratch / path).read_text(encoding="utf-8")), path
    named = {path for path in changed if "cbrt" in (scratch / path).read_text(encoding="utf-8")}
    assert {
        Path("deploy/docs/availability.md"),
        Path("deploy/docs/c/functions.md"),
        Path("deploy/docs/fidelity.md"),
        Path("deploy/docs/python/zdnn.md"),
        Path("client/go/zdnn/verbs.gen.go"),
        Path("client/java/src/main/java/dev/nnpa/Zdnn.java"),
        Path("client/libzdnn/include/zdnn.h"),
        Path("client/libzdnn/src/verbs/operation.rs"),
        Path("client/python/nnpa_client/zdnn/_elementwise.py"),
        Path("client/typescript/src/verbs.gen.ts"),
    } <= named


@pytest.mark.heavy
def test_contract_and_arithmetic_hold(scratch: Path) -> None:
    """The tests that compare the rooms, and the tests of arithmetic, include the operation."""
    files = ("tests/test_contract.py", "tests/test_sdk_verbs.py", "tests/client/zdnn/test_verbs.py")
    rooms = (
        "tests/client/values/test_availability.py",
        "tests/emulator",
        "tests/server/test_contract.py",
    )
    chosen = "cbrt or test_arms_are or have_vectors"
    assert "passed" in run_tests(scratch, *files, *rooms, "-k", chosen)


@pytest.mark.heavy
def test_python_runs_it(scratch: Path) -> None:
    """The Python client sends the operation to a server, and gets the vector's result."""
    file = "tests/conformance/test_conformance.py"
    assert "1 passed" in run_tests(scratch, file, "-m", "", "-k", "python and cbrt")


@pytest.mark.libzdnn
def test_c_runs_it(scratch: Path, tmp_path: Path) -> None:
    """A C program calls the operation by its prototype in `zdnn.h`, with the vector's result."""
    if os.environ.get("NNPA_REQUIRE_TOOLCHAINS") != "1":
        toolchain.require("cargo", "gcc", "make")
    cache = tmp_path / "nnpa-libzdnn"
    cache.mkdir()
    toolchain.CARGO_TARGET.mkdir(parents=True, exist_ok=True)
    (cache / "target").symlink_to(toolchain.CARGO_TARGET)
    file = "tests/conformance/test_conformance.py"
    arguments = (file, "-k", "libzdnn and cbrt", "-m", "conformance")
    assert "1 passed" in run_tests(scratch, *arguments, XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.libzdnn
def test_a_program_issues_its_instruction(scratch: Path, tmp_path: Path) -> None:
    """A program for s390x issues the operation under `nnpa run`, and gets the vector's result."""
    require("make", CROSS_COMPILER, "qemu-s390x")
    run(scratch, "make", "-C", "client/trap", f"OUT={tmp_path}")
    source, program = tmp_path / "cbrt.c", str(tmp_path / "cbrt")
    source.write_text(PROGRAM, encoding="utf-8")
    headers = "-Itests/trap/programs"
    run(scratch, CROSS_COMPILER, "-march=z13", headers, str(source), "-o", program)
    library = str(tmp_path / "libnnpa-trap.so")
    command = (*NNPA, "run", "--machine", "z17", "--", program)
    output = run(scratch, *command, NNPA_TRAP_LIBRARY=library)
    assert output == "cc 0 r0 0000000000000024 0000 3E00 4000 C000"
