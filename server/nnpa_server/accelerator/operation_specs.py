# SPDX-License-Identifier: Apache-2.0
"""How each arm of Operation is read: its fields are the function's keyword arguments.

An `Arm` is made once from the arm's message descriptor and the emulator's function of the same
name; nothing here knows any operation by name but where the contract gives one a rule of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa_emulator import FUNCTIONS, TensorDesc
from nnpa_emulator.machine import LIBRARY_VERSIONS
from nnpa_emulator.pipeline import Function

from nnpa_server.errors import invalid, unspecified

Message: TypeAlias = Any  # a message of an arm: its fields are known at run time only
Reader: TypeAlias = Callable[[Message, str], Any]

_UNSIGNED = 0xFFFFFFFF
_INT8 = ("clip_min", "clip_max")
_COUNTED = {"is_nnpa_function_installed": "function_codes",
            "is_nnpa_parmblk_fmt_installed": "format_codes"}  # fmt: skip
_COMPUTE = range(20, 90)
# What life-cycle arms write: `ztensor` but for these. Source: nnpa/zdnn/v1/operation.proto.
_WRITTEN = {"reshape_ztensor": ("dest",), "getrange_ztensor": (), "transform_origtensor": ()}
# Arms that change the structure and leave the buffer's contents alone.
_STRUCTURE_ONLY = frozenset(("reset_ztensor", "free_ztensor_buffer"))
# Inputs from which new outputs take their pre-transformed descriptor, where not the first alone.
_PATTERNS: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("matmul_bcast_op", "matmul_transpose_op"), ("input_a", "input_b")
)
# What a range violation, or a conversion that fails, ends early.
_MAY_LEAVE = frozenset(("lstm", "gru", "reshape_ztensor"))
_NEEDS_PRE = frozenset(
    (
        "transform_ztensor",
        "transform_ztensor_with_saturation",
        "transform_quantized_ztensor",
        "transform_origtensor",
        "reshape_ztensor",
    )
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: which fields are tensors, what becomes of them, and how the others are read.

    `creates` names the field that holds the id of a tensor to create. `written` are the tensors
    that results report; `filled` those of them whose buffer is written; `may_be_new` those that
    may be left to the server; `read` those whose contents are read. `may_leave` tells whether
    outputs may be told that were not written. `hints` are values that only the derivation of new
    outputs takes, `pattern` the inputs whose pre-transformed descriptors it starts from. `since` is
    the library version that first had it.
    """

    name: str
    function: Function
    tensors: tuple[str, ...]
    values: tuple[tuple[str, Reader], ...]
    hints: tuple[tuple[str, Reader], ...]
    creates: str | None
    frees: bool
    written: tuple[str, ...]
    filled: frozenset[str]
    may_be_new: frozenset[str]
    read: frozenset[str]
    may_leave: bool
    needs_pre: bool
    pattern: frozenset[str]
    compute: bool
    since: int


# One object for equal descriptors: the emulator remembers by identity what it has accepted.
_same_desc = lru_cache(maxsize=4096)(TensorDesc)


def read_desc(message: Message, path: str, *, transformed: bool) -> TensorDesc:
    """Return a descriptor; layout, type and, when transformed, format must be there."""
    for name in ("layout", "type", "format") if transformed else ("layout", "type"):
        if not message.HasField(name):
            raise unspecified(f"{path}.{name}")
    return _same_desc(
        message.layout & _UNSIGNED,
        message.format & _UNSIGNED,
        message.type & _UNSIGNED,
        message.dim4,
        message.dim3,
        message.dim2,
        message.dim1,
    )


def _desc_reader(name: str) -> Reader:
    transformed = name == "transformed_desc"

    def read(message: Message, path: str) -> TensorDesc:
        if not message.HasField(name):
            raise unspecified(f"{path}.{name}")
        return read_desc(getattr(message, name), f"{path}.{name}", transformed=transformed)

    return read


