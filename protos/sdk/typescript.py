# SPDX-License-Identifier: Apache-2.0
"""TypeScript: messages by protoc-gen-es, which `client/typescript` pins; verbs by template."""

import re
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

from sdk.rendering import ROOT, File, Messages, Sdk, camel
from sdk.verbs import PROTOS, Absent, Constant, Enum, Kind, Parameter, Value, Verb

HOME = ROOT / "client" / "typescript"
PLUGIN = HOME / "node_modules" / ".bin" / "protoc-gen-es"
OPTIONS = "target=ts,import_extension=js"
APIS = ("mli", "network", "zdnn")
# The details of errors, which no package of npm carries as messages of this runtime.
GOOGLE = ("google/rpc/error_details.proto", "google/rpc/status.proto")
GOOGLE_PACKAGE, GOOGLE_VERSION = "googleapis-common-protos", "1.76.0"

_TYPES = {
    Kind.ZTENSOR: "Ztensor",
    Kind.ARRAY: "UserData",
    Kind.ARRAYS: "UserData | readonly UserData[]",
    Kind.BOOL: "boolean",
    Kind.FLOAT: "number",
    Kind.INT32: "number",
    Kind.UINT32: "number",
}
_VALUES = {Value.BOOLEAN: "boolean", Value.NUMBER: "number", Value.RANGE: "[number, number]"}


def _missing() -> str:
    if version(GOOGLE_PACKAGE) != GOOGLE_VERSION:
        return f"{GOOGLE_PACKAGE} {GOOGLE_VERSION}"
    return "" if PLUGIN.exists() else "`npm ci` of client/typescript"


def _write(target: Path) -> None:
    google = distribution(GOOGLE_PACKAGE).locate_file("")
    protos = [path for api in APIS for path in sorted(PROTOS.glob(f"nnpa/{api}/**/*.proto"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{google}"]
    command += [f"--plugin=protoc-gen-es={PLUGIN}", f"--es_out={target}", f"--es_opt={OPTIONS}"]
    names = [str(path.relative_to(PROTOS)) for path in protos]
    subprocess.run([*command, *names, *GOOGLE], cwd=PROTOS, check=True)


def _type(parameter: Parameter) -> str:
    if parameter.kind is Kind.INT32S:
        return f"readonly {parameter.enum}[]"
    return parameter.enum if parameter.kind is Kind.ENUM else _TYPES[parameter.kind]


def signature(verb: Verb) -> str:
    """Return the parameters of a verb: C's, those that may be left out last, and the options.

    A verb without ztensors takes its session first.
    """
    written: list[str] = ["options?: VerbOptions"]
    trailing = True
    for parameter in reversed(verb.parameters):
        name, kind = camel(parameter.name), _type(parameter)
        if parameter.absent is Absent.REQUIRED:
            trailing = False
            written.insert(0, f"{name}: {kind}")
        elif trailing:
            written.insert(0, f"{name}?: {kind}")
        else:
            written.insert(0, f"{name}: {kind} | undefined")
    if not verb.inputs:
        written.insert(0, "session: Session")
    return "".join(f"\n  {declaration}," for declaration in written) + "\n"


def answer(verb: Verb) -> str:
    """Return the type of what a verb returns."""
    if verb.value is not Value.NOTHING:
        return _VALUES[verb.value]
    count = len(verb.outputs)
    if verb.arrays or count == 1:
        return "Ztensor"
    return f"[{', '.join(['Ztensor'] * count)}]" if count else "void"


def member(constant: Constant, enum: Enum) -> str:
    """Return a constant as protoc-gen-es names it: without the enum's name where all begin so."""
    prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
    shared = all(constant.name.startswith(prefix) for constant in enum.constants)
    return f"{enum.name}.{constant.name.removeprefix(prefix) if shared else constant.name}"


def local(name: str) -> str:
    """Return a parameter's name in TypeScript, where `in` is a word of the language."""
    return "input" if name == "in" else camel(name)


def operand(parameter: Parameter) -> str:
    """Return a tensor by C's parameter name."""
    name = local(parameter.name)
    return name if name == parameter.name else f"{parameter.name}: {name}"


def argument(parameter: Parameter) -> str:
    """Return a parameter as a field of its message."""
    name = camel(parameter.name)
    checked = {
        Kind.ZTENSOR: f'verb.ref("{parameter.name}")',
        Kind.FLOAT: f"Math.fround({name})",
        Kind.ENUM: f"{name} | 0",
        Kind.INT32: f'int32("{parameter.name}", {name})',
        Kind.UINT32: f'uint32("{parameter.name}", {name})',
        Kind.INT32S: f"{name}.map((code) => code | 0)",
    }.get(parameter.kind, name)
    optional = parameter.absent in (Absent.NULL, Absent.ALL)
    if optional:
        checked = f"{name} === undefined ? undefined : {checked}"
    return name if checked == name else f"{name}: {checked}"


SPELLING = {
    "machines": "listMachines()",
    "library": "library version in connect()",
    "free": "freeZtensorBuffer",
    "transforms": "transformZtensor and transformOrigtensor",
    "precheck": "connect(target, { precheck: true })",
    "token": "connect(target, { token })",
    "timeout": "Raise connect(target, { timeout })",
    "offer": "speak this API",
    "suite": "",
}


TYPESCRIPT = Sdk(
    name="typescript",
    home=HOME,
    files=(
        File("src/constants.gen.ts", "typescript_constants.ts.j2"),
        File("src/verbs.gen.ts", "typescript_verbs.ts.j2"),
        File("src/texts.gen.ts", "typescript_texts.ts.j2"),
        File("src/mli/kernels.gen.ts", "typescript_mli.ts.j2"),
    ),
    filters={
        "answer": answer,
        "argument": argument,
        "local": local,
        "member": member,
        "operand": operand,
        "signature": signature,
    },
    messages=Messages("src/gen", _missing, _write),
    spelling=SPELLING,
)
