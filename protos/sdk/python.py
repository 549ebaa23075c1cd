# SPDX-License-Identifier: Apache-2.0
"""Python: the client's verbs, constants and table of what runs where."""

import builtins
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from sdk.machines import Machine, machines
from sdk.rendering import ROOT, File, Sdk
from sdk.verbs import Absent, Enum, Kind, Parameter, Value, Verb

HOME = ROOT / "client" / "python" / "nnpa_client"
WIDTH = 100
_TYPES = {
    Kind.ZTENSOR: "Ztensor",
    Kind.BOOL: "bool",
    Kind.ENUM: "int",
    Kind.FLOAT: "float",
    Kind.INT32: "int",
    Kind.UINT32: "int",
}
_TITLES = {
    "elementwise": "Operations element by element",
    "activation": "Activations",
    "normalization": "Normalization and reduction",
    "matmul": "Products of matrices",
    "convolution": "Pooling and convolution",
    "recurrent": "Recurrent layers",
}


def joined(start: str, arguments: Sequence[str], end: str, indent: str = "") -> str:
    """Return a call or a definition, broken into lines as the formatter does."""
    line = f"{indent}{start}{', '.join(arguments)}{end}"
    if len(line) <= WIDTH:
        return line
    inner = f"{indent}    {', '.join(arguments)}"
    if len(inner) <= WIDTH and "*" not in arguments:
        return f"{indent}{start}\n{inner}\n{indent}{end}"
    lines = "".join(f"{indent}    {argument},\n" for argument in arguments)
    return f"{indent}{start}\n{lines}{indent}{end}"


def _type(parameter: Parameter) -> str:
    optional = parameter.absent in (Absent.NULL, Absent.CREATED)
    return f"{_TYPES[parameter.kind]} | None" if optional else _TYPES[parameter.kind]


def _default(parameter: Parameter) -> str:
    if parameter.absent in (Absent.NULL, Absent.CREATED):
        return "None"
    return parameter.default


def declarations(verb: Verb) -> list[str]:
    """Return the parameters of a verb in C's order, the areas in their places.

    A parameter has a default when all that follow have one; what C does not have is a keyword.
    """
    written: list[str] = []
    trailing = True
    for parameter in reversed([field for field in verb.parameters if not field.options.beyond_c]):
        default = _default(parameter)
        trailing = trailing and bool(default)
        declared = f"{parameter.name}: {_type(parameter)}"
        written.insert(0, f"{declared} = {default}" if trailing else declared)
        if parameter.area:
            written.insert(0, f"{parameter.area}: object" + (" = None" if trailing else ""))
    keywords = [
        f"{field.name}: {_type(field)} = False"
        for field in verb.parameters
        if field.options.beyond_c
    ]
    return [*written, "*", *keywords] if keywords else written


def signature(verb: Verb) -> str:
    """Return the line, or lines, of a verb's definition."""
    outputs = ", ".join(["Ztensor"] * len(verb.outputs))
    answer = f"tuple[{outputs}]" if len(verb.outputs) > 1 else outputs
    return joined(f"def {verb.name}(", declarations(verb), f") -> {answer}:")


def body(verb: Verb) -> str:
    """Return the statements of a verb: its ztensors, its message, its call."""
    outputs = ", ".join(f'"{output.name}": {output.name}' for output in verb.outputs)
    inputs = [f"{tensor.name}={tensor.name}" for tensor in verb.inputs]
    ztensors = [f'"{verb.name}"', f"{{{outputs}}}", *inputs]
    scalars = [f"{field.name}={field.name}" for field in verb.scalars]
    lines = [joined("verb = Verb(", ztensors, ")", "    ")]
    if scalars:
        lines.append(joined("message = verb.message(", [verb.message, *scalars], ")", "    "))
    else:
        lines.append(f"    message = {verb.message}(**verb.refs)")
    operation = f"Operation({verb.name}=message)"
    if len(verb.outputs) == 1:
        lines.append(f"    return verb.result({operation})")
    else:
        names = ", ".join(("first", "second", "third")[: len(verb.outputs)])
        lines += [f"    {names} = verb.run({operation})", f"    return {names}"]
    return "\n".join(lines)


