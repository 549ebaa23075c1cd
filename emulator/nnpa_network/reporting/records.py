# SPDX-License-Identifier: Apache-2.0
"""Records as JSON: dataclasses, lists, texts, numbers, and exact sums as fractions.

A record that is read comes from a stranger: types are checked, and sizes of numbers are bounded.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from math import isfinite
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_MAX_DIGITS = 2048  # of a fraction's text: sums of float64 have at most 2,098 bits
_MAX_INTEGER = 1 << 62
Record = TypeVar("Record")


class NotRecord(ValueError):
    """JSON that is not the record that it is read as."""


def encode(record: object) -> object:
    """Return a record as values of JSON."""
    if isinstance(record, Fraction):
        return f"{record.numerator:x}/{record.denominator:x}"
    if isinstance(record, list | tuple):
        return [encode(element) for element in record]
    if isinstance(record, dict):
        return {key: encode(element) for key, element in record.items()}
    if is_dataclass(record):
        return {part.name: encode(getattr(record, part.name)) for part in fields(record)}
    return record


def decode(kind: type[Record], content: object) -> Record:
    """Return a record of a type; raise `NotRecord`."""
    hashable: Any = kind
    record: Record = _decoder(hashable)(content)
    return record


@cache
def _decoder(kind: Any) -> Callable[[object], Any]:
    """Return the decoder of a type; types come from this package."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return partial(_optional, _decoder(arguments[0]))
    if origin is list:
        return partial(_list, _decoder(arguments[0]))
    if origin is dict:
        return partial(_dict, _decoder(arguments[1]))
    if is_dataclass(kind):
        parts = {name: _decoder(hint) for name, hint in get_type_hints(kind).items()}
        return partial(_dataclass, kind, parts)
    return _SCALARS[kind]


def _optional(inner: Callable[[object], Any], content: object) -> Any:
    return None if content is None else inner(content)


def _list(inner: Callable[[object], Any], content: object) -> Any:
    elements: list[object] = _require(list, content)
    return [inner(element) for element in elements]


def _dict(inner: Callable[[object], Any], content: object) -> Any:
    entries: dict[str, object] = _require(dict, content)
    return {key: inner(element) for key, element in entries.items()}


def _dataclass(kind: Any, parts: Mapping[str, Callable[[object], Any]], content: object) -> Any:
    entries = _require(dict, content)
    if entries.keys() != parts.keys():
        raise NotRecord(f"not the keys of {kind.__name__}")
    return kind(**{name: part(entries[name]) for name, part in parts.items()})


def _require(kind: type[Record], content: object) -> Record:
    if type(content) is not kind:
        raise NotRecord(f"a {type(content).__name__} in place of a {kind.__name__}")
    return content


def _integer(content: object) -> int:
    number = _require(int, content)
    if abs(number) > _MAX_INTEGER:
        raise NotRecord("an integer that is too large")
    return number


def _float(content: object) -> float:
    number = float(content) if type(content) is int else _require(float, content)
    if not isfinite(number):
        raise NotRecord("a number that is not finite")
    return number


def _fraction(content: object) -> Fraction:
    text = _require(str, content)
    if len(text) > _MAX_DIGITS:
        raise NotRecord("a fraction that is too long")
    above, _slash, below = text.partition("/")
    try:
        return Fraction(int(above, 16), int(below, 16))
    except (ValueError, ZeroDivisionError) as error:
        raise NotRecord("no fraction") from error


_SCALARS: dict[Any, Callable[[object], Any]] = {
    int: _integer,
    float: _float,
    bool: partial(_require, bool),
    str: partial(_require, str),
    Fraction: _fraction,
}
