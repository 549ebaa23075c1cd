# SPDX-License-Identifier: Apache-2.0
"""`nnpa demo`: two trained networks read handwritten digits on both Telums.

A convolutional network and an LSTM (networks/README.md) classify 360 digits that they have not
seen, the whole inference as one list of zDNN calls, and the answers are compared with the same
networks in NumPy FP32 and with the labels. Then the server hosts the convolutional network, an ONNX
file, which reads the digits through the Open Inference Protocol.
"""

import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from nnpa_client import zdnn
from nnpa_client._server.private_server import server_at
from nnpa_client._values.availability import TELUMS
from nnpa_client._values.user_arrays import dims
from nnpa_client.config import Credentials
from nnpa_client.connection import connect
from nnpa_client.errors import ZdnnWarning
from nnpa_client.inference import ModelClient
from nnpa_client.networks import NETWORKS, Digits, Layer, Network, held_out, onnx_cnn
from nnpa_client.networks.digits import Floats
from nnpa_client.session import Session
from nnpa_client.ztensor import Ztensor

# Share of digits that each network reads correctly at least, on any machine.
PROMISED = {"cnn": 0.97, "lstm": 0.95}
# How much of FP32's accuracy DLFLOAT16 may cost.
TOLERATED_LOSS = 0.01
# Reported times are the median of this many rounds; for single operations, the minimum.
ROUNDS = 3
_REPEATS = 3
_SLOWEST = 3


@dataclass(frozen=True, slots=True)
class OperationTime:
    """How long one zDNN operation of a network takes in the server, milliseconds."""

    function: str
    purpose: str
    milliseconds: float


@dataclass(frozen=True, kw_only=True)
class Part:
    """Results of one way to read the digits on one machine.

    `shape` is the shape of the input. `accuracy` and `reference_accuracy` (NumPy FP32) are shares
    of `digits`; `same_answers` counts digits that both read alike; `worst_difference` is the
    largest between their likelihoods. `violations` counts operations that answered
    ZDNN_ELEMENT_RANGE_VIOLATION. `round_trip_ms` is the time of one request with all digits.
    """

    title: str
    shape: tuple[int, ...]
    digits: int
    accuracy: float
    reference_accuracy: float
    same_answers: int
    worst_difference: float
    violations: int
    round_trip_ms: float

    def keeps(self, promised: float) -> bool:
        """Return True if the accuracy is high enough, absolutely and relative to FP32."""
        return self.accuracy >= max(promised, self.reference_accuracy - TOLERATED_LOSS)


@dataclass(frozen=True, kw_only=True)
class NetworkReport(Part):
    """Results of a network, whose `calls` of zDNN are sent in one message.

    `dense_bytes` is the size of its input in FP32, `stick_shape` and `stick_bytes` describe the
    sticks.
    """

    network: str
    dense_bytes: int
    stick_shape: tuple[int, ...]
    stick_bytes: int
    calls: int
    slowest: tuple[OperationTime, ...]

    @property
    def as_promised(self) -> bool:
        """Whether the network keeps its accuracy."""
        return self.keeps(PROMISED[self.network])


@dataclass(frozen=True, kw_only=True)
class ModelReport(Part):
    """Results of the ONNX file, hosted by the server, with its nodes by device."""

    on_accelerator: int
    on_host: int

    @property
    def as_promised(self) -> bool:
        """Whether the model keeps its accuracy."""
        return self.keeps(PROMISED["cnn"])


@dataclass(frozen=True, slots=True)
class Report:
    """Results of the demo on one machine."""

    machine: str
    display_name: str
    as_promised: bool
    networks: tuple[NetworkReport, ...]
    model: ModelReport


Results: TypeAlias = NetworkReport | ModelReport
Show: TypeAlias = Callable[[Sequence[str], Sequence[Results]], None]
"""Takes the machines' names and the results of one part of the demo, by machine."""


def run(
    target: str | None = None,
    credentials: Credentials | None = None,
    show: Show = lambda _names, _parts: None,
) -> list[Report]:
    """Run the demo on both Telums of a server; None starts a private one.

    `show` is called with each part as soon as both machines have run it.
    """
    digits, parts, shown = held_out(), list[list[Results]](), credentials or {}
    with ExitStack() as stack:
        address = stack.enter_context(server_at(target))
        sessions = [stack.enter_context(connect(address, machine, **shown)) for machine in TELUMS]
        names = [session.machine.display_name for session in sessions]
        for network in NETWORKS:
            parts.append([_report(session, network, digits) for session in sessions])
            show(names, parts[-1])
        models = stack.enter_context(ModelClient(address, **shown))
        parts.append([hosted(models, machine, digits) for machine in TELUMS])
        show(names, parts[-1])
    return [
        _of_machine(machine, name, results)
        for machine, name, results in zip(TELUMS, names, zip(*parts, strict=True), strict=True)
    ]


