# SPDX-License-Identifier: Apache-2.0
"""All rooms use the same names: arms, functions, vectors, enums, documentation.

Names of the C library: the public header of zDNN 1.2.0.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeGuard

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as operation
from nnpa.zdnn.v1 import options_pb2 as options
from nnpa.zdnn.v1 import status_pb2 as status
from nnpa.zdnn.v1 import tensor_pb2 as tensor
from nnpa_emulator import FUNCTIONS, Status, TensorDesc, Ztensor
from nnpa_emulator import ztensor as structs
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, MACHINES, FunctionCode, LogLevel
from nnpa_emulator.machine_functions import MachineFunction, functions_of

from tests.emulator.local_target import FUNCTIONS as LOCAL
from tests.vector_runner import VECTORS

ROOT = Path(__file__).resolve().parent.parent
ARMS = {
    field.name: field for field in operation.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
}
# Arms whose function the emulator has not yet; a line goes when the function comes.
WITHOUT_FUNCTION: set[str] = set()
# Functions whose vectors have not come yet; a line goes when they come.
WITHOUT_VECTORS: set[str] = set()
# Constraints that have no tests of their names yet; a line goes when they come.
WITHOUT_CONSTRAINT_TESTS = {
    *("lstm_c8", "lstm_c16", "gru_c8", "gru_c15"),
    *(f"quantized_matmul_op_c{number}" for number in range(1, 17)),
}
COMPOSED = {"init_ztensor_with_malloc", "init_quantized_ztensor_with_malloc"}
C_NAMES = [
    line.split("\t")[1].removeprefix("zdnn_")
    for line in (ROOT / "tests/libzdnn/names.tsv").read_text(encoding="utf-8").splitlines()
    if line.startswith("function\t")
]
# What the fields of an arm say in options: those that C tells by other means than a parameter, and
# those that may be absent, C's NULL and a count that says "all".
OPTIONS = {
    (name, field.name): field.GetOptions().Extensions[options.zdnn_parameter]
    for name, arm in ARMS.items()
    if arm.message_type
    for field in arm.message_type.fields
}
BEYOND_C = {key for key, parameter in OPTIONS.items() if parameter.beyond_c}
MAY_BE_ABSENT = {key for key, parameter in OPTIONS.items() if parameter.absence} - BEYOND_C
REACHED = sorted(ARMS.keys() & FUNCTIONS.keys())


def test_arms_are_functions() -> None:
    """Every arm of the contract is a function of the emulator, and the other way round."""
    assert ARMS.keys() - FUNCTIONS.keys() == WITHOUT_FUNCTION
    assert FUNCTIONS.keys() <= ARMS.keys()


def test_functions_have_vectors() -> None:
    """Every function has its file of vectors, and every file its function."""
    files = {path.stem for path in VECTORS.glob("*.jsonl")}
    assert FUNCTIONS.keys() - files == WITHOUT_VECTORS, "lines that may go, or vectors to write"
    assert files <= FUNCTIONS.keys()
    assert {path.stem for path in (VECTORS / "local").glob("*.jsonl")} == LOCAL.keys()


def test_no_vector_file_is_empty() -> None:
    """A file of vectors has vectors."""
    for path in VECTORS.rglob("*.jsonl"):
        assert path.read_text(encoding="utf-8").count('"source"') > 0, path.name


def test_c_names() -> None:
    """Arms, local functions and two composed functions are the 69 functions of the C library."""
    assert len(C_NAMES) == len(set(C_NAMES)) == 69
    assert ARMS.keys() | LOCAL.keys() | COMPOSED == set(C_NAMES)
    assert not ARMS.keys() & LOCAL.keys()


def _fields(name: str) -> list[FieldDescriptor]:
    message = ARMS[name].message_type
    assert message is not None
    return list(message.fields)


@pytest.mark.parametrize("name", REACHED)
def test_fields_are_parameters(name: str) -> None:
    """An arm's fields are the function's parameters, by name and in order."""
    fields = [field.name for field in _fields(name) if (name, field.name) not in BEYOND_C]
    assert fields == list(FUNCTIONS[name].parameters)


@pytest.mark.parametrize("name", REACHED)
def test_required_and_optional_agree(name: str) -> None:
    """A parameter has a default exactly when the field may be absent."""
    parameters = FUNCTIONS[name].parameters.items()
    absent = {
        (name, key)
        for key, parameter in parameters
        if parameter.default is not inspect.Parameter.empty
    }
    assert absent == {key for key in MAY_BE_ABSENT if key[0] == name}


@pytest.mark.parametrize("name", REACHED)
def test_kinds_of_fields(name: str) -> None:
    """A ztensor is a TensorRef, a descriptor a TensorDesc, and a scalar can tell 0 from absent."""
    for field in _fields(name):
        if (name, field.name) in BEYOND_C:
            continue
        kind = FUNCTIONS[name].parameters[field.name].annotation
        message = field.message_type.name if field.message_type else None
        if kind is Ztensor:
            assert message == "TensorRef" or field.name == "ztensor", "init creates by id"
        elif kind is TensorDesc:
            assert message == "TensorDesc"
        else:
            assert message is None
            assert field.is_repeated or field.has_presence, field.name


@pytest.mark.parametrize("name", REACHED)
def test_documentation_of_functions(name: str) -> None:
    """Every function says what it does, and names a constraint for each of its numbers."""
    doc = FUNCTIONS[name].doc
    assert doc.splitlines()[0].endswith("."), "the first line is a sentence"
    numbers = [int(digits) for digits in re.findall(r"^(\d+)\. ", doc, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", REACHED)
def test_comments_of_arms(name: str) -> None:
    """The contract documents the arm under its C name, and every field."""
    text = (ROOT / "protos/nnpa/zdnn/v1/operation.proto").read_text(encoding="utf-8")
    assert f"// zdnn_{name}." in text
    assert re.search(rf"// zdnn_{name}[:.,]", text)


ENUMS: list[tuple[type[IntEnum], EnumDescriptor]] = [
    (Status, status.ZdnnStatus.DESCRIPTOR),
    (structs.DataLayouts, tensor.DataLayouts.DESCRIPTOR),
    (structs.DataFormats, tensor.DataFormats.DESCRIPTOR),
    (structs.DataTypes, tensor.DataTypes.DESCRIPTOR),
    (structs.QuantizedTransformTypes, tensor.QuantizedTransformTypes.DESCRIPTOR),
    (FunctionCode, operation.NnpaFunctionCode.DESCRIPTOR),
]


@pytest.mark.parametrize(("ours", "wire"), ENUMS, ids=[ours.__name__ for ours, _ in ENUMS])
def test_enums_are_the_contracts(ours: type[IntEnum], wire: EnumDescriptor) -> None:
    """An enum has the same names and numbers in the emulator and on the wire."""
    assert {constant.name: int(constant) for constant in ours} == {
        name: value.number for name, value in wire.values_by_name.items()
    }


CODES = [code for code in FunctionCode if code != FunctionCode.NNPA_QAF]


def _forms_of(code: FunctionCode) -> list[MachineFunction]:
    return [*functions_of(code, FORMAT_0), *functions_of(code, FORMAT_1)]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_codes_have_forms(code: FunctionCode) -> None:
    """A function of the instruction has a form of the block for each of its formats."""
    is_oldest = MACHINES["telum1"].qaf.has_function(code)
    assert bool(functions_of(code, FORMAT_0)) is is_oldest, "no form in operation.proto"
    assert functions_of(code, FORMAT_1), "no form in operation.proto"


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_forms_are_the_operations(code: FunctionCode) -> None:
    """A form has the tensors, in order, and the parameters of the operation that computes it."""
    for operation_of_code, form in ((each.operation, each.form) for each in _forms_of(code)):
        tensors = operation_of_code.tensors
        assert form.inputs == operation_of_code.inputs
        assert form.outputs == tuple(name for name in tensors if name not in form.inputs)
        parameters = inspect.signature(operation_of_code.compute).parameters.keys()
        assert {each.name for each in form.fields} == parameters - {*tensors, "guest"}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_fields_lie_apart(code: FunctionCode) -> None:
    """Function specific parameters lie in the 16 words, and no two of a form share a bit."""
    for form in (each.form for each in _forms_of(code)):
        used_bits = [
            (each.word, bit)
            for each in form.fields
            for bit in range(each.right, each.right + each.bits)
        ]
        assert len(used_bits) == len(set(used_bits)) == sum(each.bits for each in form.fields)
        assert all(1 <= word <= 16 and bit < 32 for word, bit in used_bits)


def test_an_operation_has_one_form() -> None:
    """An operation has the same form of the block for every code that issues it."""
    forms = {each.form for code in CODES for each in _forms_of(code)}
    assert len(forms) == len({form.operation for form in forms})


def test_enums_of_our_own() -> None:
    """Flags, log levels and machines have the contract's numbers and names."""
    flags = {f"FP_FLAGS_{flag.name}": int(flag) for flag in Flags if flag}
    assert flags == {name: n for name, n in operation.FpFlags.items() if n}
    levels = {f"LOG_LEVEL_{level.name}": int(level) for level in LogLevel}
    assert levels == {name: n for name, n in accelerator.LogLevel.items() if n}
    models = {name.removeprefix("MACHINE_MODEL_") for name in accelerator.MachineModel.keys()}  # noqa: SIM118 - no mapping
    assert models - {"UNSPECIFIED"} == {name.upper().replace("-", "_") for name in MACHINES}


