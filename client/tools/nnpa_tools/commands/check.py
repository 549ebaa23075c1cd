# SPDX-License-Identifier: Apache-2.0
"""`nnpa check`: which functions of a program or list run on which machine, and why not."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import click
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._values import availability
from nnpa_client._values.availability import LIBRARIES, TELUMS, Answer, Host, Verdict
from rich import box
from rich.table import Table

from nnpa_tools.commands.terminal import Terminal, echo, json_option, print_json

__all__ = ["check", "functions_of", "hosts_of", "symbols"]

NOT_AS_PROMISED = 1
_DEFAULT_MACHINES = (*TELUMS, "z15")
_PREFIX = "zdnn_"
_EXPECTED = "PROGRAM is a compiled program, or a list of function names."
ELF_MAGIC = b"\x7fELF"


class NothingToCheck(ValueError):
    """An input names no zDNN function; the text gives the likely reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """A function, the version that introduced it, and its verdicts by machine name."""

    name: str
    since: str
    verdicts: dict[str, Verdict]


def symbols(source: str, program: bytes) -> tuple[set[str], set[str]]:
    """Return the zdnn_ symbols that an ELF file imports, and those it defines.

    The file may be a program, shared library or object file, for any architecture. Raises
    NothingToCheck if the file is damaged.
    """
    imported: set[str] = set()
    defined: set[str] = set()
    try:
        for section in ELFFile(BytesIO(program)).iter_sections():
            if isinstance(section, SymbolTableSection):
                for symbol in section.iter_symbols():
                    name = str(symbol.name).partition("@")[0]  # less a symbol version
                    if name.startswith(_PREFIX):
                        undefined = symbol["st_shndx"] == "SHN_UNDEF"
                        (imported if undefined else defined).add(name)
    except (ELFError, ValueError, LookupError, OverflowError) as error:
        raise NothingToCheck(f"{source}: damaged ELF file: {error}") from error
    return imported, defined


def functions_of(source: str, content: bytes) -> list[str]:
    """Return the functions, without prefix and sorted, that a program uses or a list names.

    A list is words between blanks, commas or line ends, "zdnn_" optional; "#" begins a comment.
    """
    if content.startswith(ELF_MAGIC):
        imported, defined = symbols(source, content)
        if not imported:
            why = "linked statically, so it brings its own" if defined else "no zdnn_ symbol at all"
            raise NothingToCheck(f"{source}: uses no zDNN function from a library ({why})")
        return sorted(name.removeprefix(_PREFIX) for name in imported)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise NothingToCheck(f"{source}: neither an ELF file nor a text. {_EXPECTED}") from None
    words = re.split(r"[\s,]+", re.sub(r"#.*", "", text))
    names = sorted({word.removeprefix(_PREFIX) for word in words if word})
    invalid = [name for name in names if not re.fullmatch(r"[A-Za-z_]\w*", name)]
    if invalid or not names:
        problem = f"{invalid[0]!r} is no function name" if invalid else "names no function"
        raise NothingToCheck(f"{source}: {problem}. {_EXPECTED}")
    return names


def rows(names: Iterable[str], hosts: Sequence[Host], library: str) -> list[Row]:
    """Return the verdicts of each function on each machine."""
    judged: list[Row] = []
    for name in names:
        function = availability.FUNCTIONS.get(name)
        verdicts = {host.name: availability.verdict(name, host, library) for host in hosts}
        judged.append(Row(name, function.since if function else "", verdicts))
    return judged


def _read(sources: Sequence[str]) -> list[str]:
    """Return the functions of all arguments: files, "-" for standard input, or plain names."""
    names: set[str] = set()
    for source in sources or ("-",):
        if source == "-":
            names.update(functions_of("standard input", sys.stdin.buffer.read()))
        elif Path(source).is_file():
            names.update(functions_of(source, Path(source).read_bytes()))
        elif re.fullmatch(r"[A-Za-z_]\w*", source):
            names.add(source.removeprefix(_PREFIX))
        else:
            raise click.UsageError(f"{source}: no such file, and no function name")
    return sorted(names)


