# SPDX-License-Identifier: Apache-2.0
"""ZDNN_SANITIZE=1 reports a C program's misused ztensors on stderr, with the calls' addresses."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

SOURCE = Path(__file__).parent / "programs/misuse.c"
EXAMPLES = toolchain.LIBRARY / "examples"
PLACE = re.compile(r"misuse\+0x([0-9a-f]+)")
NEVER_WRITTEN = "has sticks that have never been written"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that misuses ztensors."""
    folder = tmp_path_factory.mktemp("sanitizer")
    return toolchain.compiled(
        SOURCE, folder / "misuse", prefix, "-std=gnu11", "-O0", "-rdynamic", "-pthread"
    )


@pytest.fixture
def run(program: Path, server: str) -> Run:
    """A function that runs the program, sanitized by default."""

    def running(what: str, sanitize: str = "1", **more: str) -> "subprocess.CompletedProcess[str]":
        variables = {"ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off", "ZDNN_SANITIZE": sanitize}
        return subprocess.run(
            [str(program), what],
            env=toolchain.environment(**variables | more),
            capture_output=True,
            text=True,
            timeout=120,
        )

    return running


def lines(program: Path, report: str) -> list[str]:
    """Return the names of the marked sites that a report names, in its order."""
    toolchain.require("addr2line")
    source = SOURCE.read_text().splitlines()
    command = ["addr2line", "-e", str(program), *PLACE.findall(report)]
    places = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r"misuse\.c:(\d+)", places)
    marked = [re.search(r"/\* site: (.*) \*/", source[int(number) - 1]) for number in numbers]
    return [site[1] for site in marked if site is not None]


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
def test_a_clean_program(run: Run, transfer: str) -> None:
    """A clean program prints the same with and without the sanitizer, and nothing on stderr."""
    plain = run("clean", sanitize="0", ZDNN_TRANSFER=transfer)
    sanitized = run("clean", ZDNN_TRANSFER=transfer)
    assert (sanitized.returncode, sanitized.stderr) == (0, "")
    assert sanitized.stdout == plain.stdout
    assert "first 0\n" in plain.stdout


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
def test_sticks_that_nothing_has_written(run: Run, program: Path, transfer: str) -> None:
    """A use of sticks that were only allocated is reported, with the addresses of both calls."""
    answer = run("never_written", ZDNN_TRANSFER=transfer)
    (report,) = answer.stderr.splitlines()
    assert report.startswith("zdnn_add at misuse+0x")
    assert f"input_b {NEVER_WRITTEN}; allocated by zdnn_init_ztensor_with_malloc" in report
    assert lines(program, report) == ["use", "allocation"]
    assert "in add:" in report
    assert answer.stdout.endswith("free 00000000\n")


def test_sticks_that_nothing_has_written_back(run: Run, program: Path) -> None:
    """Converting back sticks that were only allocated is reported, even if marked transformed."""
    (report,) = run("never_written_back").stderr.splitlines()
    assert "zdnn_transform_origtensor at misuse" in report
    assert "never been written" in report
    assert lines(program, report) == ["back", "allocation"]


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
@pytest.mark.parametrize(
    ("misuse", "operand", "sites"),
    [
        ("view_never_written", "input_b", ["use", "stacks"]),
        ("stack_never_written", "input", ["whole", "stacks"]),
    ],
)
def test_reports_a_stack_that_was_never_written_beside_written_ones(
    run: Run, program: Path, transfer: str, misuse: str, operand: str, sites: list[str]
) -> None:
    """A read of one stack that nobody wrote is reported, as a view and as a part of the whole."""
    (report,) = run(misuse, ZDNN_TRANSFER=transfer).stderr.splitlines()
    assert f"{operand} {NEVER_WRITTEN}" in report
    assert lines(program, report) == sites


@pytest.mark.parametrize("clean", ["stacks", "disjoint_views"])
def test_does_not_report_views_that_were_written(run: Run, clean: str) -> None:
    """Written views, and threads that read one view and write others, are not reported."""
    answer = run(clean)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_sticks_that_the_program_writes(run: Run) -> None:
    """Sticks that the program itself has written to are written."""
    assert run("written_by_the_program").stderr == ""


def test_sticks_that_are_not_numbers(run: Run) -> None:
    """Results that are NINF everywhere, like fresh memory, are written."""
    answer = run("all_not_a_number")
    assert answer.stderr == ""
    assert "sqrt 00020001" in answer.stdout
    assert "exp 00020001" in answer.stdout


