# SPDX-License-Identifier: Apache-2.0
"""embARC MLI arithmetic in unbounded integers and fractions, one element at a time.

Written from the library's documented formulas alone: no arrays, no shifts, no code of the
emulator. Every value is an exact rational until it is rounded where the library rounds.
Sources: embARC MLI documentation 1.x "Common Group", 2.0 "Data Conversion Group".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

Ints = Sequence[int]
Rows = Sequence[Sequence[int]]


def saturate(x: int, bits: int) -> int:
    """Clamp to a signed container."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, x))


def nearest(x: Fraction, up: bool) -> int:
    """The nearest integer; ties toward plus infinity, or to even."""
    below = x.numerator // x.denominator
    rest = x - below
    if rest == Fraction(1, 2):
        return below + (1 if up or below % 2 else 0)
    return below + (1 if rest > Fraction(1, 2) else 0)


def power(n: int) -> Fraction:
    """2 to the n-th, n of either sign."""
    return Fraction(2) ** n


@dataclass(frozen=True)
class Kind:
    """A data type of the kernels: io container bits and accumulator bits."""

    io: int
    accumulator: int

    def align(self, x: int, shift: int, up: bool) -> int:
        """Return x / 2^shift in the accumulator: 32 bits round, 40 bits truncate downward."""
        exact = x / power(shift)
        whole = (
            exact.numerator // exact.denominator if self.accumulator == 40 else nearest(exact, up)
        )
        return saturate(whole, self.accumulator)


KINDS = {"fx8": Kind(8, 32), "fx16": Kind(16, 40), "fx8w16d": Kind(16, 32)}


@cache
def table(name: str) -> tuple[list[int], int, int]:
    """Entries in Q.15 by 40-digit decimals, index of x = 0, fractional bits of the index."""
    length, bits = {"tanh": (178, 4), "sigm": (180, 3)}[name]
    zero = length // 2
    entries: list[int] = []
    with localcontext() as context:
        context.prec = 40
        for i in range(length):
            x = Decimal(i - zero) / 2**bits
            e = (2 * x).exp() if name == "tanh" else (-x).exp()
            y = (e - 1) / (e + 1) if name == "tanh" else 1 / (1 + e)
            magnitude = int(abs(y) * 32768 + Decimal("0.5"))
            entries.append(saturate(magnitude if y >= 0 else -magnitude, 16))
    return entries, zero, bits


def activation(name: str, x: int, fin: int, io: int, up: bool) -> int:
    """Tanh or sigmoid of one element."""
    entries, zero, bits = table(name)
    last = len(entries) - 1
    steps = x / power(fin - bits)  # distance from 0 in table entries
    if fin <= bits:
        y = entries[max(0, min(last, saturate(int(steps), 16) + zero))]
    else:
        fine = min(fin - bits, 15)
        kept = x // 2 ** (fin - bits - fine)  # at most 15 bits of fraction take part
        here = max(0, min(last - 1, kept // 2**fine + zero))
        fraction = Fraction(kept % 2**fine, 2**fine)
        y = entries[here] - nearest((entries[here] - entries[here + 1]) * fraction, up)
    return y if io == 16 else saturate(nearest(Fraction(y, 256), up), 8)


def fully_connected(
    kind: Kind, x: Ints, w: Rows, b: Ints, bits: tuple[int, int, int, int], up: bool
) -> list[int]:
    """Fully connected layer; ``bits`` are the fractional bits of in, weights, bias, out."""
    fin, fw, fb, fout = bits
    result: list[int] = []
    for row, bias in zip(w, b, strict=True):
        total = kind.align(bias, fb - fin - fw, up) + sum(
            p * q for p, q in zip(x, row, strict=True)
        )
        result.append(saturate(nearest(total / power(fin + fw - fout), up), kind.io))
    return result


def dense(
    kind: Kind,
    x: Ints,
    h: Ints,
    w: Rows,
    b: Ints,
    bits: tuple[int, int, int, int, int],
    up: bool,
) -> list[int]:
    """The recurrent dense step; ``bits``: in, prev_out, weights, bias, result."""
    fin, fh, fw, fb, fout = bits
    result: list[int] = []
    for row, bias in zip(w, b, strict=True):
        total = kind.align(bias, fb - fin - fw, up)
        total += sum(p * q for p, q in zip(x, row[: len(x)], strict=True))
        total = kind.align(total, fin - fh, up)
        total += sum(p * q for p, q in zip(h, row[len(x) :], strict=True))
        result.append(saturate(nearest(total / power(fh + fw - fout), up), kind.io))
    return result


def basic_rnn(
    kind: Kind,
    frames: Rows,
    h: Ints,
    w: Rows,
    b: Ints,
    bits: tuple[int, int, int, int, int],
    act: str,
    up: bool,
) -> list[list[int]]:
    """Outputs of all frames; the last of ``bits`` counts without activation only."""
    outputs: list[list[int]] = []
    state = list(h)
    fout = bits[4] if act == "none" else kind.io - 4
    for x in frames:
        state = dense(kind, x, state, w, b, (*bits[:4], fout), up)
        if act != "none":
            state = [activation(act, v, fout, kind.io, up) for v in state]
        outputs.append(state)
    return outputs


def lstm(
    kind: Kind,
    frames: Rows,
    h: Ints,
    w: Rows,
    b: Ints,
    cell: Ints,
    bits: tuple[int, int, int, int, int],
    act: str,
    up: bool,
) -> tuple[list[list[int]], list[int]]:
    """Outputs of all frames and the cell; ``bits``: in, prev_out, weights, bias, cell."""
    gate, m = kind.io - 4, len(h)
    state, c = list(h), list(cell)
    outputs: list[list[int]] = []
    for x in frames:
        raw = dense(kind, x, state, w, b, (*bits[:4], gate), up)
        names = ["sigm"] * m + ["tanh"] * m + ["sigm"] * 2 * m
        gates = [activation(n, v, gate, kind.io, up) for n, v in zip(names, raw, strict=True)]
        i, g, f, o = (gates[k * m : (k + 1) * m] for k in range(4))
        c = [update(kind, i[k], g[k], f[k], c[k], bits[4], up) for k in range(m)]
        state = [output(kind, c[k], o[k], bits[4], bits[1], act, up) for k in range(m)]
        outputs.append(state)
    return outputs, c


def update(kind: Kind, i: int, g: int, f: int, c: int, bits: int, up: bool) -> int:
    """One element of the new cell: two roundings, one saturation of the sum."""
    full = kind.io - 1
    total = saturate(nearest(i * g / power(full - bits), up), 32) + f * c
    return saturate(nearest(total / power(full), up), kind.io)


def output(kind: Kind, c: int, o: int, bits: int, state_bits: int, act: str, up: bool) -> int:
    """One element of the output: the cell, activated or not, times the output gate."""
    full = kind.io - 1
    if act == "none":
        return saturate(nearest(c * o / power(bits + full - state_bits), up), kind.io)
    a = activation(act, c, bits, kind.io, up)
    return saturate(nearest(a * o / power(full), up), kind.io)


def convert(
    x: int, src: tuple[int, int, int], dst: tuple[int, int, int], bits: int, up: bool
) -> int:
    """One integer to another quantisation; each is (zero point, scale, fractional bits)."""
    exact = (x - src[0]) * Fraction(src[1], dst[1]) * power(dst[2] - src[2])
    return saturate(nearest(exact, up) + dst[0], bits)
