# SPDX-License-Identifier: Apache-2.0
"""Programs for s390x in which bytes that look like STFLE, NNPA or conversions are none.

Each case is a function of assembly that computes its result from those bytes; a driver in C
or C++ prints one line for each. Each program also has one real STFLE, at a place with a name.
"""

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.trap.conftest import SECONDS

STFLE, NNPA = "b2b0", "b93b0000"
CONVERSIONS = ("e61200020075", "e61200010055", "e6120010005d", "e61200020056", "e6120002005e")
GAP = 2 * 0xB2B0  # bytes to a target whose offset ends with STFLE's halfword
PLACE = "stfle_place"
_TABLE_BYTES = 0x1000

FACILITY = f"""
	.globl facility_nnpa
	.type facility_nnpa,@function
facility_nnpa:
	.cfi_startproc
	aghi %r15,-192
	.cfi_adjust_cfa_offset 192
	xc 160(32,%r15),160(%r15)
	lghi %r0,3
	.globl {PLACE}
{PLACE}:
	stfle 160(%r15)
	lg %r2,176(%r15)
	srlg %r2,%r2,26
	lghi %r1,1
	ngr %r2,%r1
	aghi %r15,192
	.cfi_adjust_cfa_offset -192
	br %r14
	.cfi_endproc
	.size facility_nnpa,.-facility_nnpa
"""

MAIN_C = """
#include <stdint.h>
#include <stdio.h>
extern uint64_t (*const cases[])(void);
extern const int case_count;
uint64_t facility_nnpa(void);
int main(void)
{
  for (int i = 0; i < case_count; i++)
    printf("%d %016lx\\n", i, cases[i]());
  printf("facility %d\\n", (int)facility_nnpa());
  return 0;
}
"""

MAIN_CXX = """
#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <locale>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
extern "C" {
extern uint64_t (*const cases[])(void);
extern const int case_count;
uint64_t facility_nnpa(void);
}
static std::string line(int number, uint64_t value)
{
  std::ostringstream text;
  text << std::dec << number << ' ' << std::hex << std::setw(16) << std::setfill('0') << value;
  if (!std::regex_match(text.str(), std::regex("[0-9]+ [0-9a-f]+")))
    throw std::runtime_error(text.str());
  return text.str();
}
int main()
{
  std::map<int, std::string> lines;
  for (int i = 0; i < case_count; i++)
    lines[i] = line(i, cases[i]());
  try {
    throw std::out_of_range("caught");
  } catch (const std::exception &error) {
    std::cout << error.what() << std::endl;
  }
  for (const auto &entry : lines)
    std::cout << entry.second << '\\n';
  std::cout << "facility " << facility_nnpa() << std::endl;
}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A function: its instructions, data elsewhere, and the bytes that both must contain."""

    kind: str
    pattern: str
    code: str
    data: str = ""
    target: str = ""
    """Instructions that lie `GAP` bytes behind the label `site`."""


def displacement(draw: random.Random) -> Case:
    """The pattern is a base register and a displacement."""
    pattern = draw.choice((STFLE, STFLE, "b93b", NNPA, "e612", "e675"))
    base, number = int(pattern[0], 16), int(pattern[1:4], 16)
    operand = f"{number}(%r{base})"
    use = draw.choice((
        f"lg %r2,{operand}", f"llgf %r2,{operand}", f"lgh %r2,{operand}", f"llgc %r2,{operand}",
        f"la %r2,{operand}\n\tsgr %r2,%r{base}", f"lghi %r2,77\n\talg %r2,{operand}",
        f"lgr %r2,%r{base}\n\tx %r2,{operand}", f"lghi %r2,0\n\ticm %r2,7,{operand}",
        f"larl %r1,scratch\n\tmvc 0(8,%r1),{operand}\n\tlg %r2,0(%r1)",
        f"lghi %r2,-1\n\tstg %r2,{operand}\n\taghi %r2,5\n\tsg %r2,{operand}",
        f"lmg %r2,%r3,{operand}\n\txgr %r2,%r3",
    ))  # fmt: skip
    if pattern == NNPA:
        use = f"mvghi {operand},0\n\tlg %r2,{number - 3}(%r{base})"
    if "la " in use or "x %r2" in use:  # an address, which differs by run, must not be printed
        use += "\n\tnill %r2,0xfff\n\tllghr %r2,%r2"
    saved = f"lgr %r5,%r{base}\n\tlarl %r{base},table"
    return Case("displacement", pattern, f"{saved}\n\t{use}\n\tlgr %r{base},%r5\n\tbr %r14")


