# SPDX-License-Identifier: Apache-2.0
"""Constraints of the LSTM cell."""

import pytest
from mli_emulator import DebugLevel, ElType, FxParams, MliStatus, Options, RnnMode, RnnOutActivation

from tests.mli.golden_records import SIZES, TYPES
from tests.mli.scenes import FRAMES, M, N, Scene, lstm

BAD = MliStatus.MLI_STATUS_BAD_TENSOR
CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG
SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS
MEMORY = MliStatus.MLI_STATUS_NOT_ENGH_MEM
TYPE = MliStatus.MLI_STATUS_TYPE_MISMATCH
OK = MliStatus.MLI_STATUS_OK

VARIANTS = pytest.mark.parametrize("variant", sorted(TYPES))
BATCHES = pytest.mark.parametrize("mode", [RnnMode.RNN_BATCH_TO_BATCH, RnnMode.RNN_BATCH_TO_LAST])
ONE, BATCH = RnnMode.RNN_ONE_TO_ONE, RnnMode.RNN_BATCH_TO_BATCH
TANH, NONE = RnnOutActivation.RNN_ACT_TANH, RnnOutActivation.RNN_ACT_NONE


def refused_shape(scene: Scene, constraint: int) -> None:
    """Expect SHAPE_MISMATCH."""
    scene.refused(f"lstm_cell_c{constraint}", SHAPE)


@VARIANTS
@pytest.mark.parametrize("name", ["in_", "prev_out", "weights", "bias", "cell"])
def test_lstm_cell_c1(variant: str, name: str) -> None:
    """All five inputs are valid tensors."""
    scene = lstm(variant)
    scene[name].rank = 5
    scene.refused("tensor_c2", BAD)
    scene.arguments[name] = None
    scene.refused("tensor_c1", BAD)


@VARIANTS
@pytest.mark.parametrize("null", [True, False])
def test_lstm_cell_c2(variant: str, null: bool) -> None:
    """The output is not NULL and has a data pointer."""
    scene = lstm(variant)
    scene["out"].data = None
    if null:
        scene.arguments["out"] = None
    scene.refused("lstm_cell_c2", BAD)


@VARIANTS
def test_lstm_cell_c3(variant: str) -> None:
    """The configuration is not NULL."""
    scene = lstm(variant)
    scene.arguments["cfg"] = None
    scene.refused("lstm_cell_c3", CFG)


@VARIANTS
def test_lstm_cell_c4(variant: str) -> None:
    """The intermediate tensor is not NULL and has a data pointer."""
    scene = lstm(variant)
    scene["ir"].data = None
    scene.refused("lstm_cell_c4", CFG)
    scene.configure(ONE, TANH, None)
    scene.refused("lstm_cell_c4", CFG)


@VARIANTS
@pytest.mark.parametrize(("mode", "act"), [(3, 1), (-1, 1), (0, 3), (0, -1)])
def test_lstm_cell_c5(variant: str, mode: int, act: int) -> None:
    """Mode and activation are values of their enumerations."""
    scene = lstm(variant)
    scene.configure(mode, act, scene["ir"])
    scene.refused("lstm_cell_c5", CFG)


@VARIANTS
@BATCHES
def test_lstm_cell_c6(variant: str, mode: RnnMode) -> None:
    """A sequence has two dimensions or more."""
    scene = lstm(variant)
    scene.configure(mode, TANH, scene["ir"])
    scene.refused("lstm_cell_c6", CFG)


@VARIANTS
def test_lstm_cell_c7(variant: str) -> None:
    """Weights have three dimensions."""
    scene = lstm(variant)
    scene.reshape("weights", 4 * M, N + M)
    refused_shape(scene, 7)


@VARIANTS
def test_lstm_cell_c8(variant: str) -> None:
    """Bias has two dimensions."""
    scene = lstm(variant)
    scene.reshape("bias", 4 * M)
    refused_shape(scene, 8)


@VARIANTS
def test_lstm_cell_c9(variant: str) -> None:
    """Weights and bias have four gates."""
    scene = lstm(variant)
    scene.reshape("weights", 3, M, N + M)
    refused_shape(scene, 9)
    scene.reshape("weights", 4, M, N + M)
    scene.reshape("bias", 5, M)
    refused_shape(scene, 9)


