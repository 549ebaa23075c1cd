# SPDX-License-Identifier: Apache-2.0
"""Observation of a run: events around every node, and descriptions of the nodes.

Source: X-CUBE-AI 7.0 Platform Observer API (ai_platform_interface.h, API 1.1.0): event flags, layer
type ids and the order of events. A node here is one that runs: those that were folded into others
at import are none.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag

from nnpa_network.program import Array, Node


class EventFlag(IntFlag):
    """When an event happens: AI_OBSERVER_XXX_EVT. Clients may set bits 0 to 7."""

    INIT = 0x1
    PRE = 0x2
    POST = 0x4
    FIRST = 0x100
    LAST = 0x200


USER_EVENTS = 0xFF

_STATELESS, _STATEFUL = 0x100, 0x180
_BASE, _LAMBDA = 0, 32
_LAYERS: Mapping[int, str] = {
    2: "BatchNormalization",
    3: "Conv ConvTranspose ConvInteger QLinearConv",
    5: "GRU",
    6: "LRN",
    7: "Relu LeakyRelu PRelu Elu Selu Celu Tanh Sigmoid HardSigmoid HardSwish Softplus Softsign "
    "Exp Log Sqrt Erf Gelu Clip Abs Neg Sin Cos Reciprocal Mish ThresholdedRelu Sign Round Floor "
    "Ceil",
    8: "LpNormalization LayerNormalization MeanVarianceNormalization GroupNormalization",
    10: "Transpose",
    11: "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool",
    12: "Softmax LogSoftmax",
    13: "Split",
    16: "Concat",
    17: "MatMul Gemm MatMulInteger QLinearMatMul",
    18: "Upsample",
    19: "Add Sub Mul Div Min Max Pow Mean Sum And Or Xor Equal Less Greater Where Mod",
    21: "InstanceNormalization",
    22: "Pad",
    23: "Slice",
    24: "Tile Expand",
    25: "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ArgMax ArgMin",
    26: "RNN",
    27: "Resize",
    28: "Gather GatherElements GatherND",
    31: "If Loop Scan",
    _BASE: "Reshape Flatten Squeeze Unsqueeze Identity Dropout Cast Constant Shape",
}
_TYPE_OF = {name: number for number, names in _LAYERS.items() for name in names.split()}


def layer_type(op_type: str) -> int:
    """Return the layer type id of an ONNX operator; one without an id of its own is a lambda."""
    if op_type == "LSTM":
        return _STATEFUL + 1
    return _STATELESS + _TYPE_OF.get(op_type, _LAMBDA)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as the observer sees it: `ai_observer_node`.

    `c_idx` is its place in the order of execution, from 0; `id` its place in the model. Tensors go
    by their names in the model: inputs, outputs, weights. There are no scratch tensors.
    """

    c_idx: int
    type: int
    id: int
    node: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One event. INIT has no node.

    `run` counts the runs of the network from 1, `batch` the batches of a run from 0. `tensors` are
    the node's live values by name, if the observer takes them. The receiver sets `time_ns` from its
    clock.
    """

    flags: EventFlag
    run: int
    batch: int
    node: NodeInfo | None
    tensors: Mapping[str, Array] = field(default_factory=dict[str, Array])
    time_ns: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


@dataclass(frozen=True, slots=True)
class Observer:
    """A callback and a cookie, as for ai_platform_observer_register.

    `events` is a mask, `nodes` are numbers c_idx (None: all), `tensors` tells whether events carry
    values. The callback runs inside the observed run; an exception of it ends the run.
    """

    callback: Callable[[Event], object]
    events: EventFlag
    tensors: bool = False
    nodes: frozenset[int] | None = None
    cookie: object = None

    def wants(self, flags: EventFlag, c_idx: int | None) -> bool:
        """Return whether the observer takes an event."""
        chosen = self.nodes is None or c_idx is None or c_idx in self.nodes
        return chosen and bool(flags & self.events & USER_EVENTS)


class EventQueue:
    """A bounded queue between a run and the reader of its events.

    An event that does not fit is dropped and counted; with `block` the run waits for the reader
    instead, until `close`.
    """

    def __init__(self, max_events: int, max_bytes: int, *, block: bool = False) -> None:
        self._max_events, self._max_bytes, self._block = max_events, max_bytes, block
        self._events: deque[Event] = deque()
        self._bytes = self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()

    def offer(self, event: Event) -> bool:
        """Add an event; False when it was dropped."""
        with self._changed:
            if self._block:
                self._changed.wait_for(lambda: self._closed or self._fits(event))
            if self._closed or not self._fits(event):
                self._dropped += 1
                return False
            self._events.append(event)
            self._bytes += event.nbytes
            self._changed.notify_all()
            return True

    def _fits(self, event: Event) -> bool:
        few = len(self._events) < self._max_events
        return not self._events or (few and self._bytes + event.nbytes <= self._max_bytes)

    def read(self, timeout: float) -> Generator[Event | None]:
        """Yield events as they come until `close`; None after `timeout` seconds without one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._events, timeout)
                if self._closed and not self._events:
                    return
                event = self._events.popleft() if self._events else None
                self._bytes -= event.nbytes if event else 0
                self._changed.notify_all()
            yield event

    def dropped(self) -> int:
        """Return how many events did not fit so far."""
        with self._changed:
            return self._dropped

    def close(self) -> None:
        """End all waiting; queued events can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
