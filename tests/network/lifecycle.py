# SPDX-License-Identifier: Apache-2.0
"""Networks for tests of their life: created, initialised, and buffers to run them with."""

from dataclasses import replace
from typing import Any

import numpy as np
from nnpa_emulator import Guest, find_machine
from nnpa_network.client_api.buffer_format import Buffer, Format, FormatFlag
from nnpa_network.client_api.creation import Caller, NetworkParams, Options, Provenance
from nnpa_network.client_api.errors import AiError
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.report import Version
from nnpa_network.importing.onnx_plan import OnnxPlan
from onnx import ModelProto

from tests.network.small_models import dense

NOW = Provenance("network", Version(0, 1, 0), "nnpa 0.1.0", "Nov 22 2026 03:00:00", "the same")
NOBODY = Caller()
DEFAULT_WEIGHTS = Buffer(Format.NONE | FormatFlag.CONST, height=0, width=0, channels=0)


def plan_of(model: ModelProto, machine: str = "telum2") -> OnnxPlan:
    """Compile a model."""
    return OnnxPlan(model.SerializeToString(), Guest(find_machine(machine)))


def created(model: ModelProto | None = None, **options: Any) -> Network:
    """Create a network of a model, by default the dense one."""
    return Network(plan_of(model or dense()), NOW, Options(**options), NOBODY)


def activations_of(network: Network, short: int = 0) -> Buffer:
    """Describe memory for a network's activations, some bytes short."""
    return Buffer(Format.U8, channels=network.activations_size - short, data=b"")


def ready(model: ModelProto | None = None, **options: Any) -> Network:
    """Create and initialise a network."""
    network = created(model, **options)
    assert network.init(NetworkParams(DEFAULT_WEIGHTS, activations_of(network)))
    return network


def buffers(network: Network, *values: Any) -> tuple[list[Buffer], list[Buffer]]:
    """Describe arrays, batches first, as inputs, and memory for the same batches of outputs."""
    report = network.get_info()
    count = len(values[0])
    inputs = [
        replace(buffer, n_batches=count, data=np.ascontiguousarray(value).tobytes())
        for buffer, value in zip(report.inputs, values, strict=True)
    ]
    return inputs, [replace(buffer, n_batches=count, data=b"") for buffer in report.outputs]


def words(error: AiError) -> tuple[int, int]:
    """Return an error's numbers."""
    return int(error.type), int(error.code)


def floats(buffer: Buffer) -> Any:
    """Return an output's floats."""
    return np.frombuffer(buffer.data or b"", np.float32)


X = np.array([[1, 2, 3, 4], [-1, 0.5, 2, -3], [0, 0, 0, 0]], np.float32)
