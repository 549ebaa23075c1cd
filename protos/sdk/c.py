# SPDX-License-Identifier: Apache-2.0
"""C: prototypes and enums of `zdnn.h`, the Rust functions behind them, the testee's calls."""

import re
import textwrap

from sdk.rendering import ROOT, File, Sdk
from sdk.verbs import Absent, Constant, Enum, Kind, Parameter, Verb

WIDTH = 100
RUST_CALL_WIDTH = 60  # of the arguments that rustfmt leaves on one line
_C_TYPES = {
    Kind.BOOL: "bool",
    Kind.FLOAT: "float",
    Kind.INT32: "int{}_t",
    Kind.UINT32: "uint{}_t",
}
_RUST_TYPES = {
    Kind.BOOL: "bool",
    Kind.ENUM: "u32",
    Kind.FLOAT: "f32",
    Kind.INT32: "i{}",
    Kind.UINT32: "u{}",
}
FAMILIES = {
    "elementwise": "Elementwise operations.",
    "activation": "Activations.",
    "recurrent": "Recurrent layers. work_area may be NULL.",
    "matmul": "Matrix products.",
    "normalization": "Normalization and reduction.",
    "convolution": "Pooling and convolution.",
}


def _bits(parameter: Parameter) -> int:
    return parameter.options.bits or 32


def c_parameters(verb: Verb) -> list[Parameter]:
    """Return the parameters that C has, without the areas."""
    return [parameter for parameter in verb.parameters if not parameter.options.beyond_c]


def _declared(parameter: Parameter, enums: dict[str, str]) -> str:
    """Return a parameter as C declares it."""
    name = parameter.name
    if parameter.kind is Kind.ZTENSOR:
        return f"{'' if parameter.output else 'const '}zdnn_ztensor *{name}"
    if parameter.absent is Absent.NULL:
        return f"const void *{name}"
    if parameter.kind is Kind.ENUM:
        return f"{enums[parameter.enum]} {name}"
    return f"{_C_TYPES[parameter.kind].format(_bits(parameter))} {name}"


def prototype(verb: Verb, enums: list[Enum]) -> str:
    """Return the prototype of a verb, wrapped between parameters."""
    c_names = {enum.name: enum.c_name for enum in enums}
    declared: list[str] = []
    for parameter in c_parameters(verb):
        declared += [f"void *{parameter.area}"] if parameter.area else []
        declared.append(_declared(parameter, c_names))
    glued = ", ".join(text.replace(" ", "\0") for text in declared)
    line = f"zdnn_status\0zdnn_{verb.name}({glued});"
    return textwrap.fill(line, WIDTH, subsequent_indent="    ").replace("\0", " ")


def enumeration(enum: Enum) -> str:
    """Return an enum of zdnn.h."""
    sentence = re.split(r"(?<=\.) |(?<=[^.]) \(|: ", f"{enum.doc} ", maxsplit=1)[0].strip()
    lines = ",\n".join(f"  {value.name} = {_number(enum, value)}" for value in enum.constants)
    comment = sentence if sentence.endswith(".") else f"{sentence}."
    return f"/* {comment} */\ntypedef enum {enum.c_name} {{\n{lines}\n}} {enum.c_name};"


def _number(enum: Enum, constant: Constant) -> str:
    is_status = enum.c_name == "zdnn_status" and constant.number
    return f"0x{constant.number:08X}" if is_status else str(constant.number)


# What says how the outputs of a recurrent layer lie in memory.
_LAYER = """    let layer = Layer {
        input,
        h0,
        direction,
    };
"""


def _rust_type(parameter: Parameter) -> str:
    if parameter.kind is Kind.ZTENSOR:
        return f"*{'mut' if parameter.output else 'const'} Ztensor"
    if parameter.absent is Absent.NULL:
        return "*const c_void"
    return _RUST_TYPES[parameter.kind].format(_bits(parameter))


def _is_followed(verb: Verb, parameter: Parameter) -> bool:
    """Return True if the library itself reads an operand's structure, so that NULL is a crash.

    It composes recurrent layers and quantized products, and chooses the function of a product of
    stacks by the shapes of its factors.
    """
    chooses = verb.name in ("matmul_bcast_op", "matmul_transpose_op")
    is_factor = parameter.name in ("input_a", "input_b")
    return (
        verb.family == "recurrent" or verb.name == "quantized_matmul_op" or (chooses and is_factor)
    )


