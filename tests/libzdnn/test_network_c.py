# SPDX-License-Identifier: Apache-2.0
"""C for hosted networks: the output of `nnpa network generate` runs on a server, as in Python."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa_client import connect
from nnpa_client.network import Format, dequantize, quantize
from nnpa_client.networks.digits import held_out, onnx_cnn
from nnpa_tools.cli import main

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix
from tests.network.small_models import BIAS, WEIGHT, dense, quantised, two_ends

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = LIBRARY / "examples/network"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FUNCTIONS = "create destroy forward get_error get_info init run"
# X-CUBE-AI 7.0, "AI_<NAME>_XXX C-defines", for one input and one output.
DEFINES = {"MODEL_NAME", "ORIGIN_MODEL_NAME", "DATA_ACTIVATIONS_SIZE", "DATA__WEIGHTS_SIZE",
           "DATA_WEIGHTS_SIZE", "INPUTS_IN_ACTIVATIONS", "OUTPUTS_IN_ACTIVATIONS",
           *(f"{end}{rest}" for end in ("IN", "OUT") for rest in (
               "_NUM", "", "_SIZE", "_SIZE_BYTES", "_1_SIZE", "_1_SIZE_BYTES", "_1_HEIGHT",
               "_1_WIDTH", "_1_CHANNEL"))}  # fmt: skip
# What each call answers, with type and code: X-CUBE-AI 7.0, ai_error_type and ai_error_code.
REFUSALS = """no handle: 0 10 17
create: 0 00 00
create again: 1 33 40
before init: -1 11 30
no params: 0 30 11
no weights: 0 30 12
few weights: 0 30 12
no activations: 0 30 13
few activations: 0 30 13
first error stays: 0 30 12
and is cleared: 0 00 00
default weights: 1 00 00
init: 1 00 00
no input array: -1 12 17
no input data: -1 12 17
no output array: -1 13 17
no output data: -1 13 17
input shape: -1 12 18
input format: -1 12 19
output shape: -1 13 18
no batches: -1 12 21
other batches: -1 13 21
two batches: 2 00 00
forward: 2 00 00
no report: 0 00 00
destroy: 1 00 00
destroyed: 1 10 10
info of none: 0 10 10
run of none: 0 10 10
init of none: 0 10 10
"""


def _generated(model: bytes, folder: Path, server: str, *flags: str) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model)
    command = ["network", "generate", str(path), "--output", str(folder), "--target", server]
    result = CliRunner().invoke(main, [*command, *flags])
    assert result.exit_code == 0, result.output
    return folder


def _compiled(folder: Path, prefix: Prefix, sources: Sequence[Path], *flags: str) -> Path:
    """Compile a program with the network of a folder, warnings being errors; return it."""
    program, lib = folder / "program", prefix.path / "lib"
    files = [*sources, folder / "network.c", folder / "network_data.c"]
    includes = [f"-I{folder}", f"-I{prefix.include}"]
    libraries = [f"-L{lib}", "-lnnpa_network", f"-Wl,-rpath,{lib}"]
    command = ["gcc", "-Wall", "-Werror", "-g", *flags, *includes, *map(str, files)]
    toolchain.run([*command, "-o", str(program), *libraries])
    return program


def _ran(program: Path, server: str, stdin: str = "") -> tuple[str, str]:
    """Run a program that must succeed; return what it printed on stdout and stderr."""
    environment = {**os.environ, "ZDNN_SERVER": server}
    answer = subprocess.run(
        [program], env=environment, input=stdin, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout, answer.stderr


def _floats(text: str) -> Any:
    rows = [[float.fromhex(word) for word in line.split()] for line in text.splitlines()]
    return np.array(rows, np.float32)


def test_exports(prefix: Prefix) -> None:
    """The second library exports nnpa_network_* and nothing else, under its own soname."""
    library = str(prefix.path / "lib/libnnpa_network.so.0")
    symbols = toolchain.run(["nm", "-D", "--defined-only", library]).splitlines()
    names = [line.split()[-1].partition("@")[0] for line in symbols if " T " in line]
    assert sorted(names) == [f"nnpa_network_{function}" for function in FUNCTIONS.split()]
    assert len(symbols) == len(names) + 1  # the version itself
    headers = toolchain.run(["objdump", "-p", library])
    assert re.search(r"SONAME +libnnpa_network\.so\.0\n", headers)


@pytest.mark.parametrize("compiler", ["gcc -std=c11", "g++ -std=c++17"])
def test_headers(compiler: str, prefix: Prefix, tmp_path: Path) -> None:
    """The headers compile alone as C and C++, with every assertion on sizes and offsets."""
    source = tmp_path / ("one.c" if compiler.startswith("gcc") else "one.cpp")
    source.write_text('#include "nnpa_network.h"\nint main() { return 0; }\n')
    command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", f"-I{prefix.include}"]
    toolchain.run([*command, "-fsyntax-only", str(source)])
    assert (prefix.include / "ai_platform.h").read_text().count("AI_STATIC_ASSERT(") > 15


def test_getting_started(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """The documented program, unchanged but for its board, gives the bits of the Python client."""
    folder = _generated(onnx_cnn(), tmp_path, server)
    sources = [EXAMPLES / "getting_started.c", EXAMPLES / "board.c"]
    program = _compiled(folder, prefix, sources, "-include", str(EXAMPLES / "board.h"))
    images = held_out().images[:12]
    stdin = "\n".join(" ".join(f"{pixel:.9g}" for pixel in image.ravel()) for image in images)
    printed, errors = _ran(program, server, stdin)
    with connect(server) as session, session.load(onnx_cnn()) as net:
        expected = np.stack([net(image.reshape(1, 1, 8, 8))[0] for image in images])
    assert errors == ""
    assert _floats(printed).tobytes() == expected.tobytes()
    assert np.count_nonzero(expected.argmax(1) == held_out().labels[:12]) >= 11


def test_snippets_of_two_ends(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """Inputs in the activations, the report, and the macros describe the model."""
    folder = _generated(two_ends().SerializeToString(), tmp_path, server, "--allocate-inputs")
    program = _compiled(folder, prefix, [PROGRAMS / "network_snippets.c"], *SANITIZERS)
    printed, errors = _ran(program, server)
    lines = printed.splitlines()
    assert errors == ""
    assert lines[:3] == ["2 1 3 6 24", "1 1 1 32 0 1", "1 1"]
    assert re.fullmatch(r"network [0-9a-f]{32} 7\.0\.0 1\.4\.0 1\.1\.0", lines[3])
    a = np.arange(6, dtype=np.float32)
    expected = np.stack([np.full(6, 2.5), np.maximum(a, 2.5 - a)], 1)
    assert lines[4] == "1"
    assert np.array_equal(_floats("\n".join(lines[5:11])), expected)
    assert lines[11] == "6 24 48 24 48 96"


def test_conversions_give_the_server_s_numbers(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """The documented conversions around an int8 network give the server's numbers."""
    model, values = quantised().SerializeToString(), np.array([1, 2.2, -3, 100, -100], np.float32)
    folder = _generated(model, tmp_path, server)
    program = _compiled(folder, prefix, [PROGRAMS / "network_conversions.c"], *SANITIZERS)
    printed, errors = _ran(program, server, " ".join(map(str, values)))
    lines = printed.splitlines()
    q = quantize(values, 0.5, 3, Format.S8)  # the model's scale and zero point
    with connect(server) as session, session.load(model) as net:
        r = net(q.reshape(1, 5))[0]
    assert errors == ""
    assert lines[0] == "2 1 8 0x1p-1 3"
    rows = [line.split() for line in lines[1:]]
    assert [int(row[0]) for row in rows] == q.tolist() == [5, 7, -3, 127, -128]
    assert [int(row[1]) for row in rows] == [5, 7, 0, 203, 0]
    assert [int(row[2]) for row in rows] == r.tolist()
    floats = [float.fromhex(row[3]) for row in rows]
    assert floats == dequantize(r, 0.25, -7).tolist()


