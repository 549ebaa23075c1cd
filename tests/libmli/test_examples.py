# SPDX-License-Identifier: Apache-2.0
"""The example programs in C print Python's results."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import mli_emulator as mli
import numpy as np
import pytest
from mli_emulator import ElType, FxParams, RnnCellCfg, RnnMode, RnnOutActivation, SaParams, Tensor

from tests.libmli import toolchain
from tests.libmli.toolchain import LIBRARY, Prefix

FX8, FX16 = ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_16
Lines = list[list[int]]


def _fx(values: Sequence[object], el_type: ElType, bits: int) -> Tensor:
    return mli.from_array(np.array(values), el_type, FxParams(bits))


def _lines(tensor: Tensor) -> Lines:
    values = mli.to_array(tensor)
    rows: Lines = values.reshape(len(values), -1).tolist()
    return rows


def fully_connected() -> Lines:
    """Two neurons of two inputs."""
    out = mli.empty(2, FX8, FxParams(4))
    weights, bias = _fx([[100, -100], [32, 64]], FX8, 6), _fx([10, -16], FX8, 5)
    mli.krn_fully_connected_fx8(_fx([64, -32], FX8, 7), weights, bias, out)
    return _lines(out)


def lstm_cell() -> Lines:
    """Three outputs, and the cell."""
    weights = _fx([[[90, -40]], [[60, -70]], [[-30, 100]], [[127, -128]]], FX8, 6)
    bias, cell = _fx([[3], [-7], [11], [0]], FX8, 5), _fx([30], FX8, 5)
    x, h, out = _fx([[50], [-90], [127]], FX8, 7), _fx([-20], FX8, 7), mli.empty(3, FX8)
    mode, act = RnnMode.RNN_BATCH_TO_BATCH, RnnOutActivation.RNN_ACT_TANH
    cfg = RnnCellCfg(mode, act, mli.empty(4, FX8))
    mli.krn_lstm_cell_fx8(x, h, weights, bias, cfg, cell, out)
    return _lines(out) + _lines(cell)


def basic_rnn_cell() -> Lines:
    """Stacked outputs; then the last of three frames in the place of the previous output."""
    frames = [[16384, -8192], [4096, 20000], [-32768, 32767]]
    stack = [[[64, 0, -64, 32], [1, 2, 3, 4]], [[-128, 127, 5, 9], [7, 7, -7, -7]]]
    h, out = _fx([1000, -2000], FX16, 15), mli.empty(8, FX16, FxParams(12))
    run, act = mli.krn_basic_rnn_cell_fx8w16d, RnnOutActivation
    cfg = RnnCellCfg(RnnMode.RNN_ONE_TO_ONE, act.RNN_ACT_NONE)
    bias = _fx([[1, 2], [3, 4]], FX8, 7)
    run(_fx(frames[0], FX16, 15), h, _fx(stack, FX8, 6), bias, cfg, out)
    cfg = RnnCellCfg(RnnMode.RNN_BATCH_TO_LAST, act.RNN_ACT_SIGM, mli.empty(4, FX16))
    last = Tensor(h.data, 4, (2,), 1, FX16, FxParams(15))
    run(_fx(frames, FX16, 15), h, _fx(stack[0], FX8, 6), _fx([1, 2], FX8, 7), cfg, last)
    return [*_lines(out), [value for line in _lines(last) for value in line]]


def convert_tensor() -> Lines:
    """Floats as fixed point; rows with parameters of their own as fixed point, padded."""
    floats = mli.from_array([0.5, -0.3, 7.9, -100.0], ElType.MLI_EL_FP_32, None)
    fixed = mli.empty(4, FX8, FxParams(4))
    mli.hlp_convert_tensor(floats, fixed)
    params = SaParams((3, -8), (77, 33), (9, 6), 0)
    rows = mli.from_array([[10, -20, 127], [0, 64, -128]], ElType.MLI_EL_SA_8, params)
    wide = mli.empty(16, FX16, FxParams(8))
    wide.mem_stride = (4, 1)
    mli.hlp_convert_tensor_safx(rows, wide)
    return _lines(fixed) + [[*line, 0] for line in _lines(wide)]


EXAMPLES: dict[str, Callable[[], Lines]] = {
    "fully_connected": fully_connected,
    "lstm_cell": lstm_cell,
    "basic_rnn_cell": basic_rnn_cell,
    "convert_tensor": convert_tensor,
}
CROSS = "s390x-linux-gnu-"
SYSROOT = Path("/usr/s390x-linux-gnu")  # where Debian's cross packages put the C library
SLICE = "12 elements of 1 byte, scale 21 / 2^6, zero at 5"


def _compiled(
    source: Path, prefix: Prefix, folder: Path, *flags: str, compiler: str = "gcc"
) -> Path:
    program = folder / source.stem
    strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    toolchain.run([compiler, *strict, str(source), "-o", str(program), *flags, *prefix.flags()])
    return program


def _printed(name: str, prefix: Prefix, folder: Path) -> list[str]:
    program = _compiled(LIBRARY / f"examples/{name}.c", prefix, folder)
    return toolchain.run([str(program)]).splitlines()


@pytest.mark.parametrize("name", EXAMPLES)
def test_prints_what_python_computes(name: str, prefix: Prefix, tmp_path: Path) -> None:
    """An example prints the numbers that the same call gives in Python."""
    lines = [[int(word) for word in line.split()] for line in _printed(name, prefix, tmp_path)]
    assert lines == EXAMPLES[name]()


def test_slices_are_not_copied(prefix: Prefix, tmp_path: Path) -> None:
    """A channel of the top half of an image lies in the image, two elements apart."""
    assert _printed("subtensor", prefix, tmp_path) == [SLICE, "7", "9", "11"]


def test_the_readme(prefix: Prefix, tmp_path: Path) -> None:
    """The program of the README prints tanh of its two numbers."""
    block = re.search(r"^```c\n(.*?)^```$", (LIBRARY / "README.md").read_text(), re.M | re.S)
    assert block is not None
    source = tmp_path / "readme.c"
    source.write_text(block[1])
    out = mli.empty(2, FX8)
    mli.krn_tanh_fx8(_fx([64, -32], FX8, 7), out)
    printed = toolchain.run([str(_compiled(source, prefix, tmp_path))])
    assert [int(word) for word in printed.split()] == mli.to_array(out).tolist()


def test_a_big_endian_machine(prefix: Prefix, tmp_path: Path) -> None:
    """Built for s390x, every example prints the same lines as on this machine."""
    toolchain.require(f"{CROSS}gcc", "qemu-s390x")
    big_endian = toolchain.installed(tmp_path, f"CROSS={CROSS}")
    qemu = ["qemu-s390x", "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT / 'lib'}"]
    for source in sorted((LIBRARY / "examples").glob("*.c")):
        native = _printed(source.stem, prefix, tmp_path)
        program = _compiled(source, big_endian, tmp_path, compiler=f"{CROSS}gcc")
        assert toolchain.run([*qemu, str(program)]).splitlines() == native


def test_every_example_is_run() -> None:
    """Every program of the folder has a test."""
    names = {path.stem for path in (LIBRARY / "examples").glob("*.c")}
    assert names == {*EXAMPLES, "subtensor"}
