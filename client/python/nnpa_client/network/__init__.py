# SPDX-License-Identifier: Apache-2.0
"""Hosted networks: ONNX models on the emulated accelerator.

`session.load("model.onnx")` returns a function over NumPy arrays. Beneath it is the X-CUBE-AI
Embedded Inference Client API under its own names (`create`, `init`, `run`, `get_error`, `get_info`,
`destroy`), with buffers in BHWC order.
"""

from nnpa_client.network.buffers import (
    AiError,
    Buffer,
    MetaInfo,
    NetworkParams,
    activations,
    default_weights,
    split_weights,
    weights,
)
from nnpa_client.network.calls import (
    Handle,
    Options,
    Report,
    create,
    destroy,
    forward,
    get_error,
    get_info,
    init,
    node_info,
    observe,
    run,
)
from nnpa_client.network.formats import (
    Format,
    byte_size,
    dequantize,
    dtype_of,
    fmt_get,
    fmt_get_bits,
    fmt_get_fbits,
    fmt_get_float,
    fmt_get_sign,
    fmt_get_type,
    from_bhwc,
    quantize,
    to_bhwc,
)
from nnpa_client.network.hosted import Inference, Network, Port, load

__all__ = [
    "AiError",
    "Buffer",
    "Format",
    "Handle",
    "Inference",
    "MetaInfo",
    "Network",
    "NetworkParams",
    "Options",
    "Port",
    "Report",
    "activations",
    "byte_size",
    "create",
    "default_weights",
    "dequantize",
    "destroy",
    "dtype_of",
    "fmt_get",
    "fmt_get_bits",
    "fmt_get_fbits",
    "fmt_get_float",
    "fmt_get_sign",
    "fmt_get_type",
    "forward",
    "from_bhwc",
    "get_error",
    "get_info",
    "init",
    "load",
    "node_info",
    "observe",
    "quantize",
    "run",
    "split_weights",
    "to_bhwc",
    "weights",
]
