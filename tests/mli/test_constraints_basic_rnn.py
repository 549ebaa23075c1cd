# SPDX-License-Identifier: Apache-2.0
"""Constraints of the basic RNN cell."""

import pytest
from mli_emulator import DebugLevel, ElType, FxParams, MliStatus, Options, RnnMode, RnnOutActivation

from tests.mli.golden_records import SIZES, TYPES, listed
from tests.mli.scenes import FRAMES, M, N, Scene, basic_rnn, stacked_rnn

BAD = MliStatus.MLI_STATUS_BAD_TENSOR
CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG
SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS
MEMORY = MliStatus.MLI_STATUS_NOT_ENGH_MEM
TYPE = MliStatus.MLI_STATUS_TYPE_MISMATCH
OK = MliStatus.MLI_STATUS_OK

VARIANTS = pytest.mark.parametrize("variant", sorted(TYPES))
INPUTS = pytest.mark.parametrize("name", ["in_", "prev_out", "weights", "bias"])
ONE, BATCH = RnnMode.RNN_ONE_TO_ONE, RnnMode.RNN_BATCH_TO_BATCH
LAST = RnnMode.RNN_BATCH_TO_LAST
BATCHES = pytest.mark.parametrize("mode", [BATCH, LAST])
TANH, NONE = RnnOutActivation.RNN_ACT_TANH, RnnOutActivation.RNN_ACT_NONE


@VARIANTS
@INPUTS
def test_basic_rnn_cell_c1(variant: str, name: str) -> None:
    """All four inputs are valid tensors."""
    scene = basic_rnn(variant)
    scene[name].rank = 5
    scene.refused("tensor_c2", BAD)
    scene.arguments[name] = None
    scene.refused("tensor_c1", BAD)


@VARIANTS
@pytest.mark.parametrize("null", [True, False])
def test_basic_rnn_cell_c2(variant: str, null: bool) -> None:
    """The output is not NULL and has a data pointer."""
    scene = basic_rnn(variant)
    scene["out"].data = None
    if null:
        scene.arguments["out"] = None
    scene.refused("basic_rnn_cell_c2", BAD)


@VARIANTS
@INPUTS
def test_basic_rnn_cell_c3(variant: str, name: str) -> None:
    """All four inputs are contiguous."""
    scene = basic_rnn(variant)
    strides = {1: (2,), 2: (2 * (N + M), 2)}
    scene[name].mem_stride = strides[scene[name].rank]
    scene.refused("basic_rnn_cell_c3", INCOMPATEBLE)


@VARIANTS
@pytest.mark.parametrize(("mode", "strides"), [(ONE, (2,)), (BATCH, (M, 1)), (LAST, (3,))])
def test_basic_rnn_cell_c4(variant: str, mode: RnnMode, strides: tuple[int, ...]) -> None:
    """The output is contiguous; the library refuses even the dense strides of two dimensions."""
    scene = basic_rnn(variant, mode)
    scene["out"].mem_stride = strides
    scene.refused("basic_rnn_cell_c4", INCOMPATEBLE)


@VARIANTS
def test_basic_rnn_cell_c5(variant: str) -> None:
    """The configuration is not NULL."""
    scene = basic_rnn(variant)
    scene.arguments["cfg"] = None
    scene.refused("basic_rnn_cell_c5", CFG)


@VARIANTS
@pytest.mark.parametrize(("mode", "act"), [(3, 1), (-1, 1), (0, 3), (0, -1)])
def test_basic_rnn_cell_c6(variant: str, mode: int, act: int) -> None:
    """Mode and activation are values of their enumerations."""
    scene = basic_rnn(variant)
    scene.configure(mode, act, None)
    scene.refused("basic_rnn_cell_c6", CFG)


@VARIANTS
def test_basic_rnn_cell_c7(variant: str) -> None:
    """RNN_BATCH_TO_LAST has an intermediate tensor; the other modes do without."""
    scene = basic_rnn(variant, LAST)
    scene["ir"].data = None
    scene.refused("basic_rnn_cell_c7", CFG)
    scene.configure(LAST, TANH, None)
    scene.refused("basic_rnn_cell_c7", CFG)
    scene.configure(BATCH, TANH, None)
    assert scene.run().status is OK


@VARIANTS
@BATCHES
def test_basic_rnn_cell_c8(variant: str, mode: RnnMode) -> None:
    """A sequence has two dimensions or more."""
    scene = basic_rnn(variant)
    scene.configure(mode, TANH, scene["ir"])
    scene.refused("basic_rnn_cell_c8", CFG)


