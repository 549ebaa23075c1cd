# SPDX-License-Identifier: Apache-2.0
"""A machine as text: a name, JSON of a custom machine, or the path of a file of such JSON.

    {"base": "telum2", "max_dim1": 64, "removed_functions": ["NNPA_SQRT"]}

`base` is a name or alias, by default telum2; the other keys are the fields of `MachineSpec`. Text
with a slash or a dot is a path: no machine's name has one. libzdnn reads ZDNN_MACHINE the same way.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import EnumValueDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from nnpa.zdnn.v1.accelerator_pb2 import GetMachineRequest, MachineModel, MachineSpec
from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode
from nnpa.zdnn.v1.options_pb2 import zdnn_code

from nnpa_client._server.methods import GET_MACHINE
from nnpa_client._server.transport import Transport
from nnpa_client._values.availability import Host, find_host

__tracebackhide__ = True  # pytest shows the line that called, not these

_DEFAULT_BASE = "telum2"
_FIELDS = tuple(field.name for field in MachineSpec.DESCRIPTOR.fields if field.name != "model")
_MAX_BYTES = 1 << 16
_MODEL = "MACHINE_MODEL_"
_CODES = NnpaFunctionCode.DESCRIPTOR.values
_FORMATS, _FIRST = 2, 1 << 31  # of a parameter block; the first bit of a mask


def read_machine(text: str) -> tuple[str, MachineSpec]:
    """Return a machine's name, and the fields that differ from it; ValueError names a field."""
    if text.lstrip().startswith("{"):
        return _parse(text, "machine")
    if "/" in text or "." in text:
        return _parse(_contents(text), f"machine: {text}")
    return text, MachineSpec()


def machine_spec(transport: Transport, machine: object) -> MachineSpec:
    """Return the specification of a machine; the server tells the model of a name."""
    if isinstance(machine, MachineSpec):
        return machine
    if not isinstance(machine, str):
        raise TypeError(f"machine: {machine!r}, expected a name, JSON, its file, or a MachineSpec")
    base, spec = read_machine(machine)
    spec.model = transport.unary(GET_MACHINE, GetMachineRequest(name=f"machines/{base}")).model
    return spec


def find_machine(text: str) -> Host:
    """Return the availability facts of a machine; ValueError names a wrong field."""
    base, spec = read_machine(text)
    host = find_host(base)
    if spec == MachineSpec():
        return host
    if not host.parmblk_formats:
        raise ValueError(f"machine: {host.name} has no NNPA to customise")
    formats = host.parmblk_formats
    if spec.HasField("parmblk_formats_mask"):
        mask = spec.parmblk_formats_mask
        formats = frozenset(number for number in range(_FORMATS) if mask & _FIRST >> number)
    return replace(
        host,
        name=f"{host.name}-custom",
        title=f"{host.title}, custom",
        aliases=(),
        parmblk_formats=formats,
        base=host.name,
        lacks={code.number: code.name for code in _CODES if not _has(host, spec, code)},
    )


def _has(host: Host, spec: MachineSpec, code: EnumValueDescriptor) -> bool:
    """Return whether a custom machine has a function: its base's, less removed, plus added ones."""
    number = code.GetOptions().Extensions[zdnn_code].parmblk_format
    is_of_base = number in host.parmblk_formats and code.number not in host.lacks
    is_left = is_of_base and code.number not in spec.removed_functions
    return is_left or code.number in spec.added_functions


def machine_text(spec: MachineSpec) -> str:
    """Return the JSON of a custom machine."""
    fields = MessageToDict(spec, preserving_proto_field_name=True)
    fields.pop("model", None)
    integers = {name: int(value) for name, value in fields.items() if isinstance(value, str)}
    base = MachineModel.Name(spec.model).removeprefix(_MODEL).lower().replace("_", "-")
    return json.dumps({"base": base if spec.model else _DEFAULT_BASE, **fields, **integers})


def _contents(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(
            f"machine: {path}: {error.strerror}; expected a machine's name, JSON, or a file of it"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"machine: {path}: not UTF-8, expected JSON") from None
    if len(text) > _MAX_BYTES:
        raise ValueError(f"machine: {path}: more than {_MAX_BYTES} characters, expected JSON")
    return text


def _parse(text: str, where: str) -> tuple[str, MachineSpec]:
    try:
        document: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: no JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{where}: expected an object with base and fields of MachineSpec")
    base = document.pop("base", _DEFAULT_BASE)
    if not isinstance(base, str):
        raise ValueError(f"{where}: base: {base!r}, expected a machine's name")
    spec = MachineSpec()
    for name, value in document.items():
        if name not in _FIELDS:
            raise ValueError(f"{where}: {name}: unknown, expected base or {', '.join(_FIELDS)}")
        try:
            ParseDict({name: value}, spec)
        except ParseError:
            kind = "a list of names" if name.endswith("_functions") else "a number from 0"
            raise ValueError(f"{where}: {name}: {value!r}, expected {kind}") from None
    return base, spec
