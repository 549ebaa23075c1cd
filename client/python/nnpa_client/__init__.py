# SPDX-License-Identifier: Apache-2.0
"""nnpa: IBM's NNPA accelerator and zDNN, emulated; this is the Python client.

import numpy as np
from nnpa_client import connect, zdnn

with connect() as session:
    a = session.ztensor(np.ones((2, 3), np.float32))
    print(zdnn.add(a, a).numpy())
"""

from importlib.metadata import version

from nnpa.zdnn.v1.accelerator_pb2 import MachineSpec

from nnpa_client import mli, network, zdnn
from nnpa_client.connection import connect, list_machines
from nnpa_client.errors import (
    NetworkError,
    NnpaError,
    ProgramCheck,
    TransportError,
    ZdnnError,
    ZdnnWarning,
)
from nnpa_client.session import Pipeline, Session
from nnpa_client.status import Status
from nnpa_client.ztensor import Ztensor

__all__ = [
    "MachineSpec",
    "NetworkError",
    "NnpaError",
    "Pipeline",
    "ProgramCheck",
    "Session",
    "Status",
    "TransportError",
    "ZdnnError",
    "ZdnnWarning",
    "Ztensor",
    "__version__",
    "connect",
    "list_machines",
    "mli",
    "network",
    "zdnn",
]

__version__ = version("nnpa")