@VARIANTS
@BATCHES
def test_basic_rnn_cell_c9(variant: str, mode: RnnMode) -> None:
    """Weights have two dimensions, or three in RNN_ONE_TO_ONE."""
    scene = basic_rnn(variant)
    scene.reshape("weights", 1, 1, M, N + M)
    scene.refused("basic_rnn_cell_c9", SHAPE)
    scene = basic_rnn(variant, mode)
    scene.reshape("weights", 1, M, N + M)
    scene.refused("basic_rnn_cell_c9", SHAPE)


@VARIANTS
def test_basic_rnn_cell_c10(variant: str) -> None:
    """Bias has one dimension less than the weights."""
    scene = basic_rnn(variant)
    scene.reshape("bias", 1, M)
    scene.refused("basic_rnn_cell_c10", SHAPE)
    scene = stacked_rnn(variant)
    scene.reshape("bias", 2 * M)
    scene.refused("basic_rnn_cell_c10", SHAPE)


@VARIANTS
def test_basic_rnn_cell_c11(variant: str) -> None:
    """Weights and bias have the same leading dimensions."""
    scene = basic_rnn(variant)
    scene.reshape("bias", M + 1)
    scene.refused("basic_rnn_cell_c11", SHAPE)
    scene = stacked_rnn(variant)
    scene.reshape("bias", 1, M)
    scene.refused("basic_rnn_cell_c11", SHAPE)


@VARIANTS
def test_basic_rnn_cell_c12(variant: str) -> None:
    """Bias is as long as the previous output."""
    scene = basic_rnn(variant)
    scene.reshape("bias", M - 1)
    scene.reshape("weights", M - 1, N + M)
    scene.refused("basic_rnn_cell_c12", SHAPE)


@VARIANTS
@pytest.mark.parametrize("mode", list(RnnMode))
def test_basic_rnn_cell_c13(variant: str, mode: RnnMode) -> None:
    """Rows of weights are as long as one frame and the previous output together."""
    scene = basic_rnn(variant, mode)
    scene.reshape("weights", M, N + M + 1)
    scene.refused("basic_rnn_cell_c13", SHAPE)


@VARIANTS
def test_basic_rnn_cell_c14(variant: str) -> None:
    """The previous output has one dimension."""
    scene = basic_rnn(variant)
    scene.reshape("prev_out", 1, M)
    scene.refused("basic_rnn_cell_c14", SHAPE)


def refused_type(scene: Scene, name: str, constraint: int) -> None:
    """Give a tensor the other FX type, and expect TYPE_MISMATCH."""
    same = scene[name].el_type == ElType.MLI_EL_FX_8
    scene[name].el_type = ElType.MLI_EL_FX_16 if same else ElType.MLI_EL_FX_8
    scene.refused(f"basic_rnn_cell_c{constraint}", TYPE)


@VARIANTS
def test_basic_rnn_cell_c15(variant: str) -> None:
    """Weights and bias are of one element type."""
    refused_type(basic_rnn(variant), "bias", 15)


@VARIANTS
def test_basic_rnn_cell_c16(variant: str) -> None:
    """Input and previous output are of one element type."""
    refused_type(basic_rnn(variant), "prev_out", 16)


@VARIANTS
def test_basic_rnn_cell_c17(variant: str) -> None:
    """Bias has at most the fractional bits of input and weights together."""
    scene = basic_rnn(variant)
    scene["bias"].el_params = FxParams(10)
    scene.refused("basic_rnn_cell_c17", INCOMPATEBLE)


def refused_room(variant: str, name: str, constraint: int) -> None:
    """Take one byte too much from a tensor of RNN_BATCH_TO_LAST, then give it back."""
    scene = basic_rnn(variant, LAST)
    scene[name].capacity = M * SIZES[TYPES[variant][0]] - 1
    scene.refused(f"basic_rnn_cell_c{constraint}", MEMORY)
    scene[name].capacity += 1
    assert scene.run().status is OK


@VARIANTS
def test_basic_rnn_cell_c18(variant: str) -> None:
    """In RNN_BATCH_TO_LAST the output holds one vector."""
    refused_room(variant, "out", 18)


@VARIANTS
def test_basic_rnn_cell_c19(variant: str) -> None:
    """In RNN_BATCH_TO_LAST the intermediate tensor holds one vector."""
    refused_room(variant, "ir", 19)