def _of_machine(machine: str, name: str, parts: Sequence[Results]) -> Report:
    networks = tuple(part for part in parts if isinstance(part, NetworkReport))
    (model,) = (part for part in parts if isinstance(part, ModelReport))
    return Report(machine, name, all(part.as_promised for part in parts), networks, model)


def hosted(models: ModelClient, machine: str, digits: Digits) -> ModelReport:
    """Host the ONNX file on the server for a machine, and read all digits in each request."""
    name, images = f"demo-{secrets.token_hex(4)}", digits.images[:, None]
    models.load(name, onnx_cnn(), machine)
    try:
        properties = models.properties(name)
        answer, times = models.infer(name, {"image": images}), list[float]()
        for _ in range(ROUNDS):
            start = time.perf_counter()
            models.infer(name, {"image": images})
            times.append(1000 * (time.perf_counter() - start))
    finally:
        models.unload(name)
    (cnn,) = (network for network in NETWORKS if network.name == "cnn")
    return ModelReport(
        title="the same, ONNX hosted",
        shape=images.shape,
        on_accelerator=int(properties["nodes_accelerator"]),
        on_host=int(properties["nodes_host"]),
        violations=answer.range_violations,
        round_trip_ms=median(times),
        **_compared(_likelihoods(answer.outputs["logits"]), cnn, digits),
    )


def _compared(likelihoods: Floats, network: Network, digits: Digits) -> dict[str, Any]:
    """Return the fields of a report that compare likelihoods with FP32 and with the labels."""
    expected = _likelihoods(network.reference(digits.images))
    answers, reference = likelihoods.argmax(axis=1), expected.argmax(axis=1)
    return {
        "digits": len(digits.labels),
        "accuracy": float((answers == digits.labels).mean()),
        "reference_accuracy": float((reference == digits.labels).mean()),
        "same_answers": int((answers == reference).sum()),
        "worst_difference": float(np.abs(likelihoods - expected).max()),
    }


def _report(session: Session, network: Network, digits: Digits) -> NetworkReport:
    data = network.arrange(digits.images)
    with session.pipeline():
        layers = network.load(session, len(digits.labels))
    inferences = [_infer(session, network, layers, data) for _ in range(1 + ROUNDS)][1:]
    likelihoods, source, statuses, _milliseconds = inferences[-1]
    return NetworkReport(
        network=network.name,
        title=network.title,
        shape=data.shape,
        dense_bytes=data.nbytes,
        stick_shape=dims(source.transformed_desc),
        stick_bytes=source.buffer_size,
        calls=len(statuses),
        violations=statuses.count(zdnn.ZDNN_ELEMENT_RANGE_VIOLATION),
        round_trip_ms=median(milliseconds for *_, milliseconds in inferences),
        slowest=_slowest(session, network, layers, data),
        **_compared(likelihoods, network, digits),
    )


def _infer(
    session: Session, network: Network, layers: Sequence[Layer], data: Floats
) -> tuple[Floats, Ztensor, list[int], float]:
    """Send the whole inference as one list.

    Return likelihoods (digits, 10), the input, the statuses of the calls, and milliseconds.
    """
    batch = data.size // 64
    likelihoods = np.empty((batch, 10), np.float32)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZdnnWarning)
        with session.pipeline() as pipeline:
            x = source = session.ztensor(data, network.layout)
            for layer in layers:
                x = layer.run(x)
            zdnn.transform_origtensor(x, likelihoods)
    milliseconds = 1000 * (time.perf_counter() - start)
    statuses = [result.zdnn_status for result in pipeline.results]
    return likelihoods, source, statuses, milliseconds


def _slowest(
    session: Session, network: Network, layers: Sequence[Layer], data: Floats
) -> tuple[OperationTime, ...]:
    """Return the slowest operations, each timed in a list of its own repetitions."""
    times: list[OperationTime] = []
    x = session.ztensor(data, network.layout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZdnnWarning)
        for layer in layers:
            milliseconds = min(_time(session, layer, x) for _ in range(ROUNDS))
            times.append(OperationTime(layer.function, layer.purpose, milliseconds))
            x = layer.run(x)
    ordered = sorted(times, key=lambda operation: operation.milliseconds, reverse=True)
    return tuple(ordered[:_SLOWEST])


def _time(session: Session, layer: Layer, x: Ztensor) -> float:
    """Return the milliseconds of one call among several in a list."""
    start = time.perf_counter()
    with session.pipeline():
        for _ in range(_REPEATS):
            layer.run(x)
    return 1000 * (time.perf_counter() - start) / _REPEATS


def _likelihoods(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)
