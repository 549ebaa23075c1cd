# SPDX-License-Identifier: Apache-2.0
"""Activations, pooling and normalisation against numpy or a memcpy of the same traffic."""

from typing import Any

import numpy as np
from nnpa_emulator import FUNCTIONS, MACHINES, Guest

from tests.bench.kernels import copying
from tests.bench.local import repeated
from tests.bench.report import Figure, ratio, row
from tests.emulator.operands import blank, tensor
from tests.oracle.rounding import rounded

Dims = tuple[int, int, int, int]

ATTENTION: Dims = (12, 1, 384, 384)
IMAGES: Dims = (1, 112, 112, 64)
WINDOW = {
    "padding_type": 1,
    "kernel_height": 3,
    "kernel_width": 3,
    "stride_height": 2,
    "stride_width": 2,
}


def _share(name: str, dims: Dims, extra: dict[str, Dims], **scalars: Any) -> Figure:
    """Measure an operation as a share of the speed of a memcpy of its operands."""
    random = np.random.default_rng(1)
    entry = FUNCTIONS[name]
    first = next(name for name in entry.tensors if name not in entry.outputs)
    shapes = {first: dims, **extra}
    arguments: dict[str, Any] = {
        key: tensor(rounded(np.abs(random.standard_normal(shape)))) for key, shape in shapes.items()
    }
    arguments |= scalars
    assert entry.infer
    described = entry.infer(**arguments)
    for output, (_, desc) in zip(entry.outputs, described, strict=True):
        arguments[output] = blank(desc.dims, kind=desc.type)
    traffic = sum(arguments[name].sticks.nbytes for name in entry.tensors)
    guest = Guest(MACHINES["telum2"])
    value = ratio(copying(traffic), repeated(guest, name, arguments))
    return Figure(f"{name} {'x'.join(str(size) for size in dims)}", value, more=True)


@row("K2", "activation, pooling and normalisation, share of same-traffic memcpy")
def families() -> list[Figure]:
    """Measure one call of each family, to see a kernel that is no longer vector code."""
    vector, scalars = (1, 1, 1, 64), (1, 1, 1, 1)
    mean = {"beta_value": 0.0, "gamma_value": 1.0, "epsilon_value": 0.001}
    return [
        _share("relu", ATTENTION, {}),
        _share("gelu", ATTENTION, {}),
        _share("softmax", ATTENTION, {}, act_func=0),
        _share("softmax", ATTENTION, {}, act_func=1),
        _share("avgpool2d", IMAGES, {}, **WINDOW),
        _share("maxpool2d", IMAGES, {}, **WINDOW),
        _share("meanreduce2d", IMAGES, {}),
        _share("batchnorm", IMAGES, {"input_b": vector, "input_c": vector}),
        _share("moments", IMAGES, {}, bessel_correction_type=0),
        _share("layernorm", IMAGES, {"input_b": scalars, "input_c": scalars}, **mean),
        _share("norm", ATTENTION, {"input_b": ATTENTION}),
        _share("reduce", ATTENTION, {}, op_type=2),
    ]
