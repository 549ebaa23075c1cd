# SPDX-License-Identifier: Apache-2.0
"""`zdnn-testee`, the program that runs vectors through C: here, on a real machine, anywhere."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from nnpa_tools.cli import main
from nnpa_tools.conformance import testee as _testee

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix
from tests.vector_runner import VECTORS

SOURCES = sorted((LIBRARY / "testee").glob("*.c"))
STANDARD = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", "-O1")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# ISO C11 and POSIX.1-2008, and zDNN's one header.
HEADERS = {
    *("fcntl.h", "fenv.h", "inttypes.h", "math.h", "signal.h", "stdbool.h", "stddef.h"),
    *("stdint.h", "stdio.h", "stdlib.h", "string.h", "sys/wait.h", "time.h", "unistd.h", "zdnn.h"),
}
SEVERAL = ("meanreduce2d", "transform_ztensor_with_saturation", "init_ztensor", "relu")
# Files with what C and Python tell differently: flags, scales, descriptors, arrays without sizes.
SENT = ("relu.jsonl", "transform_ztensor.jsonl", "reshape_ztensor.jsonl",
        "quantized_matmul_op.jsonl", "local/init_pre_transformed_desc.jsonl")  # fmt: skip
NOWHERE = {"ZDNN_SERVER": "unix:/nowhere/nnpa.sock"}
NO_VECTORS = (
    '{"name": "x", "steps": [}',
    '{"name": "x", "steps": []',
    '{"name": "x", "steps": []} []',
    '{"name": "\\q", "steps": []}',
    '{"name": "\\ud800", "steps": []}',
    '{"name": "x", "steps": [01]}',
    '{"name": "x", "steps": [1.]}',
    '{"name": "x" "steps": []}',
    '{"name": "x", "steps": nil}',
    '{"name": "x", "steps": {}}',
    '{"steps": []}',
    "[" * 65 + "]" * 65,
    "1",
)


@pytest.fixture(scope="module")
def testee(prefix: Prefix) -> str:
    """The program as it is installed."""
    return str(prefix.path / "bin/zdnn-testee")


def built(prefix: Prefix, program: Path, compiler: str, *flags: str) -> Path:
    """Compile the sources with warnings as errors."""
    sources = [str(path) for path in SOURCES]
    command = [compiler, *STANDARD, "-Wall", "-Wextra", "-Werror", *flags, *sources]
    toolchain.run([*command, "-o", str(program), *prefix.flags(), "-lm"])
    return program


@pytest.fixture(scope="module")
def sanitized(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program under the sanitizers."""
    folder = tmp_path_factory.mktemp("testee")
    return str(built(prefix, folder / "testee", "gcc", "-g", *SANITIZERS))


