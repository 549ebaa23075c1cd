# SPDX-License-Identifier: Apache-2.0
"""Export recorded calls for unit tests of firmware: as JSON, or as a C header.

A header needs only <stdint.h>, and fits every version of the library: a test fills its mli_tensor
from the header's arrays and numbers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from nnpa.mli.v1.mli_pb2 import MLI_EL_FP_32, ElType

from nnpa_client._values.fields import enum_name
from nnpa_client.mli.calls import Case, Value
from nnpa_client.mli.errors import status_name
from nnpa_client.mli.tensor import DTYPES, FxParams, SaParams, Tensor

MLI_MAX_RANK = 4
_PER_LINE = 16
_C_TYPES = {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32)}


def export_case(
    case: Case,
    format: Literal["json", "c"] = "json",  # noqa: A002 - the word that says it
    name: str = "case",
) -> str:
    """Return a recorded call as JSON or as a C header; `name` begins every C identifier.

        with mli.record() as cases:
            mli.krn_tanh_fx8(x)
        Path("tanh.h").write_text(mli.export_case(cases[0], "c", "tanh_1"))

    Each tensor has its fields, and its first `capacity` bytes as elements (MLI_EL_FP_32 as bit
    patterns). The tensors that the call wrote follow as expected values, none for a status other
    than MLI_STATUS_OK.
    """
    if format not in ("json", "c"):
        raise ValueError(f"format: {format!r}, expected 'json' or 'c'")
    if format == "json":
        return _readable(_document(case)) + "\n"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name: {name!r}, must be an identifier of C")
    return "\n".join(_header(case, name)) + "\n"


def _storage(tensor: Tensor) -> np.dtype[np.generic]:
    """Return the exported type of the memory: elements, bit patterns of floats, or bytes."""
    if tensor.el_type == MLI_EL_FP_32:
        return np.dtype("<u4")
    return DTYPES.get(tensor.el_type, np.dtype("u1"))


def _elements(tensor: Tensor) -> list[int]:
    """Return the contents of the memory as numbers of the exported type."""
    dtype, data = _storage(tensor), tensor.contents
    whole = len(data) - len(data) % dtype.itemsize
    return [int(value) for value in np.frombuffer(data[:whole], dtype)]


def _describe(tensor: Tensor) -> dict[str, object]:
    fields: dict[str, object] = {
        "el_type": enum_name(ElType.DESCRIPTOR, tensor.el_type),
        "el_type_number": tensor.el_type,
        "rank": tensor.rank,
        "shape": list(tensor.shape),
        "mem_stride": list(tensor.mem_stride),
        "capacity": tensor.capacity,
    }
    if tensor.el_params is not None:
        fields |= asdict(tensor.el_params)
    return fields | {"data": None if tensor.memory is None else _elements(tensor)}


def _document(case: Case) -> dict[str, Any]:
    tensors = {name: _describe(tensor) for name, tensor in case.before.items()}
    for name, (owner, offset) in case.shared.items():
        tensors[name]["same_memory_as"] = {"field": owner, "offset": offset}
    return {
        "kernel": f"mli_{case.kernel}",
        "options": asdict(case.options),
        "arguments": {key: value for key, value in case.values.items() if value is not None},
        "tensors": tensors,
        "expected": {
            "status": case.status,
            "status_name": status_name(case.status),
            "number": case.number,
            "refusal": case.refusal,
            "tensors": {name: _describe(tensor) for name, tensor in case.after.items()},
        },
    }


def _readable(document: dict[str, Any]) -> str:
    """Return JSON with one line per tensor, however many elements it has."""
    lines: list[str] = []
    for key, value in document.items():
        text = json.dumps(value)
        tensors = value if key == "tensors" else value["tensors"] if key == "expected" else {}
        for name, tensor in tensors.items():
            line = f"{json.dumps(name)}: {json.dumps(tensor)}"
            text = text.replace(line, f"\n  {line}", 1)
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def _header(case: Case, name: str) -> Iterator[str]:
    guard = f"{name.upper()}_H"
    options = ", ".join(f"{key} {value}" for key, value in asdict(case.options).items())
    yield f"/* mli_{case.kernel}: {options}."
    yield f"   Expected: {status_name(case.status)}. {case.refusal}".rstrip() + " */"
    yield from (f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "")
    yield f"enum {{ {name}_status = {case.status} }};"
    if case.number is not None:
        yield f"enum {{ {name}_number = {case.number} }};"
    for key, value in case.values.items():
        yield from _argument(f"{name}_{key}", value)
    for field, tensor in case.before.items():
        yield from _declare(f"{name}_{_identifier(field)}", field, tensor)
        if field in case.shared:
            owner, offset = case.shared[field]
            yield f"/* {field} begins {offset} bytes after {owner}, in the same memory. */"
    for field, tensor in case.after.items():
        yield from _declare(f"{name}_expected_{_identifier(field)}", f"{field} afterwards", tensor)
    yield from ("", f"#endif /* {guard} */")


def _identifier(field: str) -> str:
    return field.replace(".", "_")


def _argument(name: str, value: Value) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, setting in value.items():
            yield from _argument(f"{name}_{key}", setting)
    elif isinstance(value, Sequence):
        yield from _array(name, "uint32", [int(number) for number in value])
    elif value is not None:
        yield f"enum {{ {name} = {int(value)} }};"


def _declare(name: str, title: str, tensor: Tensor) -> Iterator[str]:
    yield from ("", f"/* {title}: {enum_name(ElType.DESCRIPTOR, tensor.el_type)} */")
    facts = {"el_type": tensor.el_type, "rank": tensor.rank, "capacity": tensor.capacity}
    if isinstance(tensor.el_params, FxParams):
        facts["frac_bits"] = tensor.el_params.frac_bits
    elif isinstance(tensor.el_params, SaParams):
        facts["dim"] = tensor.el_params.dim
    yield "enum { " + ", ".join(f"{name}_{key} = {value}" for key, value in facts.items()) + " };"
    pad = [0] * MLI_MAX_RANK
    yield from _array(f"{name}_shape", "uint32", [*tensor.shape, *pad][:MLI_MAX_RANK])
    yield from _array(f"{name}_mem_stride", "int32", [*tensor.mem_stride, *pad][:MLI_MAX_RANK])
    if isinstance(tensor.el_params, SaParams):
        yield from _array(f"{name}_zero_point", "int16", tensor.el_params.zero_point)
        yield from _array(f"{name}_scale", "int16", tensor.el_params.scale)
        yield from _array(f"{name}_scale_frac_bits", "int8", tensor.el_params.scale_frac_bits)
    if tensor.memory is not None:
        yield from _array(f"{name}_data", _storage(tensor).name, _elements(tensor))


def _array(name: str, kind: str, values: Sequence[int]) -> Iterator[str]:
    if not values:
        yield f"/* {name}: empty */"
        return
    written = [_literal(value) for value in values]
    yield f"static const {_C_TYPES[kind]} {name}[{len(values)}] = {{"
    for start in range(0, len(written), _PER_LINE):
        yield "  " + ", ".join(written[start : start + _PER_LINE]) + ","
    yield "};"


def _literal(value: int) -> str:
    """Return a literal without compiler warnings: -2^31 is an expression, 2^31 and above get u."""
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{value}u" if value > (1 << 31) - 1 else str(value)
