# SPDX-License-Identifier: Apache-2.0
"""Small ELF files with a dynamic symbol table, of either byte order."""

import struct
from collections.abc import Sequence

_S390, _X86_64 = 22, 62
_STRTAB, _DYNSYM = 3, 11
_UNDEFINED, _DEFINED = 0, 1
_HEADER_BYTES, _SECTION_BYTES, _SYMBOL_BYTES = 64, 64, 24


def shared_object(
    undefined: Sequence[str], defined: Sequence[str] = (), *, big: bool = False
) -> bytes:
    """Return an ELF64 shared object: for s390x when `big`, else for x86-64."""
    order = ">" if big else "<"
    strings, offsets = b"\0", list[int]()
    for name in (*undefined, *defined):
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    symbols = bytes(_SYMBOL_BYTES)
    for number, offset in enumerate(offsets):
        section = _UNDEFINED if number < len(undefined) else _DEFINED
        symbols += struct.pack(order + "IBBHQQ", offset, 0x12, 0, section, 0, 0)
    names = b"\0.dynstr\0.dynsym\0.shstrtab\0"
    bodies = (strings, symbols, names)
    kinds = ((1, _STRTAB, 0, 0), (9, _DYNSYM, 1, _SYMBOL_BYTES), (17, _STRTAB, 0, 0))
    table = bytes(_SECTION_BYTES)
    place = _HEADER_BYTES
    for (label, kind, link, size), body in zip(kinds, bodies, strict=True):
        table += struct.pack(
            order + "IIQQQQIIQQ", label, kind, 0, 0, place, len(body), link, 1, 1, size
        )
        place += len(body)
    identity = b"\x7fELF" + bytes([2, 2 if big else 1, 1]) + bytes(9)
    header = identity + struct.pack(
        order + "HHIQQQIHHHHHH",
        3, _S390 if big else _X86_64, 1, 0, 0, place, 0, _HEADER_BYTES, 0, 0, _SECTION_BYTES, 4, 3,
    )  # fmt: skip
    return header + b"".join(bodies) + table