def relative(draw: random.Random) -> Case:
    """The pattern is the offset of a relative address, or of a branch."""
    number = draw.randrange(1 << 15)
    far = (
        f"lgr %r3,%r14\n{{site}}:\n\tbrasl %r14,{{site}}+{GAP}\n\tlgr %r14,%r3\n\tbr %r14",
        f"lghi %r3,1\n{{site}}:\n\tjg {{site}}+{GAP}",
        f"ltgr %r15,%r15\n{{site}}:\n\tjgne {{site}}+{GAP}\n\tbr %r14",
    )
    near = (
        (STFLE, f"lghi %r2,{number}\n\tbrc 0,.-39584\n\tbr %r14"),
        (STFLE, f"lghi %r2,{number}\n\tlghi %r1,1\n\tbrctg %r1,.-39584\n\tbr %r14"),
        (STFLE, "larl %r2,.\n\tlarl %r3,.+91488\n\tsgr %r2,%r3\n\tbr %r14"),
        (STFLE, f"lghi %r2,{number}\n\tbrcl 0,.-39584-0x10000\n\tbr %r14"),
        (NNPA, "larl %r2,.-2374631424\n\tlarl %r3,.\n\tsgr %r2,%r3\n\tbr %r14"),
        (STFLE, f"lghi %r2,{number}\n\tcgij %r2,-1,8,.-39584\n\tbr %r14"),
        ("e612", f"lghi %r2,{number}\n\tbrc 0,.-13276\n\tbr %r14"),
    )
    if draw.random() < 0.5:
        target = f"lghi %r2,{number}\n\tbr %r14"
        return Case("relative", STFLE, draw.choice(far), target=target)
    pattern, code = draw.choice(near)
    return Case("relative", pattern, code)


def immediate(draw: random.Random) -> Case:
    """The pattern is an immediate operand."""
    number = draw.randrange(1 << 15)
    pattern, code = draw.choice((
        (STFLE, "lghi %r2,-19792"), (STFLE, "llill %r2,0xb2b0"), (STFLE, "llihh %r2,0xb2b0"),
        (STFLE, f"lghi %r2,{number}\n\taghi %r2,-19792"), (STFLE, "lgfi %r2,0x1234b2b0"),
        (STFLE, f"lghi %r2,{number}\n\toill %r2,0xb2b0"), (STFLE, "lghi %r2,3\n\tmghi %r2,-19792"),
        (STFLE, f"lghi %r2,{number}\n\txilf %r2,0xb2b0b2b0"), (NNPA, "llilf %r2,0xb93b0000"),
        (NNPA, "llihf %r2,0xb93b0000"), (NNPA, f"lghi %r2,{number}\n\talgfi %r2,0xb93b0000"),
        (STFLE, "larl %r1,scratch\n\tmvghi 0(%r1),-19792\n\tlg %r2,0(%r1)"),
        (STFLE, "larl %r1,scratch\n\txc 0(8,%r1),0(%r1)\n\tmvhhi 2(%r1),-19792\n\tlg %r2,0(%r1)"),
        (STFLE, f"lghi %r2,{number}\n\tcghi %r2,-19792\n\tipm %r2\n\tsrlg %r2,%r2,28"),
        ("e6120075", "llilf %r2,0xe6120075"), ("e612", "llihl %r2,0xe612"),
    ))  # fmt: skip
    return Case("immediate", pattern, f"{code}\n\tbr %r14")