@VARIANTS
def test_lstm_cell_c10(variant: str) -> None:
    """The rows of a gate's weights are equal in number to its bias values."""
    scene = lstm(variant)
    scene.reshape("weights", 4, M - 1, N + M)
    refused_shape(scene, 10)


@VARIANTS
def test_lstm_cell_c11(variant: str) -> None:
    """Each gate is as long as the previous output."""
    scene = lstm(variant)
    scene.reshape("weights", 4, M - 1, N + M)
    scene.reshape("bias", 4, M - 1)
    refused_shape(scene, 11)


@VARIANTS
@pytest.mark.parametrize("mode", list(RnnMode))
def test_lstm_cell_c12(variant: str, mode: RnnMode) -> None:
    """Rows of weights are as long as one frame and the previous output together."""
    scene = lstm(variant, mode)
    scene.reshape("weights", 4, M, N + M + 1)
    refused_shape(scene, 12)


@VARIANTS
def test_lstm_cell_c13(variant: str) -> None:
    """The cell has one dimension."""
    scene = lstm(variant)
    scene.reshape("cell", M, 1)
    refused_shape(scene, 13)


@VARIANTS
def test_lstm_cell_c14(variant: str) -> None:
    """The previous output has one dimension."""
    scene = lstm(variant)
    scene.reshape("prev_out", M, 1)
    refused_shape(scene, 14)


@VARIANTS
def test_lstm_cell_c15(variant: str) -> None:
    """Previous output and cell have one length."""
    scene = lstm(variant)
    scene.reshape("cell", M + 1)
    refused_shape(scene, 15)


@VARIANTS
@pytest.mark.parametrize("name", ["in_", "prev_out", "weights", "bias"])
def test_lstm_cell_c16(variant: str, name: str) -> None:
    """Input, previous output, weights and bias are contiguous."""
    scene = lstm(variant)
    dense = scene[name].shape
    inner = [2]
    for extent in reversed(dense[1:]):
        inner.insert(0, inner[0] * extent)
    scene[name].mem_stride = tuple(inner)
    scene.refused("lstm_cell_c16", INCOMPATEBLE)


@VARIANTS
@pytest.mark.parametrize(("mode", "strides"), [(ONE, (2,)), (BATCH, (M, 1))])
def test_lstm_cell_c17(variant: str, mode: RnnMode, strides: tuple[int, ...]) -> None:
    """The output is contiguous; the library refuses even the dense strides of two dimensions."""
    scene = lstm(variant, mode)
    scene["out"].mem_stride = strides
    scene.refused("lstm_cell_c17", INCOMPATEBLE)


def other_fx_type(kind: int) -> ElType:
    """The FX type that a tensor does not have."""
    return ElType.MLI_EL_FX_8 if kind == ElType.MLI_EL_FX_16 else ElType.MLI_EL_FX_16


def refused_type(scene: Scene, name: str, constraint: int) -> None:
    """Give a tensor the other FX type, and expect TYPE_MISMATCH."""
    scene[name].el_type = other_fx_type(scene[name].el_type)
    scene.refused(f"lstm_cell_c{constraint}", TYPE)


@VARIANTS
def test_lstm_cell_c18(variant: str) -> None:
    """Weights and bias are of one element type."""
    refused_type(lstm(variant), "bias", 18)


@VARIANTS
def test_lstm_cell_c19(variant: str) -> None:
    """Input and previous output are of one element type."""
    refused_type(lstm(variant), "prev_out", 19)


@VARIANTS
def test_lstm_cell_c20(variant: str) -> None:
    """Input and cell are of one element type."""
    refused_type(lstm(variant), "cell", 20)


@VARIANTS
def test_lstm_cell_c21(variant: str) -> None:
    """Bias has at most the fractional bits of input and weights together."""
    scene = lstm(variant)
    scene["bias"].el_params = FxParams(10)
    scene.refused("lstm_cell_c21", INCOMPATEBLE)


