# SPDX-License-Identifier: Apache-2.0
"""The calls of models whose times are published, by batch and sequence length.

The functions have their names in `published.toml`. Sizes are the published models'; layers that a
CPU runs are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from nnpa_tools.estimates.work import Call, Dims

_STICK = 64


def elementwise(function: str, sizes: Dims) -> Call:
    """Return a call of one tensor in, one of its shape out."""
    return Call(function, {"input": sizes, "output": sizes})


def product(function: str, stacks: int, rows: int, inner: int, columns: int) -> Call:
    """Return a matrix product, stacked."""
    left, right = (stacks, 1, rows, inner), (stacks, 1, inner, columns)
    return Call(function, {"input_a": left, "input_b": right, "output": (stacks, 1, rows, columns)})


def transform(function: str, sizes: Dims, compiled: bool) -> Call:
    """Return a transform of an FP32 array, by the compiler's code or by zDNN's."""
    return Call(function, {"ztensor": sizes}, compiled=compiled)


def fraud_detection(batch: int, length: int) -> Iterator[Call]:
    """Yield two LSTM layers of 200 over 220 inputs, and the final product.

    Source: the public model ai-on-z-fraud-detection.
    """
    hidden = 200
    yield transform("transform_ztensor", (length, 1, batch, 220), compiled=True)
    for inputs in (220, hidden):
        yield _lstm(batch, length, inputs, hidden)
    yield product("matmul_op", 1, batch, hidden, 1)
    yield elementwise("sigmoid", (1, 1, batch, 1))
    yield transform("transform_origtensor", (1, 1, batch, 1), compiled=True)


def _lstm(batch: int, length: int, inputs: int, hidden: int) -> Call:
    gates = 4 * -(-hidden // _STICK) * _STICK  # each gate has sticks of its own
    return Call(
        "lstm",
        {
            "input": (length, 1, batch, inputs),
            "h0": (1, 1, batch, hidden),
            "weights": (1, 1, inputs, gates),
            "hidden_weights": (1, 1, hidden, gates),
        },
    )


def decoder(batch: int, length: int) -> Iterator[Call]:
    """Yield the products that llama.cpp runs by zDNN in a decoder of 40 layers of 2048.

    Each takes and returns an FP32 array through zDNN's transforms. Attention runs on the CPU; the
    product with the vocabulary is for the last token only.
    """
    hidden, inside, keys, words = 2048, 8192, 512, 49159
    layer = (
        (hidden, hidden), (hidden, keys), (hidden, keys), (hidden, hidden),
        (hidden, inside), (hidden, inside), (inside, hidden),
    )  # fmt: skip
    shapes = [(batch * length, *sizes) for _ in range(40) for sizes in layer]
    for rows, inner, columns in [*shapes, (batch, hidden, words)]:
        yield transform("transform_ztensor", (1, 1, rows, inner), compiled=False)
        yield product("matmul_op", 1, rows, inner, columns)
        yield transform("transform_origtensor", (1, 1, rows, columns), compiled=False)


def bert(batch: int, length: int) -> Iterator[Call]:
    """Yield 12 layers of 768 with 12 heads and 3072 inside; LayerNormalization runs on the host.

    GELU is its tanh form of eight functions, as the model's file has it.
    """
    hidden, heads, inside, rows = 768, 12, 3072, batch * length
    head, stacks = hidden // heads, batch * heads
    narrow, wide, scores = (1, 1, rows, hidden), (1, 1, rows, inside), (stacks, 1, length, length)
    for _ in range(12):
        yield transform("transform_ztensor", narrow, compiled=True)
        for _ in range(3):
            yield product("matmul_op", 1, rows, hidden, hidden)
        yield product("matmul_op", stacks, length, head, length)
        yield elementwise("add", scores)
        yield elementwise("softmax", scores)
        yield product("matmul_op", stacks, length, length, head)
        yield product("matmul_op", 1, rows, hidden, hidden)
        yield transform("transform_origtensor", narrow, compiled=True)
        yield transform("transform_ztensor", narrow, compiled=True)
        yield product("matmul_op", 1, rows, hidden, inside)
        for function in ("mul", "mul", "mul", "add", "mul", "tanh", "add", "mul"):
            yield elementwise(function, wide)
        yield product("matmul_op", 1, rows, inside, hidden)
        yield transform("transform_origtensor", narrow, compiled=True)


GRAPHS: Mapping[str, Callable[[int, int], Iterator[Call]]] = MappingProxyType(
    {graph.__name__: graph for graph in (fraud_detection, decoder, bert)}
)
"""The functions above, by name."""
