# SPDX-License-Identifier: Apache-2.0
"""`nnpa run` of programs of this machine: a server of their own, environment, exit code, counts."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from nnpa_client import trace

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import ROOT, Prefix

EXAMPLE = ROOT / "client/libzdnn/examples/add.c"
NNPA = (sys.executable, "-c", "from nnpa_tools.cli import main; main(prog_name='nnpa')", "run")
SECONDS = 120
PROGRAM = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zdnn.h>

int main(int count, char **arguments) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor a;
  float data[6] = {1, 2, 3, 4, 5, 6};
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, 2u, 3u);
  zdnn_generate_transformed_desc(&pre, &desc);
  zdnn_status created = zdnn_init_ztensor_with_malloc(&pre, &desc, &a);
  zdnn_status transformed = zdnn_transform_ztensor(&a, data);
  zdnn_status root = zdnn_sqrt(&a, &a);
  printf("%08x %08x %08x\\n", created, transformed, root);
  const char *names[] = {"ZDNN_SERVER", "ZDNN_MACHINE", "ZDNN_ENABLE_PRECHECK"};
  for (int i = 0; i < 3; i++)
    printf("%s\\n", getenv(names[i]) ? getenv(names[i]) : "");
  fflush(stdout);
  if (count > 1 && !strcmp(arguments[1], "killed"))
    raise(SIGKILL);
  return count > 1 ? atoi(arguments[1]) : 0;
}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    code: int
    output: str
    errors: str


def nnpa_run(*arguments: object, **variables: str) -> Ended:
    """Run `nnpa run`."""
    ended = subprocess.run(
        [*NNPA, *map(str, arguments)],
        env=toolchain.environment(**variables),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small program that is linked with libzdnn."""
    folder = tmp_path_factory.mktemp("run")
    source = folder / "program.c"
    source.write_text(PROGRAM)
    return toolchain.compiled(source, folder / "program", toolchain.installed())


def test_an_example_runs_without_a_server_started_by_hand(
    prefix: Prefix, server: str, tmp_path: Path
) -> None:
    """An example prints the same under `nnpa run` as at a server that runs."""
    example = toolchain.compiled(EXAMPLE, tmp_path / "add", prefix, "-lm", f"-I{EXAMPLE.parent}")
    by_hand = toolchain.run([str(example)], ZDNN_SERVER=server)
    ended = nnpa_run("--", example)
    assert (ended.code, ended.output, ended.errors) == (0, by_hand, "")


@pytest.mark.parametrize(
    ("argument", "code"), [("0", 0), ("7", 7), ("killed", 128 + signal.SIGKILL)]
)
def test_exit_code_is_the_program_s(program: Path, argument: str, code: int) -> None:
    """The exit code comes through; for a signal it is 128 and its number."""
    assert nnpa_run("--", program, argument).code == code


@pytest.mark.parametrize(
    ("machine", "name", "root"), [("z16", "telum1", "000c0002"), ("z17", "telum2", "00000000")]
)
def test_programs_get_server_and_machine(program: Path, machine: str, name: str, root: str) -> None:
    """The program gets the machine and a server that ends with it; older variables are unset."""
    old = {"ZDNN_SERVER": "unix:/nowhere", "ZDNN_TRACE": "traces/none", "ZDNN_FAULTS": "/nowhere"}
    ended = nnpa_run("--machine", machine, "--precheck", "--", program, **old)
    # Precheck prints lines before these four.
    statuses, target, machine_name, precheck = ended.output.splitlines()[-4:]
    assert statuses.split()[:2] == ["00000000", "00000000"]
    assert statuses.split()[2] == root
    assert target.startswith("unix:")
    assert not Path(target.removeprefix("unix:")).exists()
    assert (machine_name, precheck, ended.code) == (name, "true", 0)


def test_stats_count_operations(program: Path) -> None:
    """--stats counts operations by function, answers, sessions and time; --json is the same."""
    lines = nnpa_run("--machine", "z16", "--stats", "--", program).errors.splitlines()
    assert "operations: 2 (sqrt 1, transform_ztensor 1)" in lines
    assert "answers other than ZDNN_OK: 1 (ZDNN_UNAVAILABLE_FUNCTION 1)" in lines
    assert lines[-1] == "sessions: 1"
    ended = nnpa_run("--json", "--", program)
    stats = json.loads(ended.errors)
    assert stats["operations"] == {"sqrt": 1, "transform_ztensor": 1}
    assert (stats["sessions"], stats["answers_not_ok"]) == (1, {})
    assert stats["seconds"] > stats["operation_seconds"] > 0


def test_stats_of_a_program_without_a_session() -> None:
    """The counts of a program that never calls zDNN say so, and its exit code is unchanged."""
    ended = nnpa_run("--stats", "--", "/bin/false")
    assert ended.code == 1
    assert ended.errors.endswith("sessions: 0: does the program use libzdnn?\n")


def test_trace_records_operations(program: Path, tmp_path: Path) -> None:
    """--trace records the operations."""
    file = tmp_path / "trace.nnpa"
    assert nnpa_run("--trace", file, "--", program).code == 0
    names = [step.name for step in trace.read(file).operations if not step.is_housekeeping]
    assert names == ["transform_ztensor", "sqrt"]


def test_faults_inject_a_status(program: Path, tmp_path: Path) -> None:
    """--faults has an operation end with the status of a rule."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{operation: sqrt, nth: 1, status: ZDNN_EXCEEDS_MDIS}]")
    ended = nnpa_run("--faults", rules, "--", program)
    assert ended.output.splitlines()[0].split()[2] == "000c0012"


def test_a_running_server_can_be_named(program: Path, server: str) -> None:
    """--server names one that runs."""
    assert nnpa_run("--server", server, "--", program).output.splitlines()[1] == server


def test_name_without_a_folder(program: Path) -> None:
    """A program of the working folder needs no `./`, as for s390x."""
    ended = subprocess.run(
        [*NNPA, "--", program.name, "5"], cwd=program.parent, capture_output=True, timeout=SECONDS
    )
    assert ended.returncode == 5


@pytest.mark.parametrize("flags", [("--sysroot", "/"), ("--patch", "a"), ("--no-patch", "a")])
def test_options_for_s390x_are_refused(program: Path, flags: tuple[str, str]) -> None:
    """An option for s390x programs is a usage error, named before anything starts."""
    ended = nnpa_run(*flags, "--", program)
    assert ended.code == 2
    assert f"{flags[0]}: {program} is a program of this machine" in ended.errors


def test_file_that_may_not_run(program: Path, tmp_path: Path) -> None:
    """A program without the permission to run is named."""
    copy = tmp_path / "program"
    copy.write_bytes(program.read_bytes())
    ended = nnpa_run("--", copy)
    assert ended.code == 2
    assert f"{copy}: Permission denied" in ended.errors
