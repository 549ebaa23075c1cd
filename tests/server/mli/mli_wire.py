# SPDX-License-Identifier: Apache-2.0
"""MLI messages written short, and valid calls to spoil."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa.mli.v1 import mli_pb2 as pb

M, N, FRAMES = 3, 4, 5
FX_8, FX_16 = pb.MLI_EL_FX_8, pb.MLI_EL_FX_16
TYPES = {"fx8": (FX_8, FX_8), "fx16": (FX_16, FX_16), "fx8w16d": (FX_16, FX_8)}
DTYPES: Mapping[int, npt.DTypeLike] = {FX_8: "i1", FX_16: "<i2"}
VARIANTS = sorted(TYPES)
Fields = dict[str, Any]


def tensor(shape: Sequence[int], el_type: Any, frac_bits: int, seed: int) -> pb.Tensor:
    """Small values of a shape."""
    values = np.random.default_rng(seed).integers(-20, 20, shape).astype(DTYPES[el_type])
    message = pb.Tensor(data=values.tobytes(), shape=shape, el_type=el_type)
    message.fx.frac_bits = frac_bits
    return message


def room(elements: int, el_type: Any, frac_bits: int = 0) -> pb.Tensor:
    """An output of zero bytes."""
    size = elements * np.dtype(DTYPES[el_type]).itemsize
    message = pb.Tensor(zero_bytes=size, el_type=el_type)
    message.fx.frac_bits = frac_bits
    return message


def output_of(kernel_index: int, field: str) -> pb.TensorRef:
    """The tensor of an earlier kernel."""
    return pb.TensorRef(output_of=pb.Place(kernel_index=kernel_index, field=field))


def shared(
    field: str, like: pb.Tensor, offset: int = 0, kernel_index: int | None = None
) -> pb.TensorRef:
    """A tensor with the fields of another, in the memory of a field."""
    bare = pb.Tensor()
    bare.CopyFrom(like)
    bare.ClearField("data")
    bare.ClearField("zero_bytes")
    place = pb.Place(field=field, kernel_index=kernel_index)
    return pb.TensorRef(same_memory_as=pb.SharedTensor(place=place, offset=offset, tensor=bare))


def kernel(name: str, fields: Fields, *, omit_outputs: bool = False) -> pb.Kernel:
    """A call; fields are tensors, references, numbers, or a mapping for the configuration."""
    call = pb.Kernel(omit_outputs=omit_outputs)
    message = getattr(call, name)
    message.SetInParent()
    _fill(message, fields)
    return call


def _fill(message: Any, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, pb.Tensor):
            getattr(message, name).CopyFrom(pb.TensorRef(inline=value))
        elif isinstance(value, pb.TensorRef):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, Mapping):
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), value)
        elif isinstance(value, Sequence):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


def fully_connected(variant: str) -> Fields:
    """N inputs, M outputs."""
    data, weights = TYPES[variant]
    return {
        "in": tensor((N,), data, 5, 0),
        "weights": tensor((M, N), weights, 4, 1),
        "bias": tensor((M,), weights, 3, 2),
        "out": room(M, data, 4),
    }


def recurrent(variant: str, mode: Any, gates: int) -> Fields:
    """FRAMES inputs of N, M outputs; prev_out has the fractional bits of an activated output."""
    data, weights = TYPES[variant]
    shape = (N,) if mode == pb.RNN_ONE_TO_ONE else (FRAMES, N)
    ahead = (gates,) if gates > 1 else ()
    outputs = FRAMES if mode == pb.RNN_BATCH_TO_BATCH else 1
    return {
        "in": tensor(shape, data, 5, 3),
        "prev_out": tensor((M,), data, 7 if data == FX_8 else 15, 4),
        "weights": tensor((*ahead, M, N + M), weights, 4, 5),
        "bias": tensor((*ahead, M), weights, 3, 6),
        "cfg": {"mode": mode, "act": pb.RNN_ACT_TANH, "ir_tsr": room(gates * M, data)},
        "out": room(M * outputs, data, 7),
    }


def lstm(variant: str, mode: Any = pb.RNN_ONE_TO_ONE) -> Fields:
    """An LSTM cell."""
    return recurrent(variant, mode, 4) | {"cell": tensor((M,), TYPES[variant][0], 4, 7)}


def scenes() -> dict[str, Fields]:
    """A valid call of every kernel."""
    calls: dict[str, Fields] = {}
    for variant, (data, _) in TYPES.items():
        calls[f"krn_fully_connected_{variant}"] = fully_connected(variant)
        calls[f"krn_lstm_cell_{variant}"] = lstm(variant)
        calls[f"krn_basic_rnn_cell_{variant}"] = recurrent(variant, pb.RNN_BATCH_TO_LAST, 1)
        for function in ("tanh", "sigm") if variant != "fx8w16d" else ():
            fields = {"in": tensor((2, 3), data, 4, 8), "out": room(6, data)}
            calls[f"krn_{function}_{variant}"] = fields
    pair = {"src": tensor((2, 3), FX_8, 4, 9), "dst": room(6, FX_16, 9)}
    x = {"in": tensor((4, 1, 3), FX_16, 4, 10)}
    cfg = {"offset": [2, 0, 0], "size": [2, 1, 3], "sub_tensor_rank": 2}
    calls |= {"hlp_convert_tensor": pair, "hlp_convert_tensor_safx": pair}
    calls |= {"hlp_subtensor": {**x, "cfg": cfg, "out": pb.Tensor()}}
    calls |= {"hlp_tensor_element_size": x, "hlp_count_elem_num": {**x, "start_dim": 1}}
    return calls | {
        f"hlp_tensor_{parameter}": x for parameter in ("scale", "scale_shift", "zero_offset")
    }


def values(output: pb.Tensor) -> list[int]:
    """The elements of an answer."""
    return [int(value) for value in np.frombuffer(output.data, DTYPES[output.el_type])]


def outputs(result: pb.KernelResult) -> dict[str, pb.Tensor]:
    """The tensors of an answer by field."""
    assert result.mli_status == pb.MLI_STATUS_OK, result
    return {output.field: output.tensor for output in result.outputs}
