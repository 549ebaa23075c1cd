# SPDX-License-Identifier: Apache-2.0
"""Java: messages and stubs are made by the build of `client/java`; verbs by template."""

import re
import textwrap
from collections.abc import Iterable
from itertools import chain

from sdk.mli import Kernel
from sdk.rendering import ROOT, File, Sdk, camel, comment, pascal
from sdk.verbs import Absent, Kind, Parameter, Value, Verb

_TYPES = {
    Kind.ZTENSOR: "Ztensor",
    Kind.ARRAY: "UserArray",
    Kind.ARRAYS: "UserArray...",
    Kind.BOOL: "boolean",
    Kind.FLOAT: "float",
    Kind.INT32: "int",
    Kind.UINT32: "int",
}
# Longest list of parameters that stays on the line of a method's name, characters.
SHORT = 45
_VALUES = {Value.BOOLEAN: "boolean", Value.NUMBER: "long", Value.RANGE: "FloatRange"}


def declared(parameter: Parameter, numbers: bool = False) -> str:
    """Return type and name of a parameter; `numbers` takes enums as any number."""
    kind, name = parameter.kind, camel(parameter.name)
    if kind is Kind.ENUM:
        return f"{'int' if numbers else parameter.enum} {name}"
    if kind is Kind.INT32S:
        return f"{'int' if numbers else parameter.enum}... {name}"
    if kind is Kind.FLOAT and parameter.absent is Absent.NULL:
        return f"Float {name}"
    return f"{_TYPES[kind]} {name}"


def ordered(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return parameters with a list behind all others."""
    return sorted(parameters, key=lambda parameter: parameter.kind in (Kind.INT32S, Kind.ARRAYS))


def signature(parameters: Iterable[Parameter], session: bool, numbers: bool = False) -> str:
    """Return the parameters of a method; without ztensors, the session comes first."""
    written = ["Session session"] if session else []
    return wrapped([*written, *(declared(field, numbers) for field in ordered(parameters))])


def kernel_signature(kernel: Kernel) -> str:
    """Return the parameters of a kernel, intermediate results behind the configuration."""
    cells = ["RnnCellCfg cfg", "MliTensor irTsr"]
    written = [
        cells if field.kind is Kind.STRUCTURE else [f"MliTensor {camel(field.name)}"]
        for field in kernel.verb.parameters
    ]
    return wrapped(chain.from_iterable(written))


def wrapped(declarations: Iterable[str]) -> str:
    """Return declarations of parameters; many go on lines of their own."""
    line = ", ".join(declarations)
    if len(line) <= SHORT:
        return line
    indent = "      "
    pairs = line.replace(" ", "\0").replace(",\0", ", ")
    filled = textwrap.fill(pairs, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n" + filled.replace("\0", " ")


def member(name: str) -> str:
    """Return a field's name in the methods of its message: `conv2d` is `Conv2D`."""
    return re.sub(r"(?<=[0-9])[a-z]", lambda match: match[0].upper(), pascal(name))


def setter(parameter: Parameter) -> str:
    """Return the call that puts a parameter into its message; enums are numbers."""
    name, field = camel(parameter.name), member(parameter.name)
    if parameter.kind is Kind.ZTENSOR:
        created = parameter.output and parameter.absent is Absent.CREATED
        return f'set{field}(verb.{"output" if created else "existing"}("{parameter.name}", {name}))'
    if parameter.kind is Kind.INT32S:
        return f"addAll{field}(Arrays.stream({name}).boxed().toList())"
    return f"set{field}{'Value' if parameter.kind is Kind.ENUM else ''}({name})"


def numbers(verb: Verb, codes: Parameter | None) -> str:
    """Return the arguments of a verb with the numbers of its enums; `codes` is a list of these."""
    written = [] if verb.inputs else ["session"]
    for parameter in ordered(verb.parameters):
        name = camel(parameter.name)
        if parameter is codes:
            name = f"Arrays.stream({name}).mapToInt({parameter.enum}::getNumber).toArray()"
        elif codes:
            name = f"{camel(codes.name)}.length"
        written.append(f"{name}.getNumber()" if parameter.kind is Kind.ENUM else name)
    return ", ".join(written)


def answer(verb: Verb) -> str:
    """Return the type of what a verb returns."""
    if verb.value is not Value.NOTHING:
        return _VALUES[verb.value]
    if len(verb.outputs) > 1:
        return f"{verb.message}Outputs"
    return "Ztensor" if verb.outputs else "void"


def javadoc(paragraphs: Iterable[str], indent: str = "  ") -> str:
    """Return paragraphs and tags (they begin with "@") as the lines between `/**` and `*/`."""
    first, *rest = (_html(paragraph) for paragraph in paragraphs)
    written = [comment(first, f"{indent} * ")]
    tags = False
    for paragraph in rest:
        if not paragraph.startswith("@"):
            paragraph = f"<p>{paragraph}"
        if not (tags and paragraph.startswith("@")):
            written.append(f"{indent} *")
        tags = paragraph.startswith("@")
        hang = f"{indent} *     " if tags else f"{indent} * "
        written.append(f"{indent} * " + comment(paragraph, hang)[len(hang) :])
    return "\n".join(written)


def _html(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"`([^`]*)`", r"{@code \1}", escaped)


SPELLING = {
    "machines": "Session.machines",
    "library": "version with Options.library",
    "free": "Ztensors.freeZtensorBuffer",
    "transforms": "transformZtensor and transformOrigtensor",
    "precheck": "Options.precheck",
    "token": "Endpoint.withToken",
    "timeout": "Raise Endpoint.withTimeout",
    "offer": "speak nnpa.zdnn.v1",
    "suite": "",
}


JAVA = Sdk(
    name="java",
    home=ROOT / "client" / "java",
    files=(
        File("src/main/java/dev/nnpa/Constants.java", "java_constants.java.j2"),
        File("src/main/java/dev/nnpa/MliKernels.java", "java_mli.java.j2"),
        File("src/main/java/dev/nnpa/Texts.java", "java_texts.java.j2"),
        File("src/main/java/dev/nnpa/Zdnn.java", "java.java.j2"),
    ),
    filters={
        "kernel_signature": kernel_signature,
        "signature": signature,
        "setter": setter,
        "member": member,
        "answer": answer,
        "javadoc": javadoc,
        "numbers": numbers,
    },
    spelling=SPELLING,
)
