# SPDX-License-Identifier: Apache-2.0
"""Java: messages and stubs are made by the build of `client/java`; verbs by template."""

import re
import textwrap
from collections.abc import Iterable

from sdk import advice
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


def signature(parameters: Iterable[Parameter], session: bool, numbers: bool = False) -> str:
    """Return the parameters of a method, a list last; without ztensors, the session comes first.

    Many go on lines of their own.
    """
    ordered = sorted(parameters, key=lambda parameter: parameter.kind in (Kind.INT32S, Kind.ARRAYS))
    written = ["Session session"] if session else []
    line = ", ".join([*written, *(declared(parameter, numbers) for parameter in ordered)])
    if len(line) <= SHORT:
        return line
    indent = "      "
    pairs = line.replace(" ", "\0").replace(",\0", ", ")
    wrapped = textwrap.fill(pairs, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n" + wrapped.replace("\0", " ")


def member(name: str) -> str:
    """Return a field's name in the methods of its message: `conv2d` is `Conv2D`."""
    return re.sub(r"(?<=[0-9])[a-z]", lambda match: match[0].upper(), pascal(name))


def setter(parameter: Parameter, numbers: bool = False) -> str:
    """Return the call that puts a parameter into its message."""
    name, field = camel(parameter.name), member(parameter.name)
    if parameter.kind is Kind.ZTENSOR:
        created = parameter.output and parameter.absent is Absent.CREATED
        return f'set{field}(verb.{"output" if created else "existing"}("{parameter.name}", {name}))'
    if parameter.kind is Kind.ENUM and numbers:
        return f"set{field}Value({name})"
    return f"set{field}({name})"


def answer(verb: Verb) -> str:
    """Return the type of what a verb returns."""
    if verb.value is not Value.NOTHING:
        return _VALUES[verb.value]
    if len(verb.outputs) > 1:
        return f"{verb.message}Outputs"
    return "Ztensor" if verb.outputs else "void"


def javadoc(paragraphs: Iterable[str], indent: str = "  ") -> str:
    """Return paragraphs, and what begins with "@", as the lines between `/**` and `*/`."""
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


def _case(name: str, text: str) -> str:
    """Return a case of a switch, in two lines if it is long."""
    start, end = f'      case "{name}" ->', f'"{text}";\n'
    return f"{start} {end}" if len(start + end) <= 100 else f"{start}\n          {end}"


JAVA = Sdk(
    name="java",
    home=ROOT / "client" / "java",
    files=(
        File("src/main/java/dev/nnpa/Advice.java", "java_advice.java.j2"),
        File("src/main/java/dev/nnpa/Zdnn.java", "java.java.j2"),
    ),
    filters={
        **advice.filters(SPELLING, _case, _case),
        "signature": signature,
        "setter": setter,
        "member": member,
        "answer": answer,
        "javadoc": javadoc,
    },
)
