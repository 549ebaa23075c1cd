# SPDX-License-Identifier: Apache-2.0
"""The MLI emulator's names, docstrings and tests agree; debug levels."""

import importlib
import inspect
import pkgutil
import re

import mli_emulator as mli
import pytest
from mli_emulator import DebugLevel, FxParams, MliStatus, Options, SaParams
from mli_emulator.checks import valid
from mli_emulator.pipeline import listed

import tests.mli
from tests.mli.scenes import Scene, basic_rnn, convert, fully_connected, lstm

DOCUMENTED = [
    *(f"krn_fully_connected_{v}" for v in ("fx8", "fx16", "fx8w16d")),
    *(f"krn_lstm_cell_{v}" for v in ("fx8", "fx16", "fx8w16d")),
    *(f"krn_basic_rnn_cell_{v}" for v in ("fx8", "fx16", "fx8w16d")),
    *(f"krn_{f}_{v}" for f in ("tanh", "sigm") for v in ("fx8", "fx16")),
    *("hlp_convert_tensor", "hlp_convert_tensor_safx", "hlp_subtensor", "hlp_create_subtensor"),
    *("hlp_tensor_element_size", "hlp_count_elem_num"),
    *("hlp_tensor_scale", "hlp_tensor_scale_shift", "hlp_tensor_zero_offset"),
]
DEFINED = re.compile(r"^\s*\((\w+_c\d+)\) (.*)$", re.MULTILINE)
ALL = pytest.mark.parametrize(
    "scene", [fully_connected("fx8"), lstm("fx16"), basic_rnn("fx8w16d"), convert()], ids=str
)


def constraints() -> list[str]:
    """Every constraint that a docstring of the emulator defines, with repetitions per kernel."""
    functions = {id(k.function): k.function for k in mli.KERNELS.values()}.values()
    texts = {inspect.getdoc(f) or "" for f in (*functions, valid)}
    return [name for text in texts for name, _ in DEFINED.findall(text)]


def named_by_tests() -> set[str]:
    """Every constraint that a test of this folder is named after."""
    tested: set[str] = set()
    for module in pkgutil.iter_modules(tests.mli.__path__):
        if module.name.startswith("test_constraints"):
            members = vars(importlib.import_module(f"tests.mli.{module.name}"))
            tested |= {
                n.removeprefix("test_") for n in members if re.fullmatch(r"test_\w+_c\d+", n)
            }
    return tested


def test_every_constraint_has_a_test() -> None:
    """Constraints in docstrings and tests named after them are the same set, defined once."""
    defined = constraints()
    assert len(defined) == len(set(defined)) >= 100
    assert set(defined) == named_by_tests()


def test_kernels_of_variants_have_the_parameters_of_c() -> None:
    """A kernel of one data type has the tensors as parameters, and no parameter for the type."""
    assert [*inspect.signature(mli.krn_tanh_fx8).parameters] == ["in_", "out", "options"]
    cell = inspect.signature(mli.krn_lstm_cell_fx16).parameters
    assert [*cell][:2] == ["in_", "prev_out"]


def test_every_documented_name_is_a_kernel() -> None:
    """The names of the documentation are in the table and in the package, with and without mli_."""
    assert set(mli.KERNELS) == set(DOCUMENTED)
    for name in DOCUMENTED:
        assert mli.find(name) is mli.find(f"mli_{name}") is mli.KERNELS[name]
        assert getattr(mli, name) is mli.KERNELS[name].function
    assert mli.find("hlp_create_subtensor") is mli.find("hlp_subtensor")
    assert mli.LstmCellCfg is mli.RnnCellCfg
    assert mli.SubtensorCfg is mli.SubTensorCfg


def test_an_unknown_kernel_is_named() -> None:
    """An error names an unknown kernel; a name in the table cannot be registered twice."""
    with pytest.raises(KeyError, match="krn_relu_fx8"):
        mli.find("krn_relu_fx8")
    with pytest.raises(ValueError, match="hlp_subtensor"):
        listed("hlp_subtensor")(mli.hlp_subtensor)