def test_each_refusal_has_type_and_code(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """Each misuse of the API from C gets its type and code, and a sentence on stderr."""
    folder = _generated(dense().SerializeToString(), tmp_path, server)
    program = _compiled(folder, prefix, [PROGRAMS / "network_errors.c"], *SANITIZERS)
    printed, errors = _ran(program, server)
    assert printed == REFUSALS
    assert "params.channels is 59, must be at least 60" in errors


def test_split_weights(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """Pieces of weights replace the model's when they differ; I/O lies in the activations."""
    flags = ("--allocate-inputs", "--allocate-outputs", "--split-weights")
    folder = _generated(dense().SerializeToString(), tmp_path, server, *flags)
    program = _compiled(folder, prefix, [PROGRAMS / "network_weights.c"], *SANITIZERS)
    printed, errors = _ran(program, server)
    x = np.array([1, 2, 3, 4], np.float32)
    biases = (BIAS, np.array([1, 2, 3], np.float32))
    expected = [np.maximum(x @ WEIGHT + bias, 0) for bias in biases]
    assert errors == ""
    assert np.array_equal(_floats(printed), np.stack(expected))


def test_weights_are_those_of_the_file(server: str, tmp_path: Path) -> None:
    """The array of weights is the model's initializers in order, little-endian."""
    folder = _generated(dense().SerializeToString(), tmp_path, server)
    rows = re.findall(r"0x([0-9a-f]{2})\b", (folder / "network_data.c").read_text())
    assert bytes.fromhex("".join(rows)) == WEIGHT.tobytes() + BIAS.tobytes()


def test_documented_defines_are_generated(server: str, tmp_path: Path) -> None:
    """Every documented C-define is generated, under the network's own name."""
    flags = ("--allocate-inputs", "--allocate-outputs", "--name", "net_2")
    _generated(dense().SerializeToString(), tmp_path, server, *flags)
    text = "".join((tmp_path / f"net_2{end}").read_text() for end in (".h", "_data.h"))
    defines = set(re.findall(r"#define AI_NET_2_(\w+)", text))
    assert defines >= DEFINES
    assert len(DEFINES) == 25
    config = (tmp_path / "net_2_config.h").read_text()
    versions = re.findall(r"#define (AI_\w+)_MAJOR (\d+)", config)
    expected = {"AI_TOOLS_VERSION": "7", "AI_PLATFORM_API": "1", "AI_TOOLS_API_VERSION": "1"}
    assert dict(versions) == expected


def test_a_bad_name_is_refused(server: str, tmp_path: Path) -> None:
    """A name that C cannot have is refused, and nothing is written."""
    path = tmp_path / "model.onnx"
    path.write_bytes(dense().SerializeToString())
    command = ["network", "generate", str(path), "--name", "2net", "--target", server]
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "out")])
    assert result.exit_code != 0
    assert "--name: '2net'" in result.output
    assert not (tmp_path / "out").exists()


def test_without_a_server(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """Create fails as on a board whose gate is closed, and stderr says why."""
    folder = _generated(dense().SerializeToString(), tmp_path, server)
    source = tmp_path / "alone.c"
    source.write_text(
        '#include <stdio.h>\n#include "network.h"\n'
        "int main(void) {\n  ai_handle net;\n  ai_error err = ai_network_create(&net, NULL);\n"
        '  printf("%02x %02x %d\\n", err.type, err.code, net == AI_HANDLE_NULL);\n}\n'
    )
    program = _compiled(folder, prefix, [source])
    printed, errors = _ran(program, f"unix:{tmp_path / 'nobody.sock'}")
    assert printed == "33 10 1\n"
    assert errors.startswith("nnpa: nnpa_network_create: ")
