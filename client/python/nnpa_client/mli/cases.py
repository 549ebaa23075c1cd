# SPDX-License-Identifier: Apache-2.0
"""Recorded calls as text, for the unit tests of firmware: JSON, or a C header.

A header needs <stdint.h> only and knows no version of the library: arrays and numbers, from which
a test fills the library's own mli_tensor.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from nnpa.mli.v1.mli_pb2 import MLI_EL_FP_32, ElType

from nnpa_client.mli.calls import Case
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

    Tensors that were given come with their fields and the first `capacity` bytes as elements
    (MLI_EL_FP_32 as bit patterns), written ones once more, as expected. Where a status other than
    MLI_STATUS_OK is expected, nothing is written.
    """
    if format == "json":
        return _readable(_document(case)) + "\n"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name: {name!r}, must be an identifier of C")
    return "\n".join(_header(case, name)) + "\n"


def _storage(one: Tensor) -> np.dtype[Any]:
    """Return how the memory is written down: elements, bit patterns of floats, or bytes."""
    if one.el_type == MLI_EL_FP_32:
        return np.dtype("<u4")
    return DTYPES.get(one.el_type, np.dtype("u1"))


def _elements(one: Tensor) -> list[int]:
    """Return what is in the memory as numbers."""
    dtype, data = _storage(one), one.contents
    whole = len(data) - len(data) % dtype.itemsize
    return [int(value) for value in np.frombuffer(data[:whole], dtype)]


def _type_name(el_type: int) -> str:
    known = el_type in ElType.values()
    return ElType.Name(ElType.ValueType(el_type)) if known else str(el_type)


def _described(one: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "el_type": _type_name(one.el_type),
        "el_type_number": one.el_type,
        "rank": one.rank,
        "shape": list(one.shape),
        "mem_stride": list(one.mem_stride),
        "capacity": one.capacity,
    }
    if one.el_params is not None:
        found |= {key: _plain(value) for key, value in asdict(one.el_params).items()}
    return found | {"data": None if one.memory is None else _elements(one)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _document(case: Case) -> dict[str, Any]:
    tensors = {name: _described(one) for name, one in case.before.items()}
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
            "tensors": {name: _described(one) for name, one in case.after.items()},
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
    for field, one in case.before.items():
        yield from _declared(f"{name}_{_identifier(field)}", field, one)
        if field in case.shared:
            owner, offset = case.shared[field]
            yield f"/* {field} begins {offset} bytes after {owner}, in the same memory. */"
    for field, one in case.after.items():
        yield from _declared(f"{name}_expected_{_identifier(field)}", f"{field} afterwards", one)
    yield from ("", f"#endif /* {guard} */")


def _identifier(field: str) -> str:
    return field.replace(".", "_")


def _argument(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _argument(f"{name}_{key}", one)
    elif isinstance(value, Sequence):
        yield from _array(name, "uint32", [int(one) for one in value])
    elif value is not None:
        yield f"enum {{ {name} = {int(value)} }};"


def _declared(name: str, title: str, one: Tensor) -> Iterator[str]:
    yield from ("", f"/* {title}: {_type_name(one.el_type)} */")
    facts = {"el_type": one.el_type, "rank": one.rank, "capacity": one.capacity}
    if isinstance(one.el_params, FxParams):
        facts["frac_bits"] = one.el_params.frac_bits
    elif isinstance(one.el_params, SaParams):
        facts["dim"] = one.el_params.dim
    yield "enum { " + ", ".join(f"{name}_{key} = {value}" for key, value in facts.items()) + " };"
    pad = [0] * MLI_MAX_RANK
    yield from _array(f"{name}_shape", "uint32", [*one.shape, *pad][:MLI_MAX_RANK])
    yield from _array(f"{name}_mem_stride", "int32", [*one.mem_stride, *pad][:MLI_MAX_RANK])
    if isinstance(one.el_params, SaParams):
        yield from _array(f"{name}_zero_point", "int16", one.el_params.zero_point)
        yield from _array(f"{name}_scale", "int16", one.el_params.scale)
        yield from _array(f"{name}_scale_frac_bits", "int8", one.el_params.scale_frac_bits)
    if one.memory is not None:
        yield from _array(f"{name}_data", _storage(one).name, _elements(one))


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
    """Return a literal without a warning: the smallest int32 is no literal of C, large ones are."""
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{value}u" if value > (1 << 31) - 1 else str(value)