def test_statuses_have_the_librarys_numbers() -> None:
    """Status numbers equal the numbers in mli_types.h."""
    names = [s.name.removeprefix("MLI_STATUS_") for s in MliStatus if s < 100]
    assert names[:6] == [
        "OK",
        "BAD_TENSOR",
        "SHAPE_MISMATCH",
        "INCOMPATEBLE_TENSORS",
        "BAD_FUNC_CFG",
        "NOT_ENGH_MEM",
    ]
    numbers = {status.name: int(status) for status in MliStatus}
    assert numbers["MLI_STATUS_TYPE_MISMATCH"] == 12
    assert numbers["MLI_STATUS_LARGE_ENUM"] == 0x02000000


def spoiled(scene: Scene) -> Scene:
    """Set an input's rank to 5."""
    scene["src" if "src" in scene.arguments else "in_"].rank = 5
    return scene


@ALL
def test_release_answers_ok_and_writes_nothing(scene: Scene) -> None:
    """RELEASE returns OK for a violated condition, and writes nothing."""
    outcome = spoiled(scene).refused(
        "tensor_c2", MliStatus.MLI_STATUS_OK, Options(debug=DebugLevel.RELEASE)
    )
    assert outcome.refusal is not None
    assert outcome.refusal.status is MliStatus.MLI_STATUS_BAD_TENSOR


@ALL
@pytest.mark.parametrize("level", [DebugLevel.ASSERT, DebugLevel.DEBUG, DebugLevel.FULL])
def test_asserting_levels_stop(scene: Scene, level: DebugLevel) -> None:
    """ASSERT, DEBUG and FULL abort at the first violated condition, nothing written."""
    spoiled(scene).stops("tensor_c2", level)


def test_release_rounds_a_bias_that_is_too_fine() -> None:
    """RELEASE computes with a bias of more fractional bits than the products, rounding it."""
    scene = fully_connected("fx8")
    for name in ("in_", "weights", "bias", "out"):
        scene[name].el_params = FxParams(0)
    zero, bias = scene["weights"].data, scene["bias"].data
    assert zero is not None
    assert bias is not None
    zero[:] = 0
    bias[:3] = [6, 7, 10]
    scene["bias"].el_params = FxParams(2)
    assert scene.run(Options(debug=DebugLevel.RELEASE)).status is MliStatus.MLI_STATUS_OK
    assert mli.to_array(scene["out"]).tolist() == [2, 2, 2]


def test_a_refusal_names_field_value_and_limit() -> None:
    """A refusal's text holds status, constraint, field, value and limit."""
    scene = fully_connected("fx8")
    scene["out"].capacity = 1
    refusal = scene.run().refusal
    assert str(refusal) == (
        "MLI_STATUS_NOT_ENGH_MEM (fully_connected_c14): out.capacity is 1 bytes, must be at least 3"
    )


def test_tensor_facts_are_checked() -> None:
    """Parameters outside their fields' width, and a capacity beyond the memory, are errors."""
    for bad in (-129, 256):
        with pytest.raises(ValueError, match=f"frac_bits: {bad}"):
            FxParams(bad)
    with pytest.raises(ValueError, match="scale: 32768"):
        SaParams((0,), (32768,), (0,))
    with pytest.raises(ValueError, match="zero_point: -32769"):
        SaParams((-32769,), (1,), (0,))
    with pytest.raises(ValueError, match="scale_frac_bits: 128"):
        SaParams((0,), (1,), (128,))
    with pytest.raises(ValueError, match="lengths"):
        SaParams((0, 0), (1, 1), (0, 0))
    empty = mli.empty(8, mli.ElType.MLI_EL_FX_8)
    with pytest.raises(ValueError, match="capacity: 9 bytes"):
        mli.Tensor(empty.data, 9, (), 0, mli.ElType.MLI_EL_FX_8, None)
    with pytest.raises(ValueError, match=r"array: 128..128, must be in -128..127"):
        mli.from_array([128], mli.ElType.MLI_EL_FX_8, FxParams(0))
    with pytest.raises(ValueError, match="must be integers for MLI_EL_FX_8"):
        mli.from_array([0.5], mli.ElType.MLI_EL_FX_8, FxParams(0))
