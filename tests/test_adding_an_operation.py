# SPDX-License-Identifier: Apache-2.0
"""Four edits add an operation: a scratch copy of the repository gets one that does not exist.

The edits are those of protos/README.md, "Add an operation". `zdnn_cbrt` is the cube root of each
element; its function code and its number are free ones.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.libzdnn import toolchain
from tests.trap.conftest import CROSS_COMPILER, NNPA, require

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = Path("protos/nnpa/zdnn/v1/operation.proto")
BLOCK = Path("emulator/nnpa_emulator/ops/elementwise.py")
VECTORS = Path("tests/vectors/cbrt.jsonl")
ORACLE = Path("tests/oracle/elementwise.py")
EDITS = {CONTRACT, BLOCK, VECTORS, ORACLE}
PACKAGES = (
    ".",
    "protos",
    "protos/gen/python",
    "protos/python",
    "emulator",
    "server",
    "client/python",
    "client/tools",
)

ARM = """    // zdnn_cbrt.
    Cbrt cbrt = 30;
"""
CODE = """  // zdnn_cbrt.
  NNPA_CBRT = 36 [(zdnn_code) = {
    parmblk_format: 1 forms: {operation: "cbrt" inputs: "input" outputs: "output"}
  }];
"""
MESSAGE = """
// zdnn_cbrt: takes the cube root of each element.
message Cbrt {
  option (zdnn_function) = {
    family: FAMILY_ELEMENTWISE
    since: "1.1.0"
    code: "NNPA_CBRT"
    parmblk_format: 1
    fidelity: FIDELITY_FORMULA
  };

  // Operand.
  TensorRef input = 1;
  // Result, of the input's shape.
  TensorRef output = 2 [(zdnn_parameter).access = ACCESS_WRITE];
}
"""
FUNCTION = '''

@operation(
    FunctionCode.NNPA_CBRT, FORMAT_1, since="1.1.0", verify=_verify_unary, infer=_like_input
)
def cbrt(input: Ztensor, output: Ztensor) -> bool:
    """Take the cube root."""
    return _apply(unary_table(np.cbrt), input, output)
'''
DESC = {
    "layout": "ZDNN_NHWC",
    "format": "ZDNN_FORMAT_4DFEATURE",
    "type": "ZDNN_DLFLOAT16",
    **dict.fromkeys(("dim4", "dim3", "dim2"), 1),
    "dim1": 4,
}
VECTOR: Mapping[str, Any] = {
    "name": "perfect_cubes",
    "tensors": {
        "1": {"transformed_desc": DESC, "is_transformed": True, "codes": "0000 3E00 4400 C400"},
        "2": {"transformed_desc": DESC},
    },
    "steps": [
        {
            "operation": {"cbrt": {"input": {"id": 1}, "output": {"id": 2}}},
            "status": "ZDNN_OK",
            "outputs": {"output": {"codes": "0000 3E00 4000 C000", "is_transformed": True}},
        }
    ],
    "source": "hand: the cube roots of 0, 1, 8 and -8",
}
EXPECTATION = '''

def cbrt(code: int) -> int:
    """Cube root, which has the sign of its operand."""
    exact = value(code)
    if exact is None or exact == 0:
        return NINF if exact is None else code
    root = _rounded(lambda number: _DIGITS.power(number, _DIGITS.divide(1, 3)), abs(exact))
    return root | code & 0x8000


UNARY["cbrt"] = cbrt
'''


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


def _before(text: str, line: str, addition: str) -> str:
    """Insert lines before the only line of its kind."""
    assert text.count(f"\n{line}\n") == 1, line
    return text.replace(f"\n{line}\n", f"\n{addition}{line}\n")


def _edit(scratch: Path) -> None:
    """Do the four edits."""
    contract = (scratch / CONTRACT).read_text(encoding="utf-8")
    contract = _before(contract, "    // zdnn_relu.", ARM)
    contract = _before(contract, "  // zdnn_relu, zdnn_leaky_relu.", CODE)
    (scratch / CONTRACT).write_text(contract + MESSAGE, encoding="utf-8")
    with (scratch / BLOCK).open("a", encoding="utf-8") as block:
        block.write(FUNCTION)
    (scratch / VECTORS).write_text(json.dumps(VECTOR) + "\n", encoding="utf-8")
    with (scratch / ORACLE).open("a", encoding="utf-8") as oracle:
        oracle.write(EXPECTATION)


def _run(scratch: Path, *command: str, **variables: str) -> str:
    paths = os.pathsep.join(str(scratch / package) for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": paths, "ZDNN_TOKEN": "", **variables}
    done = subprocess.run(command, cwd=scratch, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def _tests(scratch: Path, *arguments: str, **variables: str) -> str:
    command = (sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *arguments)
    return _run(scratch, *command, **variables)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the operation, under version control, generator run."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("adding an operation: not a clone with git")
    folder = tmp_path_factory.mktemp("scratch") / "nnpa"
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    _run(folder, "git", "init", "-q")
    _run(folder, "git", "add", "-A")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    _run(folder, "git", *identity, "commit", "-q", "-m", "Before")
    _edit(folder)
    _run(folder, sys.executable, "protos/generate.py")
    return folder


def _is_generated(path: Path, text: str) -> bool:
    whole = "/gen/" in f"/{path}" or "do not edit" in text[:400].lower()
    return whole or "generated: begin" in text or "<!-- generated: " in text


@pytest.mark.heavy
def test_nothing_else_is_edited(scratch: Path) -> None:
    """What differs from the repository is the four edits and generated files or blocks."""
    changed = {
        Path(line[3:]) for line in _run(scratch, "git", "status", "-s", "-uall").splitlines()
    }
    assert changed >= EDITS
    for path in changed - EDITS:
        assert _is_generated(path, (scratch / path).read_text(encoding="utf-8")), path
    named = {path for path in changed if "cbrt" in (scratch / path).read_text(encoding="utf-8")}
    assert {
        Path("README.md"),
        Path("client/README.md"),
        Path("client/go/zdnn/verbs.gen.go"),
        Path("client/java/src/main/java/dev/nnpa/Zdnn.java"),
        Path("client/libzdnn/README.md"),
        Path("client/libzdnn/include/zdnn.h"),
        Path("client/libzdnn/src/verbs/operation.rs"),
        Path("client/python/nnpa_client/zdnn/_elementwise.py"),
        Path("client/typescript/src/verbs.gen.ts"),
        Path("emulator/README.md"),
    } <= named


@pytest.mark.heavy
def test_contract_and_arithmetic_hold(scratch: Path) -> None:
    """The tests that compare the rooms, and those of arithmetic, take the operation up."""
    files = ("tests/test_contract.py", "tests/test_sdk_verbs.py", "tests/client/test_verbs.py")
    rooms = ("tests/client/test_availability.py", "tests/emulator", "tests/server/test_contract.py")
    chosen = "cbrt or test_arms_are or have_vectors"
    assert "passed" in _tests(scratch, *files, *rooms, "-k", chosen)


@pytest.mark.heavy
def test_python_runs_it(scratch: Path) -> None:
    """The Python client sends it to a server, which gives what the vector says."""
    file = "tests/conformance/test_conformance.py"
    assert "1 passed" in _tests(scratch, file, "-k", "python and cbrt")


@pytest.mark.libzdnn
def test_c_runs_it(scratch: Path, tmp_path: Path) -> None:
    """A C program calls it by its prototype in `zdnn.h`, and gets what the vector says."""
    if os.environ.get("NNPA_REQUIRE_TOOLCHAINS") != "1":
        toolchain.require("cargo", "gcc", "make")
    cache = tmp_path / "nnpa-libzdnn"
    cache.mkdir()
    toolchain.CARGO_TARGET.mkdir(parents=True, exist_ok=True)
    (cache / "target").symlink_to(toolchain.CARGO_TARGET)
    file = "tests/conformance/test_conformance.py"
    arguments = (file, "-k", "libzdnn and cbrt", "-m", "conformance")
    assert "1 passed" in _tests(scratch, *arguments, XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.libzdnn
def test_a_program_issues_its_instruction(scratch: Path, tmp_path: Path) -> None:
    """A program for s390x issues it under `nnpa run`, and gets what the vector says."""
    require("make", CROSS_COMPILER, "qemu-s390x")
    _run(scratch, "make", "-C", "client/trap", f"OUT={tmp_path}")
    source, program = tmp_path / "cbrt.c", str(tmp_path / "cbrt")
    source.write_text(PROGRAM, encoding="utf-8")
    headers = "-Itests/trap/programs"
    _run(scratch, CROSS_COMPILER, "-march=z13", headers, str(source), "-o", program)
    library = str(tmp_path / "libnnpa-trap.so")
    command = (*NNPA, "run", "--machine", "z17", "--", program)
    output = _run(scratch, *command, NNPA_TRAP_LIBRARY=library)
    assert output == "cc 0 r0 0000000000000024 0000 3E00 4000 C000"