@click.command()
@click.argument("sources", metavar="[PROGRAM-OR-LIST]...", nargs=-1)
@click.option("--machine", "machines", multiple=True, metavar="MACHINE",
              help="Machine to check for: a name, JSON of a custom machine, or its file; "
              "repeatable.")  # fmt: skip
@click.option("--library", default=LIBRARIES[-1], show_default=True, help="Version of zDNN.")
@json_option("Print the verdicts as JSON.")
def check(sources: tuple[str, ...], machines: tuple[str, ...], library: str, as_json: bool) -> None:
    """Say which functions of a program run on which machine, and why not.

    PROGRAM is a compiled program, library or object file (ELF, of any architecture): the command
    checks its calls into zDNN. A list of function names may be in a file, on standard input ("-" or
    no argument), or on the command line. No server is needed.

    Exit codes: 0 ok, 1 a function does not run on a machine named by --machine, or is no function
    of zDNN, 2 usage.
    """
    try:
        hosts = hosts_of(machines or _DEFAULT_MACHINES)
        judged = rows(_read(sources), hosts, library)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(_document(judged, hosts, library))
    else:
        _print(judged, hosts, library)
    answers = [verdict.answer for row in judged for verdict in row.verdicts.values()]
    unknown = [_PREFIX + row.name for row in judged if not row.since]
    if unknown:
        echo(f"Error: no function of zDNN 1.2.0: {', '.join(unknown)}", err=True)
    if unknown or (machines and Answer.NO in answers):
        sys.exit(NOT_AS_PROMISED)


def hosts_of(texts: Iterable[str]) -> list[Host]:
    """Return machines; custom machines of the same name get a number, such as telum2-custom-2."""
    hosts: dict[str, Host] = {}
    for host in map(find_machine, texts):
        if not host.base:
            hosts[host.name] = host
            continue
        like = sum(name.startswith(host.name) for name in hosts)
        name = f"{host.name}-{like + 1}" if like else host.name
        hosts[name] = replace(host, name=name)
    return list(hosts.values())


def overall(judged: Sequence[Row], host: Host) -> Answer:
    """Return the answer of a machine for all functions together."""
    return availability.worst(row.verdicts[host.name].answer for row in judged)


def _document(judged: Sequence[Row], hosts: Sequence[Host], library: str) -> dict[str, object]:
    return {
        "library": library,
        "machines": {host.name: {"runs": overall(judged, host)} for host in hosts},
        "functions": [
            {
                "name": _PREFIX + row.name,
                "since": row.since or None,
                "machines": {
                    name: {"runs": verdict.answer, "reason": verdict.reason}
                    for name, verdict in row.verdicts.items()
                },
            }
            for row in judged
        ],
    }


def _print(judged: Sequence[Row], hosts: Sequence[Host], library: str) -> None:
    console = Terminal()
    count = f"{len(judged)} function{'s' * (len(judged) != 1)}"
    title = f"{count} with zDNN {library}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", show_footer=True)
    table.add_column("function", footer="all together")
    table.add_column("since")
    for host in hosts:
        table.add_column(host.name, footer=overall(judged, host))
    for row in judged:
        answers = (row.verdicts[host.name].answer for host in hosts)
        table.add_row(_PREFIX + row.name, row.since or "-", *answers)
    console.print(table)
    for reason, names in _reasons(judged).items():
        functions = ", ".join(_PREFIX + name for name in names)
        console.print(f"{functions}\n  {reason}", soft_wrap=True, highlight=False)


def _reasons(judged: Sequence[Row]) -> dict[str, list[str]]:
    """Group functions by the machines they cannot use and the reason."""
    machines_by_reason: dict[tuple[str, str], list[str]] = {}
    for row in judged:
        for machine, verdict in row.verdicts.items():
            if verdict.reason:
                machines_by_reason.setdefault((row.name, verdict.reason), []).append(machine)
    grouped: dict[str, list[str]] = {}
    for (name, reason), machines in machines_by_reason.items():
        grouped.setdefault(f"on {', '.join(machines)}: {reason}", []).append(name)
    return grouped
