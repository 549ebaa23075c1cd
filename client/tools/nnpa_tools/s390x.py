# SPDX-License-Identifier: Apache-2.0
"""Programs for s390x: their emulator, and the environment variables that they need.

qemu-user runs the program; a library for s390x, which the program's loader loads first, answers
the instructions that qemu-user lacks. Source: ELF-64 object file format, s390x ABI supplement.
"""

import importlib
import shutil
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nnpa_client.config import environment_with, trap_settings

_PACKAGE = "nnpa_trap"
_LIBRARY = "libnnpa-trap.so"
_STATIC_LOADER = "nnpa-trap-static"  # beside the library
_EMULATORS = ("qemu-s390x", "qemu-s390x-static")
_DEBIAN_SYSROOT = Path("/usr/s390x-linux-gnu")
_HEADER = struct.Struct(">4sBB10xHH")
_PROGRAM_HEADER_BYTES = 56
_MACHINES = {3: "x86", 20: "ppc", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86-64", 183: "aarch64",
             243: "riscv"}  # fmt: skip
_ELF_HEADER_BYTES = 64
_BIG_ENDIAN, _INTERPRETER = 2, 3
_GUEST = (2, _BIG_ENDIAN, 22)  # width, byte order, machine
_RULES_BYTES = 511  # of a variable that the library keeps


class CannotRun(Exception):
    """A program cannot run here; the text says why, with the remedy."""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a session: path of the plain socket, the session's name, the token.

    `machine` is z15, which has no NNPA, z16 or z17.
    """

    socket: str
    session: str
    machine: str
    token: str = ""


def find_emulator() -> Path:
    """Return qemu-user for s390x."""
    for name in _EMULATORS:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    raise CannotRun("qemu-s390x is not installed: apt-get install qemu-user (or qemu-user-static)")


def find_library() -> Path:
    """Return the library that answers the instruction."""
    chosen = trap_settings().library
    if chosen is not None:
        if not chosen.is_file():
            raise CannotRun(f"NNPA_TRAP_LIBRARY: {chosen} is no file")
        return chosen.resolve()
    try:
        path: Path = importlib.import_module(_PACKAGE).LIBRARY
    except ModuleNotFoundError:
        raise CannotRun(
            f"{_LIBRARY} is not installed: pip install client/trap/wheel in a clone of nnpa, "
            f"which takes gcc-s390x-linux-gnu; or NNPA_TRAP_LIBRARY names one that is built"
        ) from None
    return path


def find_sysroot(chosen: Path | None) -> Path | None:
    """Return the folder with the program's loader and libraries, None for the system's own."""
    debian = _DEBIAN_SYSROOT if _DEBIAN_SYSROOT.is_dir() else None
    return chosen or trap_settings().sysroot or debian


def is_native(path: Path) -> bool:
    """Return True if a program is for this machine, like the interpreter, and not for s390x."""
    try:
        with path.open("rb") as program, Path(sys.executable).open("rb") as interpreter:
            identity, own = (_identity(file.read(_HEADER.size)) for file in (program, interpreter))
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}") from error
    return identity is not None and identity == own != _GUEST


def _identity(contents: bytes) -> tuple[int, int, int] | None:
    """Return width, byte order and machine of an ELF file, None for any other."""
    if len(contents) < _HEADER.size or not contents.startswith(b"\x7fELF"):
        return None
    _magic, width, order, _kind, machine = _HEADER.unpack_from(contents)
    if order != _BIG_ENDIAN:
        (machine,) = struct.unpack_from("<H", contents, 18)
    return width, order, machine


def is_static(path: Path) -> bool:
    """Return True if a program for s390x is linked statically; `CannotRun` for other files."""
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}") from error
    identity = _identity(contents)
    if identity is None or len(contents) < _ELF_HEADER_BYTES:
        raise CannotRun(f"{path}: not an ELF file, expected a program for s390x or this machine")
    if identity != _GUEST:
        name = _MACHINES.get(identity[2], f"machine {identity[2]}")
        raise CannotRun(f"{path}: a program for {name}, expected s390x or this machine")
    return not _has_loader(contents)


def _has_loader(contents: bytes) -> bool:
    """Return True if an ELF file names a loader: PT_INTERP among its program headers."""
    (first,) = struct.unpack_from(">Q", contents, 32)
    (count,) = struct.unpack_from(">H", contents, 56)
    ends = len(contents) - 4
    places = (first + number * _PROGRAM_HEADER_BYTES for number in range(count))
    return any(
        place <= ends and struct.unpack_from(">I", contents, place) == (_INTERPRETER,)
        for place in places
    )


@dataclass(frozen=True, slots=True)
class StfleRules:
    """The user's decisions on possible STFLE instructions, by NAME or NAME+0xOFFSET."""

    patched: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for flag, names in (("--patch", self.patched), ("--no-patch", self.kept)):
            for name in names:
                if not name or "/" in name or ":" in name:
                    raise CannotRun(
                        f"{flag}: {name!r}, expected a file's name without folders, or "
                        f"NAME+0xOFFSET as --stats prints it"
                    )
            size = len(_joined(names).encode())
            if size > _RULES_BYTES:
                raise CannotRun(f"{flag}: names of {size} bytes, limit {_RULES_BYTES}; give fewer")


def _joined(names: tuple[str, ...]) -> str:
    return ":".join(names)


@dataclass(frozen=True, slots=True)
class Setup:
    """The paths that a program needs; no emulator if a container's system starts it."""

    library: Path
    emulator: Path | None = None
    sysroot: Path | None = None
    stats: Path | None = None
    stfle: StfleRules = StfleRules()

    def environment(self, place: Place, more: Mapping[str, str]) -> dict[str, str]:
        """Return this process's environment with the variables that the library reads."""
        paths = {
            "NNPA_TRAP_LIBRARY": self.library,
            "NNPA_TRAP_QEMU": self.emulator,
            "NNPA_TRAP_SYSROOT": self.sysroot,
            "NNPA_TRAP_STATS": self.stats,
        }
        variables = {
            "NNPA_TRAP_SOCKET": place.socket,
            "NNPA_TRAP_SESSION": place.session,
            "NNPA_TRAP_TOKEN": place.token,
            "NNPA_TRAP_MACHINE": place.machine,
            "NNPA_TRAP_PATCH_STFLE": _joined(self.stfle.patched),
            "NNPA_TRAP_KEEP_STFLE": _joined(self.stfle.kept),
            **{name: "" if path is None else str(path) for name, path in paths.items()},
        }
        return environment_with({**variables, **more})


def start(setup: Setup, program: Path, arguments: tuple[str, ...]) -> list[str]:
    """Return the command that runs a program; our loader loads a static program."""
    flags = [] if setup.sysroot is None else ["-L", str(setup.sysroot)]
    emulator = [str(setup.emulator), *flags]
    if is_static(program):
        loader = setup.library.with_name(_STATIC_LOADER)
        if not loader.is_file():
            raise CannotRun(f"{program}: linked statically, and there is no {loader}")
        return [*emulator, str(loader), str(program), *arguments]
    return [*emulator, "-E", f"LD_PRELOAD={setup.library}", str(program), *arguments]