def docstring(verb: Verb) -> str:
    """Return a verb's docstring: its effect, parameters with shapes, statuses and source."""
    paragraphs = [verb.summary, *verb.details]
    text = "\n\n".join(_filled(paragraph) for paragraph in paragraphs)
    listed: list[str] = []
    for parameter in verb.parameters:
        if parameter.area:
            listed.append(f"`{parameter.area}` is not used: the server owns that memory.")
        suffix = " Created when left out." if parameter.absent is Absent.CREATED else ""
        listed.append(f"`{parameter.name}`: {parameter.doc}{suffix}")
    text += "\n\n" + "\n".join(_filled(f"- {line}", "  ") for line in listed)
    outputs = ", ".join(f"`{output.name}`" for output in verb.outputs)
    returned = f"Returns {outputs if len(verb.outputs) == 1 else f'the pair {outputs}'}."
    text += "\n\n" + _filled(f"{returned} {_RAISED}")
    text += f"\nSource: zDNN API Reference 1.2.0, zdnn_{verb.name}."
    return textwrap.indent(f'"""{text}\n"""', "    ", lambda line: bool(line.strip()))


def query(verb: Verb) -> str:
    """Return a function that asks the library of the innermost session."""
    codes = [field.name for field in verb.parameters if field.kind is Kind.INT32S]
    names = [field.name for field in verb.parameters if field.name not in codes]
    declared = [*(f"{name}: int" for name in names), *(f"*{name}: int" for name in codes)]
    answer = {Value.BOOLEAN: "bool", Value.NUMBER: "int"}.get(verb.value, "None")
    paragraphs = [_filled(paragraph) for paragraph in (verb.summary, *verb.details)]
    listed = [_filled(f"- `{field.name}`: {field.doc}", "  ") for field in verb.parameters]
    source = f"Source: zDNN API Reference 1.2.0, zdnn_{verb.name}."
    text = "\n\n".join(part for part in (*paragraphs, "\n".join(listed), source) if part)
    documented = textwrap.indent(f'"""{text}\n"""', "    ", lambda line: bool(line.strip()))
    call = f"current_session().{verb.name}({', '.join([*names, *(f'*{name}' for name in codes)])})"
    start = joined(f"def {verb.name}(", declared, f") -> {answer}:")
    return f"{start}\n{documented}\n    {'' if answer == 'None' else 'return '}{call}"


_RAISED = (
    "Raises ZdnnError for a status that is an error, ProgramCheck for operands that contradict "
    "each other without precheck; warns with ZdnnWarning of elements that are not numbers."
)


def _filled(text: str, hang: str = "") -> str:
    return textwrap.fill(text, WIDTH - 4, subsequent_indent=hang, break_on_hyphens=False)


def title(verbs: Sequence[Verb]) -> str:
    """Return the first line of a family's module."""
    return f"{_TITLES[verbs[0].family]}: {len(verbs)} verbs of zDNN."


def noqa(verbs: Sequence[Verb]) -> str:
    """Return the comment that allows names of builtins and unused areas, or ""."""
    names = {parameter.name for verb in verbs for parameter in verb.parameters}
    rules = {
        "A001": any(hasattr(builtins, verb.name) for verb in verbs),
        "A002": any(hasattr(builtins, name) for name in names),
        "ARG001": any(verb.area for verb in verbs),
    }
    codes = ", ".join(code for code, broken in rules.items() if broken)
    reason = "names and places of C functions and their parameters"
    return f"# ruff: noqa: {codes} - {reason}\n" if codes else ""


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(int(part), "") if part.isdigit() else (1 << 32, part) for part in parts]


def imports(verbs: Sequence[Verb]) -> str:
    """Return the names that a family's module takes from the contract, constants first."""
    defaults = {
        written.rpartition(" = ")[2]
        for verb in verbs
        for written in declarations(verb)
        if re.search(r" = [A-Z][A-Z0-9_]+$", written)
    }
    messages = {"Operation", *(verb.message for verb in verbs)}
    names = sorted(defaults, key=_natural) + sorted(messages, key=_natural)
    return "".join(f"    {name},\n" for name in names)


