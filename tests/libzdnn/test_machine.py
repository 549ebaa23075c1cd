# SPDX-License-Identifier: Apache-2.0
"""ZDNN_MACHINE: a name, JSON of a custom machine, or a file of such JSON."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.test_run import nnpa_run

MACHINE = {
    "base": "telum1",
    "max_dim_idx_size": 1000,
    "max_dim1": 64,
    "max_tensor_size": 8192,
    "removed_functions": ["NNPA_SUB"],
}
LINES = "1000 64 8192\nadd 1 sub 0 gelu 0\n64: 00000000\n65: 00040001\n33 sticks: 00040001\n"
PROGRAM = """
#include <stdio.h>
#include <zdnn.h>

static zdnn_status transformed(uint32_t dim2, uint32_t dim1) {
  static float data[1 << 16];
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor a;
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, dim2, dim1);
  zdnn_generate_transformed_desc(&pre, &desc);
  zdnn_status status = zdnn_init_ztensor_with_malloc(&pre, &desc, &a);
  return status ? status : zdnn_transform_ztensor(&a, data);
}

int main(void) {
  printf("%u %u %lu\\n", zdnn_get_nnpa_max_dim_idx_size(), zdnn_get_max_for_dim(1),
         (unsigned long)zdnn_get_nnpa_max_tensor_size());
  printf("add %d sub %d gelu %d\\n", zdnn_is_nnpa_function_installed(1, NNPA_ADD),
         zdnn_is_nnpa_function_installed(1, NNPA_SUB),
         zdnn_is_nnpa_function_installed(1, NNPA_GELU));
  printf("64: %08x\\n", transformed(1, 64));
  printf("65: %08x\\n", transformed(1, 65));
  printf("33 sticks: %08x\\n", transformed(65, 64));
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The output and the errors of a program that ended."""

    output: str
    errors: str


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints its machine's limits, and meets them."""
    folder = tmp_path_factory.mktemp("machine")
    source = folder / "program.c"
    source.write_text(PROGRAM)
    return toolchain.compiled(source, folder / "program", toolchain.installed())


def run(program: Path, folder: Path, **variables: str) -> Ended:
    """Run the program in a folder."""
    ended = subprocess.run(
        [str(program)],
        env=toolchain.environment(ZDNN_LOGLEVEL="off", **variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=folder,
    )
    return Ended(ended.stdout, ended.stderr)


def test_json_and_files(program: Path, server: str, tmp_path: Path) -> None:
    """JSON, and a file of JSON by a relative or absolute path, give the same small machine."""
    (tmp_path / "small.json").write_text(json.dumps(MACHINE, indent=2))
    for text in (json.dumps(MACHINE), "small.json", str(tmp_path / "small.json")):
        ended = run(program, tmp_path, ZDNN_SERVER=server, ZDNN_MACHINE=text)
        assert (ended.output, ended.errors) == (LINES, "")


def test_nnpa_run_takes_a_machine(program: Path, tmp_path: Path) -> None:
    """`nnpa run` takes the machine from --machine, or else from ZDNN_MACHINE."""
    (tmp_path / "small.json").write_text(json.dumps(MACHINE))
    for text in (json.dumps(MACHINE), str(tmp_path / "small.json")):
        for arguments, variables in (
            (("--machine", text), {}),
            ((), {"ZDNN_MACHINE": text}),
            (("--machine", text), {"ZDNN_MACHINE": "z15"}),
        ):
            ended = nnpa_run(*arguments, "--", program, ZDNN_LOGLEVEL="off", **variables)
            assert (ended.code, ended.output, ended.errors) == (0, LINES, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"max_dim7": 1}',
            "ZDNN_MACHINE.max_dim7: unknown, must be one of base, ",
        ),
        ('{"max_dim1": -1}', "ZDNN_MACHINE.max_dim1: Integer(-1), must be a number from 0"),
        ('{"removed_functions": ["ADD"]}', "must be a list of functions such as NNPA_ADD"),
        ('{"base": 16}', "ZDNN_MACHINE.base: Integer(16), must be a word"),
        ("{", "ZDNN_MACHINE: no JSON: "),
        ("./missing", "ZDNN_MACHINE: ./missing: No such file or directory"),
        ("z99", "machine is 'z99', must be one of telum1 (z16)"),
        ('{"max_dim1": 4000000}', "max_dim1"),
    ],
)
def test_errors_are_named(
    program: Path, server: str, tmp_path: Path, text: str, words: str
) -> None:
    """Standard error names the field and value of a bad machine, and no call goes through."""
    ended = run(program, tmp_path, ZDNN_SERVER=server, ZDNN_MACHINE=text)
    assert words in ended.errors
    assert "64: 00000000" not in ended.output
