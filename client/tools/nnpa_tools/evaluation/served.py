# SPDX-License-Identifier: Apache-2.0
"""The engine of a server, which measures one batch for each request and writes the report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client._server.methods import MEASURE_ACCURACY
from nnpa_client.network.hosted import Network, Port

from nnpa_tools.evaluation.datasets import Dataset
from nnpa_tools.evaluation.engine import Measuring, Progress
from nnpa_tools.evaluation.results import Accuracy

_MAX_MESSAGE = 60 << 20  # bytes: a server takes 64 MiB, unless it says otherwise


@dataclass(frozen=True, slots=True)
class ServerEngine:
    """Measures a network at the server that has loaded it."""

    net: Network

    @property
    def inputs(self) -> Sequence[Port]:
        """The model's inputs."""
        return self.net.inputs

    @property
    def outputs(self) -> Sequence[Port]:
        """The model's outputs."""
        return self.net.outputs

    @property
    def activations(self) -> int:
        """Bytes of sticks of a run."""
        return self.net.report().activations.channels

    def measure(
        self, dataset: Dataset, choice: Measuring, about: Mapping[str, str], progress: Progress
    ) -> Accuracy:
        """Send rows batch by batch, then ask for the report; raise `TransportError`."""
        size, measurements = choice.batch or dataset.rows, b""
        for first in range(0, dataset.rows, size):
            last = min(first + size, dataset.rows)
            request = self._batch(dataset, choice, first, last)
            request.measurements = measurements
            _require_size(request, last - first)
            measurements = self._ask(request).measurements
            progress(last, dataset.rows)
        request = self._request(choice)
        request.measurements, request.html = measurements, choice.html
        if choice.max_drop is not None:
            request.max_drop = choice.max_drop
        request.about.update({name: text[:900] for name, text in about.items()})
        answer = self._ask(request)
        return Accuracy(json.loads(answer.json), answer.text, answer.html)

    def _batch(
        self, dataset: Dataset, choice: Measuring, first: int, last: int
    ) -> pb.MeasureAccuracyRequest:
        request = self._request(choice)
        request.rows.extend(self.net.named_arrays(dataset.read(first, last)))
        request.first_row = first
        request.only_measurements = True
        if dataset.labels is not None:
            labels = np.ascontiguousarray(dataset.labels[first:last].astype(np.int64))
            request.labels.CopyFrom(
                pb.NamedArray(dtype="int64", shape=labels.shape, data=labels.tobytes())
            )
        return request

    def _request(self, choice: Measuring) -> pb.MeasureAccuracyRequest:
        return pb.MeasureAccuracyRequest(
            session=self.net.handle.session.name,
            network=self.net.handle.name,
            machines=choice.machines,
            batch_rows=choice.batch or 0,
            node_rows=choice.node_rows,
            int8=choice.int8,
        )

    def _ask(self, request: pb.MeasureAccuracyRequest) -> pb.MeasureAccuracyResponse:
        return self.net.handle.session.transport.unary(MEASURE_ACCURACY, request)


def _require_size(request: pb.MeasureAccuracyRequest, rows: int) -> None:
    size = request.ByteSize()
    if size > _MAX_MESSAGE:
        text = f"a batch of {rows} rows has {size:,} bytes, a message takes {_MAX_MESSAGE:,}"
        raise ValueError(f"{text}; give a smaller --batch")