@VARIANTS
def test_lstm_cell_c22(variant: str) -> None:
    """The intermediate tensor holds the four gates."""
    scene = lstm(variant)
    scene["ir"].capacity = 4 * M * SIZES[TYPES[variant][0]] - 1
    scene.refused("lstm_cell_c22", MEMORY)
    scene["ir"].capacity += 1
    assert scene.run().status is OK


@VARIANTS
@pytest.mark.parametrize("mode", list(RnnMode))
def test_lstm_cell_c23(variant: str, mode: RnnMode) -> None:
    """The output holds one vector, or one per frame in RNN_BATCH_TO_BATCH."""
    scene = lstm(variant, mode)
    vectors = FRAMES if mode is BATCH else 1
    scene["out"].capacity = vectors * M * SIZES[TYPES[variant][0]] - 1
    scene.refused("lstm_cell_c23", MEMORY)
    scene["out"].capacity += 1
    assert scene.run().status is OK


@VARIANTS
def test_lstm_cell_c24(variant: str) -> None:
    """All tensors have the variant's types, the cell its FX parameters."""
    scene = lstm(variant)
    for name in ("weights", "bias"):
        scene[name].el_type = ElType.MLI_EL_SA_8
    scene.refused("lstm_cell_c24", TYPE)
    scene = lstm(variant)
    for name in ("in_", "prev_out", "cell"):
        scene[name].el_type = ElType.MLI_EL_SA_8
    scene.refused("lstm_cell_c24", TYPE)
    scene = lstm(variant)
    scene["cell"].el_params = None
    scene.refused("lstm_cell_c24", TYPE)
    scene["cell"].el_params = FxParams(-1)
    scene.refused("tensor_c9", BAD)


@VARIANTS
@pytest.mark.parametrize(
    ("name", "second"),
    [("out", "in_"), ("out", "cell"), ("cell", "prev_out"), ("ir", "weights"), ("ir", "out")],
)
def test_lstm_cell_c25(variant: str, name: str, second: str) -> None:
    """No two tensors overlap but output and previous output."""
    scene = lstm(variant)
    size = min(scene[name].capacity, scene[second].capacity)
    scene[name].data = scene[second].data
    scene[name].capacity = size
    scene.refused("lstm_cell_c25", INCOMPATEBLE)


@VARIANTS
@pytest.mark.parametrize("mode", list(RnnMode))
def test_lstm_cell_output_may_replace_the_state(variant: str, mode: RnnMode) -> None:
    """Output and previous output give the same in one memory as apart."""
    apart, shared = lstm(variant, mode), lstm(variant, mode)
    shared["out"].data = shared["prev_out"].data
    shared["out"].capacity = shared["prev_out"].capacity
    assert apart.run().status is shared.run().status is OK
    size = apart["out"].shape[0] * M if mode is BATCH else M
    width = size * SIZES[TYPES[variant][0]]
    left, right = apart["out"].data, shared["out"].data
    assert left is not None
    assert right is not None
    assert left[:width].tolist() == right[:width].tolist()


@VARIANTS
def test_lstm_cell_c26(variant: str) -> None:
    """From DEBUG on, a remark reports different fractional bits of output and state."""
    scene = lstm(variant, act=NONE)
    scene["out"].el_params = FxParams(3)
    assert scene.run(Options(debug=DebugLevel.ASSERT)).messages == ()
    scene["out"].el_params = FxParams(3)
    outcome = scene.run(Options(debug=DebugLevel.DEBUG))
    assert outcome.status is OK
    assert "lstm_cell_c26" in outcome.messages[0]
    assert scene["out"].el_params == FxParams(7)
    assert scene.run(Options(debug=DebugLevel.DEBUG)).messages == ()


@VARIANTS
def test_lstm_cell_c27(variant: str) -> None:
    """FULL asserts that no sum overflows, the 32-bit one of the cell update included."""
    scene = lstm(variant)
    scene["cell"].el_params = FxParams(60)
    assert scene["in_"].data is not None
    assert scene["cell"].data is not None
    scene["cell"].data[:] = 0x7F
    outcome = lstm(variant).run()
    assert not outcome.accumulator_overflow
    scene.stops("lstm_cell_c27", DebugLevel.FULL)
    assert scene.run().accumulator_overflow