def _scalar_reader(name: str, required: bool, default: object) -> Reader:
    def read(message: Message, path: str) -> Any:
        if message.HasField(name):
            return getattr(message, name)
        if required:
            raise unspecified(f"{path}.{name}")
        return default

    return read


def _int8_reader(name: str) -> Reader:
    """Return a reader for C's int8_t: what does not fit could not have been said in C."""
    scalar = _scalar_reader(name, True, None)

    def read(message: Message, path: str) -> int:
        value: int = scalar(message, path)
        if not -128 <= value <= 127:
            raise invalid(f"{path}.{name}", value, "-128 to 127")
        return value

    return read


def _count_reader(codes: str) -> Reader:
    """Return a reader for C's count of variadic codes: at most as many as are given."""

    def read(message: Message, path: str) -> int | None:
        if not message.HasField("count"):
            return None
        given, count = len(getattr(message, codes)), int(message.count)
        if count > given:
            raise invalid(f"{path}.count", count, f"at most {given}, the number of {codes}")
        return count

    return read


def _list_reader(name: str) -> Reader:
    def read(message: Message, _path: str) -> list[Any]:
        return list(getattr(message, name))

    return read


def _reader(field: FieldDescriptor, function: Function) -> Reader:
    name = field.name
    if field.is_repeated:
        return _list_reader(name)
    if field.message_type is not None:
        return _desc_reader(name)
    if name in _INT8:
        return _int8_reader(name)
    if name == "count":
        return _count_reader(_COUNTED[function.name])
    parameter = function.parameters.get(name)
    if parameter is None:
        return _scalar_reader(name, False, False)
    required = parameter.default is parameter.empty
    return _scalar_reader(name, required, None if required else parameter.default)


def _is_tensor(field: FieldDescriptor) -> bool:
    return field.message_type is tensor_pb2.TensorRef.DESCRIPTOR


def _make(field: FieldDescriptor, function: Function) -> Arm:
    message: Descriptor | None = field.message_type
    assert message is not None, field.name
    name, compute = field.name, field.number in _COMPUTE
    tensors = tuple(one.name for one in message.fields if _is_tensor(one))
    creates = "ztensor" if name in ("init_ztensor", "init_quantized_ztensor") else None
    others = [one for one in message.fields if one.name not in (*tensors, creates)]
    readers = [(one.name, _reader(one, function)) for one in others]
    life_cycle = _WRITTEN.get(name, ("ztensor",) if field.number < 20 else ())
    written = tuple(one for one in tensors if one in function.outputs) if compute else life_cycle
    quantized = name == "quantized_matmul_op"  # nothing would tell a new output's scale
    writes_only = name.startswith(("transform_ztensor", "transform_quantized"))
    unread = set(written) if compute or writes_only else {"dest"}
    return Arm(
        name=name,
        function=function,
        tensors=tensors,
        values=tuple(one for one in readers if one[0] in function.parameters),
        hints=tuple(one for one in readers if one[0] not in function.parameters),
        creates=creates,
        frees=name == "free_ztensor_buffer",
        written=written,
        filled=frozenset(() if name in _STRUCTURE_ONLY or creates else written),
        may_be_new=frozenset(written if compute and not quantized else ()),
        read=frozenset(() if name in _STRUCTURE_ONLY else set(tensors) - unread),
        may_leave=name in _MAY_LEAVE,
        needs_pre=name in _NEEDS_PRE,
        pattern=frozenset(_PATTERNS.get(name, tensors[:1])),
        compute=compute,
        since=LIBRARY_VERSIONS[function.since],
    )


_FIELDS = operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
# Arms of the contract that the emulator knows; the others are FUNCTION_NOT_IMPLEMENTED.
ARMS: Mapping[str, Arm] = MappingProxyType(
    {
        field.name: _make(field, FUNCTIONS[field.name])
        for field in _FIELDS
        if field.name in FUNCTIONS
    }
)
