# SPDX-License-Identifier: Apache-2.0
"""Valid calls of every kernel, to be spoiled one condition at a time."""

from dataclasses import dataclass

import mli_emulator as mli
import numpy as np
import pytest
from mli_emulator import (
    DebugLevel,
    ElParams,
    ElType,
    FxParams,
    MliStatus,
    Options,
    Outcome,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Tensor,
)

from tests.mli.golden_records import TYPES, call

M, N, FRAMES = 3, 4, 2
ROOM = 8  # times the bytes that a tensor needs, so that strides can grow inside the capacity

State = dict[str, tuple[object, ...]]


@dataclass
class Scene:
    """A kernel and its arguments; all of them valid until a test changes one."""

    kernel: str
    arguments: dict[str, object]

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor argument; ``ir`` is the configuration's."""
        argument = self.cfg.ir_tsr if name == "ir" else self.arguments[name]
        assert isinstance(argument, Tensor)
        return argument

    @property
    def cfg(self) -> RnnCellCfg:
        """The configuration of a recurrent cell."""
        argument = self.arguments["cfg"]
        assert isinstance(argument, RnnCellCfg)
        return argument

    def configure(self, mode: int, act: int, ir: Tensor | None) -> None:
        """Replace the configuration."""
        self.arguments["cfg"] = RnnCellCfg(mode, act, ir)

    def reshape(self, name: str, *shape: int) -> None:
        """Give a tensor another shape."""
        self[name].shape, self[name].rank = shape, len(shape)

    def state(self) -> State:
        """Return every field and byte of every tensor."""
        state: State = {}
        tensors = dict(self.arguments)
        if isinstance(tensors.get("cfg"), RnnCellCfg):
            tensors["cfg"] = self.cfg.ir_tsr
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor):
                data = None if tensor.data is None else tensor.data.tobytes()
                state[name] = (
                    data,
                    tensor.capacity,
                    tensor.shape,
                    tensor.rank,
                    tensor.el_type,
                    tensor.el_params,
                    tensor.mem_stride,
                )
        return state

    def run(self, options: Options | None = None) -> Outcome:
        """Call the kernel."""
        return call(self.kernel, **self.arguments, options=options or Options())

    def refused(
        self, constraint: str, status: MliStatus, options: Options | None = None
    ) -> Outcome:
        """Call, and expect this constraint and status, and that nothing was written."""
        before = self.state()
        outcome = self.run(options)
        assert outcome.refusal is not None, f"{constraint}: accepted"
        assert (outcome.refusal.constraint, outcome.status) == (constraint, status)
        assert outcome.refusal.field
        assert outcome.refusal.limit
        assert self.state() == before
        return outcome

    def stops(self, constraint: str, level: DebugLevel) -> None:
        """Call at an asserting level, and expect the abort of this constraint, nothing written."""
        before = self.state()
        with pytest.raises(mli.Asserted) as stop:
            self.run(Options(debug=level))
        assert stop.value.refusal.constraint == constraint
        assert self.state() == before


def tensor(shape: tuple[int, ...], el_type: ElType, params: ElParams, seed: int) -> Tensor:
    """Small values of a shape, in memory with room."""
    values = np.random.default_rng(seed).integers(-20, 20, shape)
    large = mli.from_array(values, el_type, params)
    assert large.data is not None
    large.data = np.concatenate([large.data] * ROOM)
    large.capacity = large.data.nbytes
    return large


def output(elements: int, el_type: ElType, params: ElParams) -> Tensor:
    """An output filled with a pattern, to see whether it is written."""
    blank = tensor((elements,), el_type, params, 9)
    blank.shape, blank.rank = (), 0
    return blank


def fully_connected(variant: str) -> Scene:
    """A fully connected layer of N inputs and M outputs."""
    io, weights = TYPES[variant]
    return Scene(
        f"krn_fully_connected_{variant}",
        {
            "in_": tensor((N,), io, FxParams(5), 0),
            "weights": tensor((M, N), weights, FxParams(4), 1),
            "bias": tensor((M,), weights, FxParams(3), 2),
            "out": output(M, io, FxParams(4)),
        },
    )


