# SPDX-License-Identifier: Apache-2.0
"""The five vector conversions: patched places, and places that trap each time."""

import json
import subprocess

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import dlfloat

from tests.trap.conftest import SECONDS, Runner

FLAG_BITS = {1: 0x800000, 2: 0x200000, 4: 0x100000}  # invalid, overflow, underflow in the FPC
CODES = np.arange(1 << 16, dtype=np.uint16)
EDGES = (0, 1, 0xFF0, 0x7FFFFF, 0x800000, 0x2F800000, 0x2FFFDFFF, 0x2FFFE000, 0x30000000,
         0x30001FFF, 0x30002000, 0x30004000, 0x30006000, 0x3F801FFF, 0x3F802000, 0x3F802001,
         0x3F805FFF, 0x3F806000, 0x3FFFDFFF, 0x3FFFE000, 0x4FFF8000, 0x4FFF9FFF, 0x4FFFA000,
         0x4FFFC000, 0x50000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
         0x7FFFFFFF)  # fmt: skip
SAMPLES = 40_000
both_ways = pytest.mark.parametrize("patch", ["1", "0"], ids=["patched", "trapping"])


def fpc_of(signals: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the FPC of each vector: its elements' flags together."""
    joined = np.bitwise_or.reduce(signals.reshape(-1, signals.shape[-1]), axis=1)
    fpc = np.zeros(joined.shape, np.uint32)
    for flag, bit in FLAG_BITS.items():
        fpc |= np.where(joined & flag, bit, 0).astype(np.uint32)
    return fpc


def converted(
    runner: Runner, name: str, source: npt.NDArray[np.generic], patch: str
) -> tuple[bytes, npt.NDArray[np.uint32]]:
    """Return the results of a conversion of vectors, and the FPC after each."""
    program = runner.compile("convert.c")
    contents = source.astype(source.dtype.newbyteorder(">")).tobytes()
    answer = runner.filter(program, name, contents=contents, NNPA_TRAP_PATCH=patch)
    records = np.frombuffer(answer, np.dtype([("vector", "V16"), ("fpc", ">u4")]))
    return records["vector"].tobytes(), records["fpc"].astype(np.uint32)


@both_ways
@pytest.mark.parametrize("name", ["vclfnh", "vclfnl"])
def test_every_code_widens(runner: Runner, name: str, patch: str) -> None:
    """Each DLFLOAT16 code becomes its FP32 value; NINF is the quiet NaN and raises invalid."""
    half = 0 if name == "vclfnh" else 4
    for shift in (0, 4):  # each code is in each half once
        codes = np.roll(CODES, shift)
        vectors, fpc = converted(runner, name, codes, patch)
        widened = codes.reshape(-1, 8)[:, half : half + 4]
        expected = dlfloat.to_fp32(widened).view(np.uint32).astype(">u4")
        assert vectors == expected.tobytes()
        assert (fpc == fpc_of(dlfloat.signals_to_fp32(widened))).all()


@both_ways
def test_every_code_narrows(runner: Runner, patch: str) -> None:
    """Each DLFLOAT16 code becomes its FP16 value, with the flags of the table."""
    vectors, fpc = converted(runner, "vcfn", CODES, patch)
    assert vectors == dlfloat.to_fp16(CODES).view(np.uint16).astype(">u2").tobytes()
    assert (fpc == fpc_of(dlfloat.signals_to_fp16(CODES).reshape(-1, 8))).all()


@both_ways
def test_every_fp16_rounds(runner: Runner, patch: str) -> None:
    """Each FP16 value becomes its DLFLOAT16 code: half of the normal ones are ties."""
    vectors, fpc = converted(runner, "vcnf", CODES, patch)
    halves = CODES.view(np.float16)
    assert vectors == dlfloat.from_fp16(halves).astype(">u2").tobytes()
    with np.errstate(invalid="ignore"):
        wide = halves.astype(np.float32)
    assert (fpc == fpc_of(dlfloat.signals_from_fp32(wide).reshape(-1, 8))).all()


@both_ways
def test_fp32_rounds(runner: Runner, patch: str) -> None:
    """Edges of FP32, of both signs, and samples of all bits become their DLFLOAT16 codes."""
    bits = np.random.default_rng(17).integers(0, 1 << 32, SAMPLES, dtype=np.uint32)
    near = (bits[: SAMPLES // 2] & 0x9FFFFFFF) | np.uint32(0x20000000)  # the format's own range
    edges = np.array(EDGES * 8, np.uint32)
    source = np.concatenate([edges, edges | np.uint32(1 << 31), bits, near])
    assert source.size % 8 == 0
    values = source.view(np.float32)
    vectors, fpc = converted(runner, "vcrnf", source, patch)
    assert vectors == dlfloat.from_fp32(values).astype(">u2").tobytes()
    assert (fpc == fpc_of(dlfloat.signals_from_fp32(values).reshape(-1, 8))).all()


@both_ways
def test_all_else_is_kept(runner: Runner, patch: str) -> None:
    """A conversion changes its target and the flags: no other register, no condition code."""
    program = runner.compile("registers.c snapshot.S")
    ended = runner.run(program, NNPA_TRAP_PATCH=patch)
    kept = [f" v1 cc {code}->{code} fpc 00000002->00000002" for code in range(4)]
    raised = [f" v1 cc {code}->{code} fpc 00000002->00800002" for code in range(4)]
    assert ended.output.splitlines() == kept + raised


def test_places_are_patched_once(runner: Runner) -> None:
    """A conversion that is patched traps once; an unpatched one traps each time."""
    program = runner.compile("registers.c snapshot.S")
    for patch, traps, places in (("1", 1, 1), ("0", 8, 0)):
        ended = runner.run(program, flags=("--json",), NNPA_TRAP_PATCH=patch)
        stats = json.loads(ended.errors)
        assert (stats["trapped_conversions"], stats["patched_places"]) == (traps, places)


def test_eight_threads_meet_one_place(runner: Runner) -> None:
    """Eight threads that reach each of 1,000 unpatched places at once all get right results."""
    program = runner.compile("race.c", "-lpthread")
    ended = runner.run(program, "1000", flags=("--json",))
    assert (ended.code, ended.output) == (0, "0 wrong\n")
    stats = json.loads(ended.errors)
    assert stats["patched_places"] == stats["trapped_conversions"] == 1000


def test_unknown_formats_are_refused(runner: Runner) -> None:
    """A conversion with fields that no Telum has ends the program, by name."""
    program = runner.compile("convert.c")
    command = runner.command(program, "unknown")
    ended = subprocess.run(
        command, env=runner.environment(), input=bytes(16), capture_output=True, timeout=SECONDS
    )
    assert ended.returncode == 128 + 4
    assert b"VCLFNH with fields of formats that no Telum has" in ended.stderr
