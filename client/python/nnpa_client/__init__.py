# SPDX-License-Identifier: Apache-2.0
"""nnpa: IBM's NNPA accelerator and zDNN, emulated; this is the Python client.

import numpy as np
from nnpa_client import connect, zdnn

with connect() as session:
    a = session.ztensor(np.ones((2, 3), np.float32))
    print(zdnn.add(a, a).numpy())

A name is imported when it is first used: `nnpa_client.pytest_plugin`, which pytest loads into every
run, costs neither gRPC nor NumPy.
"""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward

if TYPE_CHECKING:
    from nnpa.zdnn.v1.accelerator_pb2 import MachineSpec
    from nnpa_tools.evaluation.accuracy import Accuracy, accuracy
    from nnpa_tools.evaluation.datasets import Preprocessing

    from nnpa_client import array_api, dlfloat16, mli, network, zdnn
    from nnpa_client.connection import ConnectOptions, connect, list_machines
    from nnpa_client.errors import (
        NetworkError,
        NnpaError,
        ProgramCheck,
        SanitizerWarning,
        SessionLostError,
        TransportError,
        ZdnnError,
        ZdnnWarning,
    )
    from nnpa_client.session import Pipeline, Session
    from nnpa_client.status import Status
    from nnpa_client.ztensor import Ztensor

    __version__: str

__all__ = [
    "Accuracy",
    "ConnectOptions",
    "MachineSpec",
    "NetworkError",
    "NnpaError",
    "Pipeline",
    "Preprocessing",
    "ProgramCheck",
    "SanitizerWarning",
    "Session",
    "SessionLostError",
    "Status",
    "TransportError",
    "ZdnnError",
    "ZdnnWarning",
    "Ztensor",
    "__version__",
    "accuracy",
    "array_api",
    "connect",
    "dlfloat16",
    "list_machines",
    "mli",
    "network",
    "zdnn",
]

_forwarded = forward(__name__)


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version  # as long to import as gRPC

        value: object = version("nnpa")
    else:
        value = _forwarded(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