def test_large_sticks(run: Run, program: Path) -> None:
    """Sticks that travel in chunks are watched as well."""
    report = run("large", ZDNN_TRANSFER="sticks").stderr.splitlines()[0]
    assert "never been written" in report
    assert lines(program, report) == ["large", "allocation"]


def test_transforming_what_is_transformed(run: Run, program: Path) -> None:
    """A second transform is reported with the place of the allocation, and refused as usual."""
    answer = run("transformed_twice")
    (report,) = answer.stderr.splitlines()
    assert report.startswith("zdnn_transform_ztensor at misuse+0x")
    assert "ztensor is transformed already" in report
    assert lines(program, report) == ["again", "allocation"]
    assert "again 00100004" in answer.stdout


def test_use_after_free(run: Run, program: Path) -> None:
    """A use of a freed buffer is reported with all three places; its memory is not reused."""
    answer = run("use_after_free")
    (report,) = answer.stderr.splitlines()
    assert "input_b is used after it was freed; freed by zdnn_free_ztensor_buffer" in report
    assert lines(program, report) == ["use", "free", "allocation"]
    assert answer.returncode == 0


def test_a_second_free(run: Run, program: Path) -> None:
    """A second free is reported, and the process lives on."""
    answer = run("freed_twice")
    (report,) = answer.stderr.splitlines()
    assert report.startswith("zdnn_free_ztensor_buffer at misuse+0x")
    assert "is used after it was freed" in report
    assert lines(program, report) == ["twice", "free", "allocation"]
    assert answer.returncode == 0


def test_a_report_of_a_program_check(run: Run) -> None:
    """Misuse in an operation that ends the program is reported before the program ends."""
    answer = run("contradicting")
    assert answer.returncode < 0
    assert "PROGRAM_CHECK" in answer.stderr
    assert "input_b is used after it was freed" in answer.stderr


def test_two_threads_on_one_ztensor(run: Run) -> None:
    """Threads that write and read one ztensor at once are reported, in either order."""
    answer = run("threads")
    reports = answer.stderr.splitlines()
    assert reports
    for report in reports:
        assert re.match(r"zdnn_tanh at misuse\+0x\w+ in repeat: (in|out)put is in use", report)
        assert "by another thread; used by zdnn_tanh at misuse+0x" in report
        assert "allocated by zdnn_init_ztensor_with_malloc" in report
    assert answer.stdout.endswith("wrong 0\n")


def test_two_threads_that_read(run: Run) -> None:
    """Threads that only read one ztensor are not reported."""
    assert run("readers").stderr == ""


@pytest.mark.parametrize("what", ["never_written", "use_after_free"])
def test_without_the_variable(run: Run, what: str) -> None:
    """Without the variable nothing is reported or recorded."""
    if what == "never_written":
        assert run(what, sanitize="0").stderr == ""
    else:
        assert run("clean", sanitize="").stderr == ""


def test_linked_into_the_program(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """The static library, which cannot tell itself from the program, numbers the calls."""
    program = tmp_path / "misuse"
    libraries = [str(prefix.static), "-lpthread", "-ldl", "-lm", "-lgcc_s"]
    command = ["gcc", "-std=gnu11", str(SOURCE), "-o", str(program), f"-I{prefix.include}"]
    toolchain.run([*command, *libraries])
    variables = {"ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off", "ZDNN_SANITIZE": "1"}
    answer = subprocess.run(
        [str(program), "never_written"],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    (report,) = answer.stderr.splitlines()
    assert re.match(rf"zdnn_add at call \d+: input_b {NEVER_WRITTEN}", report)
    assert re.search(r"allocated by zdnn_init_ztensor_with_malloc at call \d+$", report)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.c")))
def test_the_manuals_examples_are_clean(
    prefix: Prefix, server: str, tmp_path: Path, name: str
) -> None:
    """Each example program prints the same with and without the sanitizer, and no report."""
    assert shutil.which("gcc")
    program = tmp_path / name
    command = ["gcc", "-g", str(EXAMPLES / f"{name}.c"), "-o", str(program), f"-I{EXAMPLES}"]
    toolchain.run([*command, *prefix.flags(), "-lm"])
    printed = [
        toolchain.run([str(program)], ZDNN_SERVER=server, ZDNN_SANITIZE=sanitize)
        for sanitize in ("0", "1")
    ]
    assert printed[0] == printed[1]
