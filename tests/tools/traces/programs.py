# SPDX-License-Identifier: Apache-2.0
"""Small programs that tests of traces record."""

import warnings
from collections.abc import Callable

import numpy as np
from nnpa_client import Session, trace, zdnn

Open = Callable[..., Session]
A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
OK, RANGE, CONVERT = "ZDNN_OK", "ZDNN_ELEMENT_RANGE_VIOLATION", "ZDNN_CONVERT_FAILURE"


def small_program(session: Session) -> None:
    """Add, take the logarithm of partly negative values, and multiply tensors that do not fit."""
    a = session.ztensor(A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session.pipeline():
            zdnn.log(zdnn.add(a, a))
    zdnn.add(a, a).numpy()


def names(recorded: trace.Trace) -> list[str]:
    """Return the names of the functions that a program called, in order."""
    return [operation.name for operation in recorded.operations if not operation.is_housekeeping]


SMALL = ["allochelper_ztensor", "transform_ztensor", "add", "log", "add", "transform_origtensor"]
