# SPDX-License-Identifier: Apache-2.0
"""`zdnn.h` and the symbols of the library, against what is public of zDNN 1.2.0."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from nnpa.zdnn.v1 import operation_pb2 as operations
from nnpa.zdnn.v1 import status_pb2 as statuses
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix

HEADER = LIBRARY / "include/zdnn.h"
NAMES = Path(__file__).parent / "names.tsv"
C = [("gcc", standard) for standard in ("c99", "c11", "c17", "c2x")]
CLANG = [("clang", standard) for standard in ("c99", "c11", "c17", "c2x")]
CPP = [("g++", standard) for standard in ("c++11", "c++14", "c++17", "c++20", "c++23")]
CLANGPP = [("clang++", standard) for standard in ("c++11", "c++14", "c++17", "c++20", "c++2b")]
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wstrict-prototypes", "-Werror")
ENUMS = (
    operations.NnpaFunctionCode,
    operations.NnpaDataType,
    operations.NnpaLayoutFormat,
    operations.NnpaParmblkFormat,
    operations.PoolPadding,
    operations.MatmulOps,
    operations.MatmulBcastOps,
    operations.SoftmaxAct,
    operations.Conv2dAct,
    operations.ReduceOps,
    operations.MomentsBessel,
    operations.LstmGruDirection,
    statuses.ZdnnStatus,
    tensors.DataLayouts,
    tensors.DataFormats,
    tensors.DataTypes,
    tensors.QuantizedTransformTypes,
)


def _rows(kind: str) -> list[list[str]]:
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [row for row in rows if row[0] == kind]


def _compile(compiler: str, standard: str, text: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"libzdnn: {compiler} not installed")
    language = "c++" if "+" in standard else "c"
    warnings = [option for option in WARNINGS if language == "c" or "prototypes" not in option]
    command = [compiler, f"-std={standard}", *warnings, f"-I{HEADER.parent}", "-x", language]
    answer = subprocess.run(
        [*command, "-fsyntax-only", "-"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr[:2000]


def _values() -> list[str]:
    return [f"{row[1]} == {row[2]}" for row in _rows("enum")] + [
        f"sizeof(zdnn_ztensor) == {64}",
        "sizeof(zdnn_tensor_desc) == 28",
        "offsetof(zdnn_ztensor, buffer) == 24",
        "offsetof(zdnn_ztensor, is_transformed) == 32",
        "offsetof(zdnn_ztensor, rec_scale) == 36",
        "offsetof(zdnn_ztensor, reserved2) == 44",
        "offsetof(zdnn_tensor_desc, dim1) == 24",
        "MSB_BITMASK(16, 0) == 0x8000",
        "RNN_TYPE_GRU == 16777216",
        "CONCAT_USAGE(RNN_TYPE_GRU | USAGE_HIDDEN_BIASES) == 768",
    ]


@pytest.mark.parametrize(("compiler", "standard"), [*C, *CLANG])
def test_each_c_standard_compiles_the_header(compiler: str, standard: str) -> None:
    """In every C, each name has its value and each function its prototype, without a warning."""
    checks = [f"typedef char v{n}[({value}) ? 1 : -1];" for n, value in enumerate(_values())]
    for number, (_kind, name, prototype, *_) in enumerate(_rows("function")):
        returned, arguments = prototype.split(" (", 1)
        pointer = f"{returned} (*p{number})({arguments}"
        checks.append(f"extern {pointer};")
        same = f"__builtin_types_compatible_p(__typeof__(&{name}), __typeof__(p{number}))"
        checks.append(f"typedef char f{number}[{same} ? 1 : -1];")
    # The empty parentheses of the interface are what the prototypes above are compared with.
    ignore = '#pragma GCC diagnostic ignored "-Wstrict-prototypes"'
    _compile(compiler, standard, "\n".join(['#include "zdnn.h"', ignore, *checks, ""]))


@pytest.mark.parametrize(("compiler", "standard"), [*CPP, *CLANGPP])
def test_each_cpp_standard_compiles_the_header(compiler: str, standard: str) -> None:
    """In every C++, each name has its value and each function its type, without a warning."""
    checks = [f'static_assert({value}, "{number}");' for number, value in enumerate(_values())]
    for _kind, name, prototype, *_ in _rows("function"):
        expected = prototype.replace("_Bool", "bool")
        is_same = f"std::is_same<decltype({name}), {expected}>::value"
        checks.append(f'static_assert({is_same}, "{name}");')
    _compile(
        compiler, standard, "\n".join(["#include <type_traits>", '#include "zdnn.h"', *checks, ""])
    )


def test_formats_of_integers() -> None:
    """The header brings <inttypes.h>, as the original does: programs print sizes by PRIu64."""
    text = '#include "zdnn.h"\nconst char *format = "%" PRIu64 " %" PRIx32;\n'
    _compile("gcc", "c11", text)
    _compile("g++", "c++17", text)


def test_nothing_but_the_names() -> None:
    """The header declares these functions, enumerators and macros, and no others."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    functions = set(re.findall(r"\b(zdnn_\w+)\(", text))
    enumerators = set(re.findall(r"^  (\w+) = ", text, flags=re.M))
    macros = set(re.findall(r"^#define (\w+)", text, flags=re.M)) - {"ZDNN_H"}
    assert functions == {row[1] for row in _rows("function")}
    assert enumerators == {row[1] for row in _rows("enum")}
    assert macros == {row[1].partition("(")[0] for row in _rows("macro")}


def test_same_numbers_as_on_the_wire() -> None:
    """An enumerator that the wire contract names too has the same number there."""
    header = {row[1]: int(row[2]) for row in _rows("enum")}
    shared = {name: number for enum in ENUMS for name, number in enum.items() if name in header}
    assert len(shared) > 100
    assert shared == {name: header[name] for name in shared}


def test_exports(prefix: Prefix) -> None:
    """The library exports the 69 functions in the version node ZDNN_1.0, and nothing else."""
    lines = toolchain.run(["nm", "-D", "--defined-only", str(prefix.shared)]).splitlines()
    names = {line.split()[-1] for line in lines}
    functions = {row[1] for row in _rows("function")}
    assert len(functions) == 69
    assert names == {f"{name}@@ZDNN_1.0" for name in functions} | {"ZDNN_1.0"}


def test_self_contained(prefix: Prefix) -> None:
    """The library needs only the C library, and is found by its soname."""
    lines = toolchain.run(["readelf", "-d", str(prefix.shared)])
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", lines))
    assert needed <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    assert re.findall(r"\(SONAME\).*\[(.*)\]", lines) == ["libzdnn.so.0"]


def test_static_library_has_no_other_symbols(prefix: Prefix) -> None:
    """The archive's global symbols are the 69 functions: it meets no other Rust in a program."""
    lines = toolchain.run(["nm", "-g", "--defined-only", str(prefix.static)]).splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3}
    assert names == {row[1] for row in _rows("function")}
