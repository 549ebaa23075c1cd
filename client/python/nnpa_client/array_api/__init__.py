# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A004 - names of the standard's functions
"""The functions of the Python array API standard that zDNN has, on ztensors of float32.

    from nnpa_client import array_api as xp, connect

    with connect() as session:
        x = xp.asarray([[1.0, 2.0], [3.0, 4.0]])
        print(xp.max(xp.exp(x) @ x, axis=-1).numpy())

A function is here if one operation of zDNN computes it, with reshaping at most around it. This is
no conformant implementation: `conformance()` says of each function whether it conforms, or why it
differs. Ztensors have 1 to 4 dims and float32 elements with the values of DLFLOAT16: 9 bits of
fraction, up to 8573157376, and one non-number, NINF, for NaN and infinities alike. An operation
that makes one warns with ZdnnWarning; `x.numpy(strict=False)` reads it as NaN. Three dims are a
stack of matrices, ZDNN_3DS; a ztensor of ZDNN_3D is reshaped first.

A name of the standard that is not here raises AttributeError, arguments that zDNN has no function
for raise NotImplementedError.

Source: Python array API standard, 2024.12.
"""

import math
from typing import TYPE_CHECKING

from nnpa_client.array_api._conformance import Conformance, Difference, Row, conformance
from nnpa_client.array_api._creation import (
    asarray,
    finfo,
    from_dlpack,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from nnpa_client.array_api._elementwise import (
    add,
    clip,
    divide,
    exp,
    log,
    maximum,
    minimum,
    multiply,
    sqrt,
    square,
    subtract,
    tanh,
)
from nnpa_client.array_api._operands import float32, int32
from nnpa_client.array_api._products import matmul, tensordot, vecdot
from nnpa_client.array_api._reductions import argmax, argmin, max, mean, min, var
from nnpa_client.array_api._shapes import expand_dims, reshape, squeeze

__all__ = [
    "Conformance",
    "Difference",
    "Row",
    "__array_api_version__",
    "add",
    "argmax",
    "argmin",
    "asarray",
    "clip",
    "conformance",
    "divide",
    "e",
    "exp",
    "expand_dims",
    "finfo",
    "float32",
    "from_dlpack",
    "full",
    "full_like",
    "int32",
    "log",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "ones",
    "ones_like",
    "pi",
    "reshape",
    "sqrt",
    "square",
    "squeeze",
    "subtract",
    "tanh",
    "tensordot",
    "var",
    "vecdot",
    "zeros",
    "zeros_like",
]

__array_api_version__ = "2024.12"

e, pi = math.e, math.pi

if not TYPE_CHECKING:  # for checkers, what is missing is missing

    def __getattr__(name: str) -> object:
        """Raise AttributeError that names what is missing, and what is here."""
        functions = ", ".join(row.function for row in conformance())
        raise AttributeError(
            f"nnpa_client.array_api has no {name}: no operation of zDNN computes it. It has "
            f"{functions}. x.numpy() is an array of NumPy"
        )
