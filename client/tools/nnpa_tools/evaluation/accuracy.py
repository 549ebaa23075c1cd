# SPDX-License-Identifier: Apache-2.0
"""Measure whether a model keeps its accuracy on the machine, over a whole dataset."""

from collections.abc import Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from pathlib import Path

from nnpa_client.connection import connect
from nnpa_client.network.calls import Model, Options
from nnpa_client.session import Session

from nnpa_tools.evaluation.datasets import Preprocessing, open_data
from nnpa_tools.evaluation.datasets.opening import Data, Labels
from nnpa_tools.evaluation.engine import Measuring, Progress, evaluate, facts
from nnpa_tools.evaluation.results import Accuracy
from nnpa_tools.evaluation.served import ServerEngine

__all__ = ["Accuracy", "accuracy"]
__tracebackhide__ = True  # pytest shows the line that called, not these


def accuracy(
    model: Model,
    data: Data,
    labels: Labels = None,
    *,
    target: str | Session | None = None,
    options: Options | None = None,
    preprocessing: Preprocessing | None = None,
    samples: int | None = None,
    machines: Sequence[str] = (),
    batch: int | None = None,
    node_rows: int = 16,
    int8: bool = True,
    max_drop: float | None = None,
    progress: Progress | None = None,
) -> Accuracy:
    """Measure a model over data on both Telums, or `machines`, beside FP32 and INT8.

        result = nnpa_client.accuracy("model.onnx", x, y)
        print(result.verdict)

    `data` are arrays by the inputs' names, one array for the only input, or the path of a .npz,
    .npy, .csv, .parquet or folder of images, which `preprocessing` turns into an input; `labels`
    are integers, a file of them, or the name of an array or column of the data. `target` is the
    address of a server, or a session; by default a private server is started. `samples` bounds the
    rows; `batch` is the number of rows that run together, `node_rows` the number of rows that are
    measured node by node; `max_drop` is the limit of the verdict; `progress` is called with the
    rows that are done, and all rows. Raises ValueError for data that do not fit, `TransportError`
    for a model that cannot be hosted.
    """
    choice = Measuring(machines, batch, node_rows, int8, max_drop, html=True)
    opened = nullcontext(target) if isinstance(target, Session) else connect(target)
    with opened as session, session.load(model, options=options or Options()) as net:
        dataset = open_data(
            data, net.inputs, net.outputs, labels, preprocessing, (options or Options()).shapes
        ).first(samples)
        name = {"model": Path(fspath(model)).name} if isinstance(model, str | PathLike) else {}
        here = target is None or (isinstance(target, str) and target.startswith("unix:"))
        return evaluate(ServerEngine(net), dataset, choice, {**name, **facts(here=here)}, progress)
