# SPDX-License-Identifier: Apache-2.0
"""A scratch copy of the repository, and an operation that does not exist to add to it.

The page "Add an operation" of the manual describes the edits. `zdnn_cbrt` is the cube root of each
element; no other function has its function code or its number.
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

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = Path("protos/nnpa/zdnn/v1/operation.proto")
BLOCK = Path("emulator/nnpa_emulator/ops/elementwise.py")
VECTORS = Path("tests/vectors/cbrt.jsonl")
ORACLE = Path("tests/oracle/elementwise.py")
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

@operation(FunctionCode.NNPA_CBRT, FORMAT_1, since="1.1.0", verify=verify_like, infer=like_input)
def cbrt(input: Ztensor, output: Ztensor) -> bool:
    """Take the cube root."""
    return apply(np.cbrt, input, output)
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


def make(folder: Path) -> None:
    """Copy the repository's files to a folder, under version control."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("a scratch copy: not a clone with git")
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    run(folder, "git", "init", "-q")
    run(folder, "git", "add", "-A")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    run(folder, "git", *identity, "commit", "-q", "-m", "Before")


def before(text: str, line: str, addition: str) -> str:
    """Insert lines before the only line of its kind."""
    assert text.count(f"\n{line}\n") == 1, line
    return text.replace(f"\n{line}\n", f"\n{addition}{line}\n")


def add_operation(scratch: Path, code: str = CODE) -> None:
    """Do the four edits of an operation; `code` are the lines of its function code."""
    contract = (scratch / CONTRACT).read_text(encoding="utf-8")
    contract = before(contract, "    // zdnn_relu.", ARM)
    contract = before(contract, "  // zdnn_relu, zdnn_leaky_relu.", code)
    (scratch / CONTRACT).write_text(contract + MESSAGE, encoding="utf-8")
    with (scratch / BLOCK).open("a", encoding="utf-8") as block:
        block.write(FUNCTION)
    (scratch / VECTORS).write_text(json.dumps(VECTOR) + "\n", encoding="utf-8")
    with (scratch / ORACLE).open("a", encoding="utf-8") as oracle:
        oracle.write(EXPECTATION)


def generate(scratch: Path) -> None:
    """Write the files that are generated from the contract."""
    run(scratch, sys.executable, "protos/generate.py")


def changed(scratch: Path) -> set[Path]:
    """Return the files that differ from the repository."""
    listed = run(scratch, "git", "status", "-s", "-uall")
    return {Path(line[3:]) for line in listed.splitlines()}


def is_generated(path: Path, text: str) -> bool:
    """Return True for a file that is generated, whole or a block of it."""
    whole = "/gen/" in f"/{path}" or "do not edit" in text[:400].lower()
    return whole or "generated: begin" in text or "<!-- generated: " in text


def environment(scratch: Path) -> dict[str, str]:
    """Return the variables of a process that imports the packages of a copy."""
    paths = os.pathsep.join(str(scratch / package) for package in PACKAGES)
    return {**os.environ, "PYTHONPATH": paths, "ZDNN_TOKEN": ""}


def run(scratch: Path, *command: str, **variables: str) -> str:
    """Run a command in a copy, with its packages, to success; return its output."""
    variables = {**environment(scratch), **variables}
    done = subprocess.run(command, cwd=scratch, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run_tests(scratch: Path, *arguments: str, **variables: str) -> str:
    """Run tests of a copy to success; return pytest's output."""
    command = (sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *arguments)
    return run(scratch, *command, **variables)