def test_client_has_all_c_names() -> None:
    """Each of the 69 functions is a verb of the Python client, or of its session."""
    from nnpa_client import Session, zdnn

    missing = [name for name in C_NAMES if not (hasattr(zdnn, name) or hasattr(Session, name))]
    assert not missing


def test_constraints_have_tests() -> None:
    """Every numbered constraint of every function has a test of its name."""
    files = [str(path) for path in sorted((ROOT / "tests").glob("emulator/test_constraints*.py"))]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-v", "-n0", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    tested = set(re.findall(r"\b([a-z]\w*_c\d+)\b", listed))
    documented = {
        f"{name}_c{number}"
        for name, entry in FUNCTIONS.items()
        for number in re.findall(r"^(\d+)\. ", entry.doc, re.MULTILINE)
    }
    assert documented - tested == WITHOUT_CONSTRAINT_TESTS, "lines that may go, or tests to write"


SOURCES = {
    path: ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("emulator", "server", "client/python", "client/tools")
    for path in sorted((ROOT / folder).glob("*/**/*.py"))
}
EMULATORS = [path for path in SOURCES if path.is_relative_to(ROOT / "emulator")]
OUTSIDE_WORLD = {
    "os", "io", "socket", "pathlib", "subprocess", "logging", "shutil", "tempfile", "sys",
    "urllib", "http", "ssl", "asyncio", "multiprocessing", "time", "datetime",
}  # fmt: skip


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", EMULATORS, ids=_name)
def test_emulators_do_no_io(path: Path) -> None:
    """An emulator reads no file, clock or environment, opens no connection and prints nothing."""
    assert not OUTSIDE_WORLD & set(_imports(SOURCES[path]))
    assert not {"open", "print", "input", "exec", "eval"} & set(_calls(SOURCES[path]))