def _rust_field(verb: Verb, parameter: Parameter) -> str:
    """Return a parameter as a field of its message."""
    name = parameter.name
    if parameter.options.beyond_c:
        return f"{name}: None,"
    if parameter.output and verb.family == "recurrent":
        return f'{name}: operands.layer_output("{name}", {name}, &layer),'
    if parameter.kind is Kind.ZTENSOR and _is_followed(verb, parameter):
        method = "write" if parameter.output else "read"
        operand = f'"{name}", {name}' if parameter.output else name
        return f"{name}: operands.{method}({operand}, Use::default()),"
    if parameter.output:
        return f'{name}: operands.output("{name}", {name}),'
    if parameter.kind is Kind.ZTENSOR:
        return f'{name}: operands.input("{name}", {name}),'
    if parameter.absent is Absent.NULL:
        return f"{name}: optional({name}),"
    if parameter.kind is Kind.ENUM:
        return f"{name}: Some({name}.cast_signed()),"
    return f"{name}: Some({name}{'.into()' if parameter.options.bits else ''}),"


def rust(verb: Verb) -> str:
    """Return the exported function of a verb, as rustfmt would write it."""
    declared: list[str] = []
    for parameter in c_parameters(verb):
        declared += [f"{parameter.area}: *mut c_void"] if parameter.area else []
        declared.append(f"{parameter.name}: {_rust_type(parameter)}")
    start, end = f'pub unsafe extern "C" fn zdnn_{verb.name}(', ") -> Status {"
    line = f"{start}{', '.join(declared)}{end}"
    if len(line) > WIDTH:
        line = start + "\n" + "".join(f"    {text},\n" for text in declared) + end
    fields = "".join(
        f"            {_rust_field(verb, parameter)}\n" for parameter in verb.parameters
    )
    lent = f"Lent::{verb.area}({verb.area})" if verb.area else "Lent::default()"
    arguments = [f'"zdnn_{verb.name}"', lent, "&build"]
    call = f"    unsafe {{ status_of({', '.join(arguments)}) }}"
    if len(", ".join(arguments)) > RUST_CALL_WIDTH:
        lines = "".join(f"            {text},\n" for text in arguments)
        call = f"    unsafe {{\n        status_of(\n{lines}        )\n    }}"
    message, layer = verb.message, _LAYER if verb.family == "recurrent" else ""
    return f"""/// {verb.doc[0].partition(": ")[0]}: {verb.summary[:1].lower() + verb.summary[1:]}
#[unsafe(no_mangle)]
{line}
{layer}    let build = |operands: &mut Operands<'_>| unsafe {{
        Arm::{message}(wire::{message} {{
{fields}        }})
    }};
{call}
}}
"""


def testee(verb: Verb, enums: list[Enum]) -> str:
    """Return the testee's line, or lines, of a verb."""
    c_names = {enum.name: enum.c_name for enum in enums}
    arguments: list[str] = []
    for parameter in c_parameters(verb):
        arguments += ["request->area"] if parameter.area else []
        arguments.append(_testee_argument(parameter, c_names))
    glued = ", ".join(text.replace(" ", "\0") for text in (verb.name, *arguments))
    line = textwrap.fill(f"WHEN({glued});", WIDTH - 2, subsequent_indent="     ")
    return textwrap.indent(line.replace("\0", " "), "  ")


def _testee_argument(parameter: Parameter, c_names: dict[str, str]) -> str:
    name = parameter.name
    if parameter.kind is Kind.ZTENSOR:
        return f"T({name})"
    if parameter.absent is Absent.NULL:
        return f"OPTIONAL({name})"
    if parameter.kind is Kind.ENUM:
        return f"E({c_names[parameter.enum]}, {name})"
    if parameter.kind is Kind.BOOL:
        return f"FLAG({name})"
    if parameter.kind is Kind.FLOAT:
        return f"F({name})"
    cast = f"(int{parameter.options.bits}_t)" if parameter.options.bits else ""
    return f"{cast}N({name})"


def _family_comment(verb: Verb) -> str:
    return FAMILIES[verb.family]


C = Sdk(
    name="libzdnn",
    home=ROOT / "client" / "libzdnn",
    files=(
        File("include/zdnn.h", "c_enums.h.j2", "enums"),
        File("include/zdnn.h", "c_prototypes.h.j2", "operations", lambda verb: verb.computes),
        File("src/abi/constants.rs", "c_constants.rs.j2"),
        File("src/verbs/operation.rs", "c_operations.rs.j2", select=lambda verb: verb.computes),
        File("testee/operations.c", "c_testee.c.j2", select=lambda verb: verb.computes),
    ),
    filters={
        "enumeration": enumeration,
        "family_comment": _family_comment,
        "prototype": prototype,
        "rust": rust,
        "testee": testee,
    },
)
