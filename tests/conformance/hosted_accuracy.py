# SPDX-License-Identifier: Apache-2.0
"""Print what the Python client says of a hosted network's accuracy, for the other SDKs' tests.

    python hosted_accuracy.py TARGET MODEL.onnx

The data are 20 rows for an input whose first dim is free: element i is (i * 7 modulo 23, less 11)
/ 32; the label of row k is k modulo 10. The answer is one line of JSON: the figures, the report
less what only the caller knows, and the findings of a probe.
"""

import json
import sys

import nnpa_client
import numpy as np
from nnpa_client import connect

ROWS = 20


def main(target: str, model: str) -> None:
    """Measure and probe the model, and print what comes of it."""
    with connect(target) as session:
        with session.load(model) as net:
            name, shape = net.inputs[0].name, (ROWS, *net.inputs[0].shape[1:])
            runs = net.probe([1, 2], ["telum1"])
        elements = (np.arange(np.prod(shape)) * 7 % 23 - 11) / 32
        rows = {name: elements.astype(np.float32).reshape(shape)}
        labels = np.arange(ROWS) % 10
        accuracy = nnpa_client.accuracy(
            model, rows, labels, target=session, batch=8, node_rows=4, max_drop=0.5
        )
    report = {**accuracy.report, "about": {}}
    figures = {"verdict": accuracy.verdict, "drop": accuracy.drop, "table": accuracy.table}
    print(json.dumps({**figures, "report": report, "probe": runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