def _words(draw: random.Random, pattern: str) -> str:
    """Return whole doublewords of bytes with the pattern at a random halfword."""
    before = [f"{draw.choice((0x18, 0x41, 0xA7, 0xE3, 0xC0, 0x07, 0xB9)):02x}"
              f"{draw.randrange(256):02x}" for _ in range(draw.randrange(4))]  # fmt: skip
    contents = "".join(before) + pattern
    return contents + "".join(
        f"{draw.randrange(1 << 16):04x}" for _ in range(-(len(contents) // 4) % 4)
    )


def _byte_list(contents: str) -> str:
    values = ",".join(f"0x{contents[i : i + 2]}" for i in range(0, len(contents), 2))
    return f".byte {values}"


def _joined(contents: str, base: str = "%r1") -> str:
    """Return instructions that join the doublewords at a register."""
    count = len(contents) // 16
    return "lghi %r2,0" + "".join(f"\n\txg %r2,{8 * i}({base})" for i in range(count))


def pool(draw: random.Random) -> Case:
    """The pattern is a literal that the function branches around, or that lies behind it."""
    pattern = draw.choice((STFLE, STFLE, NNPA, *CONVERSIONS))
    contents = draw.choice((pattern + "0" * (-len(pattern) % 16), _words(draw, pattern)))
    data, use = _byte_list(contents), _joined(contents)
    code = draw.choice((
        f"bras %r1,1f\n\t{data}\n1:\t{use}\n\tbr %r14",
        f"basr %r1,0\n2:\tj 1f\n3:\t{data}\n1:\taghi %r1,3b-2b\n\t{use}\n\tbr %r14",
        f"larl %r1,2f\n\tjg 1f\n2:\t{data}\n1:\t{use}\n\tbr %r14",
        f"larl %r1,2f\n\t{use}\n\tbr %r14\n2:\t{data}",
        f"larl %r1,2f\n\tlghi %r3,0\n\tj 1f\n3:\t{use}\n\tbr %r14\n2:\t{data}\n1:\tj 3b",
        f"brasl %r1,1f\n\t{data}\n1:\t{use}\n\tbr %r14",
    ))  # fmt: skip
    return Case("pool", pattern, code)


def data(draw: random.Random) -> Case:
    """The pattern is data: constants, variables, or bytes between functions."""
    pattern = draw.choice((STFLE, NNPA, STFLE + NNPA, *CONVERSIONS))
    contents = _words(draw, pattern)
    section = draw.choice((".section .rodata", ".data", ".text"))
    placed = f"{section}\n\t.balign 8\n{{datum}}:\n\t{_byte_list(contents)}"
    return Case("data", pattern, f"larl %r1,{{datum}}\n\t{_joined(contents)}\n\tbr %r14", placed)


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    displacement, relative, immediate, pool, data,
)  # fmt: skip


def cases(seed: int, each: int) -> list[Case]:
    """Return `each` cases of each kind."""
    draw = random.Random(seed)
    return [kind(draw) for _ in range(each) for kind in KINDS]


def assembly(chosen: list[Case]) -> str:
    """Return the functions, their data, and the table by which the driver calls them."""
    functions = [_function(number, case) for number, case in enumerate(chosen)]
    targets = [
        f"\t.org site_{number}+{GAP}\n\t.cfi_startproc\n\t{case.target}\n\t.cfi_endproc"
        for number, case in enumerate(chosen)
        if case.target
    ]
    placed = [case.data.format(datum=f"datum_{number}") for number, case in enumerate(chosen)]
    entries = "".join(f"\n\t.quad case_{number}" for number in range(len(chosen)))
    return "\n".join((
        "\t.machine z13\n\t.text", FACILITY, *functions, *targets, *placed,
        f"\t.section .data.rel.ro\n\t.balign 8\n\t.globl cases\ncases:{entries}",
        f"\t.section .rodata\n\t.balign 4\n\t.globl case_count\ncase_count:\n\t.long {len(chosen)}",
        "\t.bss\n\t.balign 8\nscratch:\n\t.skip 64\n\t.data\n\t.balign 4096\ntable:",
        *(f"\t.quad 0x{word:016x}" for word in table()),
        '\t.section .note.GNU-stack,"",@progbits\n',
    ))  # fmt: skip


def table() -> list[int]:
    """Return the doublewords that cases of displacements read."""
    draw = random.Random(1)
    return [draw.getrandbits(64) for _ in range(_TABLE_BYTES // 8)]


def _function(number: int, case: Case) -> str:
    code = case.code.format(site=f"site_{number}", datum=f"datum_{number}")
    name = f"case_{number}"
    return (
        f"\t.balign 8\n\t.globl {name}\n\t.type {name},@function\n{name}:\n\t.cfi_startproc\n"
        f"\t{code}\n\t.cfi_endproc\n\t.size {name},.-{name}\n"
    )


@dataclass(frozen=True, slots=True)
class Linking:
    """A way to make a program of the cases."""

    name: str
    language: str
    flags: tuple[str, ...] = ()
    is_stripped: bool = False
    in_library: bool = False


LINKINGS = (
    Linking("static", "c", ("-static", "-no-pie")),
    Linking("static-stripped-cxx", "c++", ("-static", "-no-pie"), is_stripped=True),
    Linking("dynamic", "c", ("-no-pie",)),
    Linking("pie-stripped", "c", ("-fPIE", "-pie"), is_stripped=True),
    Linking("pie-cxx", "c++", ("-fPIE", "-pie")),
    Linking("library", "c", ("-fPIE", "-pie"), in_library=True),
)


@dataclass(frozen=True, slots=True)
class Program:
    """A linked program, the object with the cases, and the places of its symbols."""

    path: Path
    holder: Path
    symbols: dict[str, int]
    contents: dict[str, bytes]
    """The bytes of each function, and of what follows it for data."""


def _done(*command: str | Path) -> str:
    ended = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, (command, ended.stderr)
    return ended.stdout


def linked(chosen: list[Case], linking: Linking, folder: Path) -> Program:
    """Compile and link the cases."""
    source, driver = folder / "cases.s", folder / f"main.{linking.language.replace('+', 'p')}"
    source.write_text(assembly(chosen))
    driver.write_text(MAIN_CXX if linking.language == "c++" else MAIN_C)
    compiler = f"s390x-linux-gnu-{'g++' if linking.language == 'c++' else 'gcc'}"
    path = holder = folder / linking.name
    parts = [source]
    if linking.in_library:
        holder = folder / "libcases.so"
        _done(compiler, "-shared", source, "-o", holder)
        parts = [holder]
    rpath = f"-Wl,-rpath,{folder}"
    _done(compiler, "-O2", "-march=z13", driver, *parts, "-o", path, *linking.flags, rpath)
    symbols = _symbols(holder)
    if linking.is_stripped:
        _done("s390x-linux-gnu-strip", path)
    return Program(path, holder, symbols, _contents(holder, symbols))


def _symbols(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _done("s390x-linux-gnu-nm", path).splitlines())
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


def _contents(path: Path, symbols: dict[str, int]) -> dict[str, bytes]:
    """Return the bytes from each symbol of a case on, as the file has them."""
    loads = [
        (int(row[2], 16), int(row[1], 16), int(row[4], 16))
        for row in (line.split() for line in _done(
            "s390x-linux-gnu-readelf", "-lW", path).splitlines())
        if row and row[0] == "LOAD"
    ]  # fmt: skip
    file, contents = path.read_bytes(), dict[str, bytes]()
    for name, address in symbols.items():
        for first, offset, size in loads:
            if name.startswith(("case_", "datum_")) and first <= address < first + size:
                place = offset + address - first
                contents[name] = file[place : place + 128]
    return contents
