# SPDX-License-Identifier: Apache-2.0
"""Mutations of messages, from descriptors alone; the same random numbers make the same messages."""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

INTEGERS = (0, 1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 32767, 32768, 65536, 1 << 31)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", " ", "x", "a" * 300, "\0", "../../etc/passwd", "%s%n", "ünïcødé", "-1", "1e9",
         "telum1", "machines/telum2", "float32", "FP32", "BYTES", "{", '{"a":1}')  # fmt: skip
MAX_DEPTH = 3
MAX_REPEATS = 40
NAME_CHANCE = 0.05
"""How often the name of what is there is touched: most calls are to come past such checks."""
NAME_PREFIXES = ("sessions/", "networks/", "traces/", "machines/", "fuzzed", "region")
_RANGES: dict[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(1 << 31), (1 << 31) - 1),
}


def mutate(random: Random, messages: Sequence[Message]) -> tuple[bytes, ...]:
    """Return the bytes of a call after some mutations: of fields, of the order, of the bytes."""
    copies = [_copy(message) for message in messages]
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        _mutate_message(random, random.choice(copies))
    raws = [copy.SerializeToString(deterministic=True) for copy in copies]
    if random.random() < 0.1:
        _disorder(random, raws)
    if random.random() < 0.12 and raws:
        at = random.randrange(len(raws))
        raws[at] = _mutate_bytes(random, raws[at])
    return tuple(raws)


def _copy(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _fields(message: Message) -> list[FieldDescriptor]:
    return cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))


def _messages_in(message: Message) -> list[Message]:
    """Return a message and all those within it, entries of maps left out."""
    inner = [message]
    for field, content in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in content if field.is_repeated else [content]:
            inner += _messages_in(part)
    return inner


def _mutate_message(random: Random, whole: Message) -> None:
    """Change one field of a message somewhere inside."""
    message = random.choice(_messages_in(whole))
    fields = _fields(message)
    if not fields:
        return
    names = {field.name for field, _ in message.ListFields()}
    present = [field for field in fields if field.name in names]
    field = random.choice(present if present and random.random() < 0.8 else fields)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _mutate_map(random, message, field)
    elif field.is_repeated:
        _mutate_repeated(random, message, field)
    elif random.random() < 0.15 and not _is_name(getattr(message, field.name)):
        message.ClearField(field.name)
    elif field.message_type is not None:
        message.ClearField(field.name)
        getattr(message, field.name).SetInParent()
        _fill(random, getattr(message, field.name), 0)
    else:
        before = getattr(message, field.name)
        if not _is_name(before) or random.random() < NAME_CHANCE:
            setattr(message, field.name, _scalar(random, field, before))


def _is_name(content: object) -> bool:
    return isinstance(content, str) and content.startswith(NAME_PREFIXES)


def _mutate_repeated(random: Random, message: Message, field: FieldDescriptor) -> None:
    elements = getattr(message, field.name)
    choice = random.randrange(5)
    if choice == 0 or not elements:
        _append(random, elements, field)
    elif choice == 1:
        del elements[random.randrange(len(elements))]
    elif choice == 2:
        element = elements[random.randrange(len(elements))]
        elements.extend([element] * random.choice((1, 1, 2, MAX_REPEATS)))
    elif choice == 3:
        del elements[:]
    elif field.message_type is None:
        at = random.randrange(len(elements))
        elements[at] = _scalar(random, field, elements[at])


def _append(random: Random, elements: Any, field: FieldDescriptor) -> None:
    if field.message_type is not None:
        _fill(random, elements.add(), 1)
    else:
        elements.append(_scalar(random, field, None))


def _mutate_map(random: Random, message: Message, field: FieldDescriptor) -> None:
    """Remove an entry of a map, or change one of its values."""
    entries = getattr(message, field.name)
    assert field.message_type is not None
    key_field, content_field = _fields(GetMessageClass(field.message_type)())
    keys = sorted(entries)
    if keys and random.random() < 0.3:
        del entries[random.choice(keys)]
        return
    is_new = not keys or random.random() < 0.3
    key = _scalar(random, key_field, None) if is_new else random.choice(keys)
    if content_field.message_type is None:
        entries[key] = _scalar(random, content_field, None)
    else:
        _fill(random, entries[key], 1)


def _fill(random: Random, message: Message, depth: int) -> None:
    """Fill some fields of a message at random."""
    for field in _fields(message):
        if random.random() > 0.3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _mutate_map(random, message, field)
        elif field.message_type is not None and depth >= MAX_DEPTH:
            continue
        elif field.is_repeated:
            for _ in range(random.randrange(3)):
                _append(random, getattr(message, field.name), field)
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            _fill(random, getattr(message, field.name), depth + 1)
        else:
            setattr(message, field.name, _scalar(random, field, None))


def _scalar(random: Random, field: FieldDescriptor, before: Any) -> Any:
    """Return another content of a field."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not before
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return _mutate_bytes(random, before or b"")
        return _text(random, before or "")
    if kind == FieldDescriptor.CPPTYPE_ENUM and random.random() < 0.7:
        assert field.enum_type is not None
        return random.choice(field.enum_type.values).number
    return _integer(random, *_RANGES[kind], before or 0)


def _integer(random: Random, least: int, most: int, before: int) -> int:
    choices: tuple[Callable[[], int], ...] = (
        lambda: random.choice(INTEGERS),
        lambda: -random.choice(INTEGERS),
        lambda: before + random.choice((-1, 1)),
        lambda: random.choice((least, most)),
        lambda: random.randint(least, most),
    )
    return min(most, max(least, random.choice(choices)()))


def _text(random: Random, before: str) -> str:
    if not before or random.random() < 0.5:
        return random.choice(TEXTS)
    at = random.randrange(len(before))
    return random.choice(
        (before[:at], before + before, before[:at] + "é" + before[at:], before[1:])
    )


def _mutate_bytes(random: Random, raw: bytes) -> bytes:
    """Return bytes that were cut, lengthened, repeated, or have other bits."""
    choice, at = random.randrange(6), random.randrange(len(raw) + 1)
    if choice == 0:
        return raw[:at]
    if choice == 1:
        return raw[:at] + random.randbytes(random.choice((1, 2, 8, 100))) + raw[at:]
    if choice == 2:
        return raw[:at] + raw[at : at + 64] * 3 + raw[at:]
    if choice == 3:
        size = struct.pack("<Q", random.choice(INTEGERS))[: random.choice((1, 2, 4, 8))]
        return raw[:at] + size + raw[at + len(size) :]
    if choice == 4 or not raw:
        return random.randbytes(random.choice((0, 1, 1, 2, 5, 50)))
    flipped = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 8))):
        flipped[random.randrange(len(raw))] ^= 1 << random.randrange(8)
    return bytes(flipped)


def _disorder(random: Random, raws: list[bytes]) -> None:
    """Drop, repeat or exchange messages of a stream."""
    at = random.randrange(len(raws))
    choice = random.randrange(3)
    if choice == 0:
        del raws[at]
    elif choice == 1:
        raws.insert(at, raws[at])
    else:
        random.shuffle(raws)