@VARIANTS
@pytest.mark.parametrize("pair", [("weights", "bias"), ("in_", "prev_out")])
def test_basic_rnn_cell_c20(variant: str, pair: tuple[str, str]) -> None:
    """All tensors have the variant's types, and unsigned fractional bits."""
    scene = basic_rnn(variant)
    for name in pair:
        scene[name].el_type = ElType.MLI_EL_SA_8
    scene.refused("basic_rnn_cell_c20", TYPE)
    scene = basic_rnn(variant)
    scene["prev_out"].el_params = FxParams(-1)
    scene.refused("tensor_c9", BAD)


@VARIANTS
@pytest.mark.parametrize(("mode", "vectors"), [(ONE, 1), (BATCH, FRAMES)])
def test_basic_rnn_cell_c21(variant: str, mode: RnnMode, vectors: int) -> None:
    """The output holds all vectors in the other modes too, which the library does not check."""
    scene = basic_rnn(variant, mode)
    scene["out"].capacity = vectors * M * SIZES[TYPES[variant][0]] - 1
    scene.refused("basic_rnn_cell_c21", MEMORY)
    scene["out"].capacity += 1
    assert scene.run().status is OK


@VARIANTS
def test_basic_rnn_cell_c22(variant: str) -> None:
    """Without activation the output comes with fractional bits; with one they are filled."""
    scene = basic_rnn(variant, act=NONE)
    scene["out"].el_params = None
    scene.refused("basic_rnn_cell_c22", BAD)
    scene.configure(ONE, TANH, None)
    assert scene.run().status is OK
    assert scene["out"].el_params == FxParams(8 * SIZES[TYPES[variant][0]] - 1)


@VARIANTS
@pytest.mark.parametrize(
    ("mode", "name", "second"),
    [
        (ONE, "out", "prev_out"),
        (BATCH, "out", "prev_out"),
        (LAST, "out", "in_"),
        (LAST, "ir", "prev_out"),
        (LAST, "ir", "out"),
        (ONE, "out", "weights"),
    ],
)
def test_basic_rnn_cell_c23(variant: str, mode: RnnMode, name: str, second: str) -> None:
    """No two tensors overlap but output and previous output in RNN_BATCH_TO_LAST."""
    scene = basic_rnn(variant, mode)
    size = min(scene[name].capacity, scene[second].capacity)
    scene[name].data = scene[second].data
    scene[name].capacity = size
    scene.refused("basic_rnn_cell_c23", INCOMPATEBLE)


@VARIANTS
@pytest.mark.parametrize("act", list(RnnOutActivation))
def test_basic_rnn_cell_output_may_replace_the_state(variant: str, act: RnnOutActivation) -> None:
    """In RNN_BATCH_TO_LAST output and previous output give the same in one memory as apart."""
    apart, shared = basic_rnn(variant, LAST, act), basic_rnn(variant, LAST, act)
    shared["out"].data = shared["prev_out"].data
    shared["out"].capacity = shared["prev_out"].capacity
    assert apart.run().status is shared.run().status is OK
    width = M * SIZES[TYPES[variant][0]]
    left, right = apart["out"].data, shared["out"].data
    assert left is not None
    assert right is not None
    assert listed(left[:width]) == listed(right[:width])


@VARIANTS
def test_basic_rnn_cell_c24(variant: str) -> None:
    """From DEBUG on, a remark reports different fractional bits of output and state."""
    scene = basic_rnn(variant, act=NONE)
    scene["out"].el_params = FxParams(3)
    assert scene.run(Options(debug=DebugLevel.ASSERT)).messages == ()
    outcome = scene.run(Options(debug=DebugLevel.DEBUG))
    assert outcome.status is OK
    assert "basic_rnn_cell_c24" in outcome.messages[0]
    assert scene["out"].el_params == FxParams(3)


@VARIANTS
def test_basic_rnn_cell_c25(variant: str) -> None:
    """FULL asserts that no partial sum overflows; below, the call is flagged."""
    scene = basic_rnn(variant)
    for name, bits in (("bias", 0), ("in_", 40), ("weights", 40)):
        scene[name].el_params = FxParams(bits)
    assert scene["bias"].data is not None
    scene["bias"].data[:] = 0x7F
    for name in ("in_", "weights"):
        data = scene[name].data
        assert data is not None
        data[:] = 0x7F
    scene.stops("basic_rnn_cell_c25", DebugLevel.FULL)
    outcome = scene.run()
    assert outcome.status is OK
    assert outcome.accumulator_overflow
