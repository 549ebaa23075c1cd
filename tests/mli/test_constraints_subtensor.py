# SPDX-License-Identifier: Apache-2.0
"""Every constraint of subtensors of MLI."""

import mli_emulator as mli
import numpy as np
import pytest
from mli_emulator import (
    ElType,
    MliStatus,
    SaParams,
    SubTensorCfg,
)

from tests.mli.scenes import params_of, subtensor
from tests.mli.test_constraints_utility import BAD, FX8, MEMORY, OK, SA8, UNSUPPORTED, per_axis

CFG = MliStatus.MLI_STATUS_BAD_FUNC_CFG


def test_subtensor_c1() -> None:
    """The input is a valid tensor."""
    scene = subtensor()
    scene["in_"].capacity = 1
    scene.refused("tensor_c6", MEMORY)


def test_subtensor_c2() -> None:
    """The output is not NULL."""
    scene = subtensor()
    scene.arguments["out"] = None
    scene.refused("subtensor_c2", BAD)


def test_subtensor_c3() -> None:
    """The configuration is not NULL."""
    scene = subtensor()
    scene.arguments["cfg"] = None
    scene.refused("subtensor_c3", CFG)


def refused_slice(
    constraint: int, offset: tuple[int, ...], size: tuple[int, ...], rank: int
) -> None:
    """Expect BAD_FUNC_CFG for a slice of a 4x1x3 tensor."""
    scene = subtensor()
    scene.arguments["cfg"] = SubTensorCfg(offset, size, rank)
    scene.refused(f"subtensor_c{constraint}", CFG)


@pytest.mark.parametrize("rank", [4, -1])
def test_subtensor_c4(rank: int) -> None:
    """The result has at most the rank of the input."""
    refused_slice(4, (0, 0, 0), (1, 1, 1), rank)


@pytest.mark.parametrize("offset", [(4, 0, 0), (0, 1, 0), (0, 0, -1)])
def test_subtensor_c5(offset: tuple[int, ...]) -> None:
    """Every offset lies inside the input."""
    refused_slice(5, offset, (1, 1, 1), 3)


@pytest.mark.parametrize("size", [(3, 1, 1), (1, 2, 1), (1, 1, 4)])
def test_subtensor_c6(size: tuple[int, ...]) -> None:
    """Every slice ends inside the input."""
    refused_slice(6, (2, 0, 0), size, 3)


@pytest.mark.parametrize("size", [(0, 1, 1), (1, 1)])
def test_subtensor_c7(size: tuple[int, ...]) -> None:
    """No size is 0 or absent."""
    refused_slice(7, (0, 0, 0), size, 3)


@pytest.mark.parametrize(("size", "rank"), [((2, 1, 3), 1), ((2, 1, 1), 0)])
def test_subtensor_c8(size: tuple[int, ...], rank: int) -> None:
    """Only dimensions of size 1 can be dropped."""
    refused_slice(8, (0, 0, 0), size, rank)


def test_subtensor_c9() -> None:
    """The element type is supported."""
    scene = subtensor()
    scene["in_"].el_type = ElType.MLI_EL_FX_4
    scene.refused("subtensor_c9", UNSUPPORTED)


def test_subtensor_c10() -> None:
    """Element parameters are of the type's kind and as long as the axis."""
    scene = subtensor()
    scene["in_"].el_params = params_of(SA8)
    scene.refused("subtensor_c10", BAD)
    scene["in_"].el_type, scene["in_"].el_params = SA8, per_axis(0, 3)
    scene.refused("subtensor_c10", BAD)


def test_subtensor_c11() -> None:
    """The slice begins inside the input's capacity."""
    scene = subtensor()
    scene["in_"].mem_stride = (1000, 0, 0)
    scene.refused("subtensor_c11", MEMORY)


def test_subtensor_of_a_dropped_axis_is_per_tensor() -> None:
    """A dropped quantised axis leaves the values at its offset for the whole slice."""
    params = SaParams((1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12), 0)
    whole = mli.from_array(np.arange(12).reshape(4, 1, 3), SA8, params)
    out = mli.empty(0, FX8)
    assert mli.hlp_subtensor(whole, SubTensorCfg((2, 0, 0), (1, 1, 3), 2), out).status is OK
    assert out.el_params == SaParams((3,), (7,), (11,))
    assert mli.to_array(out).tolist() == [[6, 7, 8]]