def recurrent(variant: str, mode: RnnMode) -> dict[str, object]:
    """The tensors both cells share, without weights and bias."""
    io = TYPES[variant][0]
    shape = (N,) if mode is RnnMode.RNN_ONE_TO_ONE else (FRAMES, N)
    return {
        "in_": tensor(shape, io, FxParams(5), 0),
        "prev_out": tensor((M,), io, FxParams(7), 1),
        "out": output(M * FRAMES, io, FxParams(7)),
    }


def lstm(
    variant: str,
    mode: RnnMode = RnnMode.RNN_ONE_TO_ONE,
    act: RnnOutActivation = RnnOutActivation.RNN_ACT_TANH,
) -> Scene:
    """An LSTM cell of N inputs and M outputs."""
    io, weights = TYPES[variant]
    arguments = recurrent(variant, mode) | {
        "weights": tensor((4, M, N + M), weights, FxParams(4), 2),
        "bias": tensor((4, M), weights, FxParams(3), 3),
        "cell": tensor((M,), io, FxParams(4), 4),
        "cfg": RnnCellCfg(mode, act, output(4 * M, io, None)),
    }
    return Scene(f"krn_lstm_cell_{variant}", arguments)


def basic_rnn(
    variant: str,
    mode: RnnMode = RnnMode.RNN_ONE_TO_ONE,
    act: RnnOutActivation = RnnOutActivation.RNN_ACT_TANH,
) -> Scene:
    """A basic RNN cell of N inputs and M outputs."""
    io, weights = TYPES[variant]
    arguments = recurrent(variant, mode) | {
        "weights": tensor((M, N + M), weights, FxParams(4), 2),
        "bias": tensor((M,), weights, FxParams(3), 3),
        "cfg": RnnCellCfg(mode, act, output(M, io, None)),
    }
    return Scene(f"krn_basic_rnn_cell_{variant}", arguments)


def stacked_rnn(variant: str) -> Scene:
    """A basic RNN cell with two stacked weight matrices."""
    scene = basic_rnn(variant)
    weights = TYPES[variant][1]
    scene.arguments["weights"] = tensor((2, M, N + M), weights, FxParams(4), 2)
    scene.arguments["bias"] = tensor((2, M), weights, FxParams(3), 3)
    return scene


def convert(source: ElType = ElType.MLI_EL_FX_8, target: ElType = ElType.MLI_EL_FX_16) -> Scene:
    """A conversion of 2x3 elements."""
    src = tensor((2, 3), source, params_of(source), 0)
    return Scene("hlp_convert_tensor", {"src": src, "dst": output(6, target, params_of(target))})


def params_of(el_type: ElType) -> ElParams:
    """Per-tensor parameters of a type."""
    if el_type is ElType.MLI_EL_FP_32:
        return None
    if el_type in (ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_16):
        return FxParams(4)
    return mli.SaParams((3,), (5,), (2,))


def activation(name: str) -> Scene:
    """Six elements of ``krn_<name>``."""
    el_type = ElType.MLI_EL_FX_8 if name.endswith("fx8") else ElType.MLI_EL_FX_16
    x = tensor((2, 3), el_type, FxParams(4), 0)
    return Scene(f"krn_{name}", {"in_": x, "out": output(6, el_type, None)})


def subtensor() -> Scene:
    """Half of a 4x1x3 tensor."""
    x = tensor((4, 1, 3), ElType.MLI_EL_FX_16, FxParams(4), 0)
    cfg = mli.SubTensorCfg((2, 0, 0), (2, 1, 3), 2)
    out = output(1, ElType.MLI_EL_FX_8, None)
    return Scene("hlp_subtensor", {"in_": x, "cfg": cfg, "out": out})
