# SPDX-License-Identifier: Apache-2.0
"""Print what the Python client gets from a hosted network, for the other SDKs' tests.

    python hosted_outputs.py TARGET MODEL.onnx MACHINE

Free dims are 2; element i of an input is (i * 7 modulo 23, less 11) / 32. The answer is one line of
JSON: each output's shape and its FP32 words, hexadecimal.
"""

import json
import sys

import numpy as np
from nnpa_client import connect
from nnpa_client.network import Port


def fractions(port: Port) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return an input's array."""
    shape = [2 if size < 0 else size for size in port.shape]
    elements = (np.arange(np.prod(shape, dtype=np.int64)) * 7 % 23 - 11) / 32
    return elements.astype(np.float32).reshape(shape)


def main(target: str, model: str, machine: str) -> None:
    """Run the model once, and print its outputs."""
    with connect(target, machine) as session, session.load(model) as net:
        outputs = net.infer(**{port.name: fractions(port) for port in net.inputs}).outputs
    answer = {
        name: {"shape": array.shape, "words": [f"{word:08X}" for word in array.view("<u4").flat]}
        for name, array in outputs.items()
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