def constants(enums: Iterable[Enum]) -> str:
    """Return the imports that give zDNN's enums their names in `wire_enums.py`."""
    names = {
        (enum.module, constant.name)
        for enum in enums
        if enum.zdnn and enum.name != "ZdnnStatus"
        for constant in enum.constants
    }
    ordered = sorted(names, key=lambda pair: (pair[0], _natural(pair[1])))
    return "".join(
        f"from nnpa.zdnn.v1.{module}_pb2 import (\n"
        + "".join(f"    {name} as {name},\n" for _, name in pairs)
        + ")\n"
        for module, pairs in groupby(ordered, key=lambda pair: pair[0])
    )


def facts(verb: Verb, codes: Sequence[Enum]) -> str:
    """Return a verb's entry in the table of `machine_table.py`."""
    options = verb.options
    arguments = [f'"{options.since}"']
    if options.code:
        numbers = {constant.name: constant.number for enum in codes for constant in enum.constants}
        arguments.append(f"code={numbers[options.code]}")
    if options.HasField("parmblk_format"):
        arguments.append(f"parmblk_format={options.parmblk_format}")
    if options.needs_limits:
        arguments.append("needs_limits=True")
    if any(parameter.options.dlfloat16 for parameter in verb.parameters):
        arguments.append("converts_scalar=True")
    long = {"on_format_0": options.on_format_0, "on_1_0": options.on_library_1_0}
    arguments += [f"{name}={_literal(text)}" for name, text in long.items() if text]
    return joined(f'"{verb.name}": Function(', arguments, "),", "        ")


def host(machine: Machine) -> str:
    """Return a machine's entry in the table of `machine_table.py`."""
    formats = "{" + ", ".join(map(str, machine.formats)) + "}" if machine.formats else ""
    arguments = [*machine.arguments, f"frozenset({formats})"]
    arguments += [] if machine.options.vector_nnp else ["vector_nnp=False"]
    lacks = ", ".join(f'{code.number}: "{code.name}"' for code in machine.lacks)
    arguments += [f"lacks={{{lacks}}}"] if lacks else []
    return joined("Host(", arguments, "),", " " * 12)


def _literal(text: str) -> str:
    """Return a string literal, in parentheses when it takes several lines."""
    if len(text) <= WIDTH - 30:
        return f'"{text}"'
    lines = textwrap.wrap(text, WIDTH - 24, drop_whitespace=False)
    return "(\n" + "".join(f'                "{line}"\n' for line in lines) + "            )"


def _family(name: str) -> File:
    return File(f"zdnn/_{name}.py", "python_verbs.py.j2", select=lambda verb: verb.family == name)


SPELLING = {
    "machines": "`nnpa info`",
    "library": "library version in connect()",
    "free": "`del`, free_ztensor_buffer",
    "transforms": "transform_ztensor and transform_origtensor",
    "precheck": "connect(precheck=True)",
    "token": "connect(token=...)",
    "timeout": "Raise connect(timeout=...)",
    "offer": "speak nnpa.zdnn.v1",
    "suite": ", in a suite of pytest by nnpa_server_flags",
}


def entry(name: str, text: str) -> str:
    """Return an entry of a mapping, its text in several literals if it is long."""
    start = f'        "{name}": '
    if len(start) + len(text) <= WIDTH - len('"",'):
        return f'{start}"{text}",\n'
    width = WIDTH - len(start) - len('""')
    lines = textwrap.wrap(text, width, drop_whitespace=False, break_on_hyphens=False)
    literals = [f'"{line}"' for line in lines]
    return start + "\n        ".join(literals) + ",\n"


PYTHON = Sdk(
    name="python",
    home=HOME,
    files=(
        *(_family(name) for name in _TITLES),
        File(
            "zdnn/_environment.py",
            "python_environment.py.j2",
            select=lambda verb: verb.family == "environment",
        ),
        File("zdnn/_statuses.py", "python_statuses.py.j2"),
        File("_values/wire_enums.py", "python_constants.py.j2"),
        File("_values/machine_table.py", "python_availability.py.j2"),
        File("_values/advice.py", "python_advice.py.j2"),
        File("_values/macros.py", "python_macros.py.j2"),
        File("_values/statuses.py", "python_status.py.j2"),
    ),
    filters={
        "body": body,
        "constants": constants,
        "docstring": docstring,
        "entry": entry,
        "facts": facts,
        "host": host,
        "family_title": title,
        "imports": imports,
        "machines": machines,
        "noqa": noqa,
        "query": query,
        "signature": signature,
    },
    spelling=SPELLING,
)