def answers(
    command: list[str], text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the program with a text on its standard input."""
    variables = {**os.environ, **environment}
    return subprocess.run(
        command, input=text, env=variables, capture_output=True, text=True, timeout=300
    )


def lines(output: str) -> list[dict[str, Any]]:
    """Return a program's answers."""
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_it_compiles_without_a_warning(compiler: str, prefix: Prefix, tmp_path: Path) -> None:
    """Either compiler takes it as C11 with all warnings as errors."""
    toolchain.require(compiler)
    assert built(prefix, tmp_path / "testee", compiler).exists()


def test_it_knows_the_public_header_only() -> None:
    """Beyond the C library it includes zdnn.h and nothing of ours."""
    own = {path.name for path in (LIBRARY / "testee").glob("*.h")}
    texts = [path.read_text() for path in (LIBRARY / "testee").iterdir()]
    included = {name for text in texts for name in re.findall(r'#include [<"](.*)[>"]', text)}
    assert included - own <= HEADERS
    assert "zdnn.h" in included


def test_files_input_and_frames_say_the_same(testee: str, server: str) -> None:
    """Files, lines on standard input and frames give the same answers."""
    path = VECTORS / "meanreduce2d.jsonl"
    text = path.read_text()
    by_file = answers([testee, "--emulated", str(path)], ZDNN_SERVER=server)
    by_input = answers([testee, "--emulated", "--file", path.stem], text, ZDNN_SERVER=server)
    requests = [{"file": path.stem, "vector": json.loads(line)} for line in text.splitlines()]
    frames = [json.dumps(request).encode() for request in requests]
    framed = subprocess.run(
        [testee, "--emulated", "--frames"],
        input=b"".join(len(frame).to_bytes(4, "little") + frame for frame in frames),
        env={**os.environ, "ZDNN_SERVER": server},
        capture_output=True,
        timeout=120,
    ).stdout
    framed_answers: list[str] = []
    while framed:
        size = int.from_bytes(framed[:4], "little")
        framed_answers.append(framed[4 : 4 + size].decode())
        framed = framed[4 + size :]
    assert by_file.returncode == by_input.returncode == 0
    assert by_file.stdout == by_input.stdout == "\n".join(framed_answers) + "\n"
    assert len(framed_answers) == len(requests)


def test_what_the_library_prints_is_no_answer(testee: str, server: str) -> None:
    """Lines that the library prints on standard output do not get among the answers."""
    path = str(VECTORS / "meanreduce2d.jsonl")
    quiet = answers([testee, "--emulated", path], ZDNN_SERVER=server, ZDNN_LOGLEVEL="off")
    loud = answers([testee, "--emulated", path], ZDNN_SERVER=server, ZDNN_LOGLEVEL="trace")
    assert loud.stdout == quiet.stdout
    assert len(loud.stderr) > len(quiet.stderr)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_other_machines_are_skipped(testee: str, server: str, machine: str) -> None:
    """On a machine, vectors for another machine or library are skipped, and no others."""
    command = [testee, str(VECTORS / "sqrt.jsonl")]
    printed = lines(answers(command, ZDNN_SERVER=server, ZDNN_MACHINE=machine).stdout)
    vectors = lines((VECTORS / "sqrt.jsonl").read_text())
    own = {
        vector["name"]
        for vector in vectors
        if vector.get("machine", "telum2") == machine and vector.get("library", "1.2.0") == "1.2.0"
    }
    done = {answer["name"] for answer in printed if "steps" in answer}
    unsayable = {answer["name"] for answer in printed if "C " in answer.get("skipped", "")}
    assert done == own - unsayable
    assert done


def test_a_program_check_is_an_answer(testee: str, server: str) -> None:
    """A signal ends the vector, not the program, and the answer gives its number."""
    printed = lines(
        answers([testee, "--emulated", str(VECTORS / "add.jsonl")], ZDNN_SERVER=server).stdout
    )
    checked = next(answer for answer in printed if answer["name"] == "shape_without_precheck")
    assert checked["steps"][0] == {"error": "PROGRAM_CHECK", "signal": 4}
    assert len(printed) == len((VECTORS / "add.jsonl").read_text().splitlines())


@pytest.mark.parametrize("text", NO_VECTORS)
def test_what_is_no_vector_ends_it(testee: str, text: str) -> None:
    """Broken JSON, and JSON that is no vector, ends the program with 1 and a story."""
    ended = answers([testee, "--file", "add"], text + "\n", **NOWHERE)
    assert ended.returncode == 1
    assert ended.stderr.startswith("zdnn-testee: ")


def test_usage(testee: str) -> None:
    """Without input, with an unknown option or emulated results it ends with 2 and usage."""
    emulated = [testee, "--emulated", "--results", "a note", "add.jsonl"]
    for command in ([testee], [testee, "--emulate"], emulated):
        ended = answers(command)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("usage: zdnn-testee")


def test_machines_have_their_names_on_the_command_line(testee: str, server: str) -> None:
    """z17 is telum2, the machine's name as elsewhere; what is no machine is a usage error."""
    path = str(VECTORS / "sqrt.jsonl")
    telum2, z17 = (
        answers([testee, "--machine", name, path], ZDNN_SERVER=server) for name in ("telum2", "z17")
    )
    assert z17.stdout == telum2.stdout
    assert any("steps" in answer for answer in lines(z17.stdout))
    refused = answers([testee, "--machine", "z99", path], ZDNN_SERVER=server)
    assert refused.returncode == 2
    assert "--machine z99: expected telum1 (z16) or telum2 (z17)" in refused.stderr


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_results_say_where_they_come_from_and_are_a_row(
    testee: str, server: str, tmp_path: Path, machine: str
) -> None:
    """Results say machine, library, date and note, end with a count, and are an equal row."""
    note, sent = 'a "test"\n', tmp_path / "sent.jsonl"
    vectors = tmp_path / "vectors"
    (vectors / "local").mkdir(parents=True)
    for file in SENT:
        shutil.copy(VECTORS / file, vectors / file)
    paths = [str(vectors / file) for file in SENT]
    sent_by = answers([testee, "--results", note, *paths], ZDNN_SERVER=server, ZDNN_MACHINE=machine)
    sent.write_text(sent_by.stdout)
    heading, *between, end = lines(sent_by.stdout)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", heading.pop("date"))
    assert heading == {"results": 1, "machine": machine, "library": "1.2.0", "note": note}
    assert end == {"end": len(between)}
    words = ["--suite", "vectors", "--vectors", str(vectors), "--json", str(sent)]
    scored = CliRunner().invoke(main, ["conformance", "score", *words])
    assert scored.exit_code == 0, scored.output
    rows = json.loads(scored.stdout)["real_machines"]
    (row,) = (row for row in rows if row["file"] == "sent.jsonl")
    assert (row["machine"], row["equal"], row["note"]) == (machine, True, note)
    assert len(row["functions"]) == len(SENT)


def test_nnpa_conformance_run(
    prefix: Prefix, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nnpa conformance run` answers as the program does, and `diff` finds both equal."""
    monkeypatch.setattr(_testee, "prefix", lambda: prefix.path)
    ours, theirs = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    paths = [str(VECTORS / f"{file}.jsonl") for file in SEVERAL]
    command = [str(prefix.path / "bin/zdnn-testee"), "--emulated", *paths]
    theirs.write_text(answers(command, ZDNN_SERVER=server).stdout)
    words = ["conformance", "run", "--target", server, "--out", str(ours), *paths]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert ours.read_text() == theirs.read_text()
    compared = CliRunner().invoke(main, ["conformance", "diff", str(ours), str(theirs), "--json"])
    assert compared.exit_code == 0
    assert {row["function"] for row in json.loads(compared.output)} == set(SEVERAL)


def test_nnpa_conformance_run_by_several_jobs(
    prefix: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file on a server of its own gives the bytes of all files on one."""
    monkeypatch.setattr(_testee, "prefix", lambda: prefix.path)
    paths = [str(VECTORS / f"{file}.jsonl") for file in SEVERAL]
    outputs = [tmp_path / jobs for jobs in ("1", "3")]
    for output in outputs:
        words = ["conformance", "run", "--jobs", output.name, "--out", str(output), *paths]
        assert CliRunner().invoke(main, words).exit_code == 0
    alone, at_once = (output.read_bytes() for output in outputs)
    assert alone == at_once
    assert len({json.loads(line)["file"] for line in alone.splitlines()}) == len(SEVERAL)


@pytest.mark.heavy
@pytest.mark.parametrize("file", SEVERAL)
def test_under_sanitizers(testee: str, sanitized: str, server: str, file: str) -> None:
    """It has no leak, no error, and the same answers."""
    path = str(VECTORS / f"{file}.jsonl")
    watched = answers([sanitized, "--emulated", path], ZDNN_SERVER=server)
    assert watched.stdout == answers([testee, "--emulated", path], ZDNN_SERVER=server).stdout
    assert "Sanitizer" not in watched.stderr
    assert "runtime error" not in watched.stderr
    assert "failed" not in watched.stdout


def _mutated(random: Random, text: str) -> str:
    """Return a line with a few characters replaced, left out, or repeated."""
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(text))
        middle = random.choice(('"', "{", "}", "[", "]", ",", "9", "-", "*", "", text[at:][:40]))
        text = text[:at] + middle + text[at + random.randrange(3) :]
    return text


@pytest.mark.heavy
def test_mutated_lines_under_sanitizers(sanitized: str) -> None:
    """Whatever a line says, the reader's memory is safe: it answers, or ends with a story."""
    random = Random(8)
    texts = [
        line for file in SEVERAL for line in (VECTORS / f"{file}.jsonl").read_text().splitlines()
    ]
    for _ in range(60):
        text = _mutated(random, random.choice(texts)).replace("\n", " ") + "\n"
        ended = answers([sanitized, "--emulated", "--file", "relu"], text, **NOWHERE)
        assert ended.returncode in (0, 1), text
        assert "Sanitizer" not in ended.stderr, f"{text}\n{ended.stderr}"
        assert "runtime error" not in ended.stderr, f"{text}\n{ended.stderr}"