def test_one_reader_of_the_environment() -> None:
    """Server and client have one config.py each, the only modules that read the environment."""
    readers = {
        path
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and _takes_environment(node))
    }
    assert {_name(path) for path in readers} == {
        "server/nnpa_server/config.py",
        "client/python/nnpa_client/config.py",
    }


def _takes_environment(node: ast.ImportFrom) -> bool:
    return any(alias.name in ("environ", "getenv") for alias in node.names)


def _is_public_class(node: ast.stmt) -> TypeGuard[ast.ClassDef]:
    return isinstance(node, ast.ClassDef) and not node.name.startswith("_")


def test_public_names_are_documented() -> None:
    """Modules, and public classes, functions and methods, have a docstring."""
    assert [_name(path) for path, tree in SOURCES.items() if not ast.get_docstring(tree)] == []
    undocumented = [
        f"{_name(path)}: {node.name}"
        for path, tree in SOURCES.items()
        for scope in (tree.body, *(node.body for node in tree.body if _is_public_class(node)))
        for node in scope
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not undocumented


def test_one_licence_line() -> None:
    """A source file begins with the one SPDX line."""
    firsts = {path: path.read_text(encoding="utf-8").splitlines()[0] for path in SOURCES}
    licence = "# SPDX-License-Identifier: Apache-2.0"
    assert [_name(path) for path, first in firsts.items() if first != licence] == []


def test_no_loose_modules_beside_packages() -> None:
    """Folders that land on sys.path hold packages only, no module that could shadow another."""
    parents = (
        "server",
        "emulator",
        "client/python",
        "client/tools",
        "protos/gen/python",
        "protos/python",
    )
    assert not [_name(path) for folder in parents for path in (ROOT / folder).glob("*.py")]


# Where packages lie; what else the folder holds, such as .venv, is not ours.
OUR_FOLDERS = ("protos", "emulator", "server", "client")
TYPED = sorted(path.parent for folder in OUR_FOLDERS for path in ROOT.glob(f"{folder}/**/py.typed"))


@pytest.mark.parametrize("package", TYPED, ids=_name)
def test_packages_are_typed(package: Path) -> None:
    """A package that says that it is typed has an __init__ with a public face."""
    assert (package / "__init__.py").is_file()


def test_every_package_is_typed() -> None:
    """Each of the packages of the distribution has py.typed."""
    typed = {package.name for package in TYPED}
    built = re.findall(r'"[a-z/]+/(\w+)",', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name for name in built if (name.startswith("nnpa") or name == "mli_emulator")}
    existing = {
        name
        for name in packages
        if any(any(ROOT.glob(f"{folder}/**/{name}/__init__.py")) for folder in OUR_FOLDERS)
    }
    assert existing <= typed


@pytest.mark.heavy
def test_generated_code_is_fresh() -> None:
    """The committed wire code equals the generator's output for the contract."""
    pytest.importorskip("grpc_tools", reason="the generator is in the extra `test`")
    command = [sys.executable, str(ROOT / "protos/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_but_zdnn_names_on_the_wire() -> None:
    """Arms are numbered by family with gaps: life cycle below 20, environment from 100."""
    for name, field in ARMS.items():
        entry: Any = FUNCTIONS.get(name)
        family = field.number // 10
        is_operation = entry is None or entry.operation is not None or bool(entry.outputs)
        assert is_operation is (2 <= family <= 8), name
