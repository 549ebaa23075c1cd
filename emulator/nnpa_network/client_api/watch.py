# SPDX-License-Identifier: Apache-2.0
"""Translate the executor's node events into the observer's: numbering, ends, masks."""

from collections.abc import Mapping

from nnpa_network.client_api.observer import Event, EventFlag, NodeInfo, Observer, layer_type
from nnpa_network.program import Array, Program
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import StepFailed


def describe_nodes(program: Program, weights: frozenset[str]) -> tuple[NodeInfo, ...]:
    """Return the nodes that run, in order; `weights` are the names of the model's weights."""
    running = [node for node in program.nodes if node.device != "folded"]
    return tuple(
        NodeInfo(
            c_idx=c_idx,
            type=layer_type(node.op_type),
            id=node.index,
            node=node,
            inputs=tuple(name for name in node.inputs if name and name not in weights),
            outputs=tuple(name for name in node.outputs if name),
            weights=tuple(name for name in node.inputs if name in weights),
        )
        for c_idx, node in enumerate(running)
    )


class Watch:
    """The callbacks that the executor makes around every node of one batch.

    The node `failing`, a c_idx, fails when it is reached: for tests of clients.
    """

    def __init__(
        self,
        observer: Observer | None,
        nodes: tuple[NodeInfo, ...],
        run: int,
        batch: int,
        failing: int | None = None,
    ) -> None:
        self._observer, self._failing = observer, failing
        self._by_id = {node.id: node for node in nodes}
        self._last = len(nodes) - 1
        self._run, self._batch = run, batch

    def init(self) -> None:
        """Send the event of init."""
        self._send(EventFlag.INIT, None, {})

    def __call__(self, event: NodeEvent) -> None:
        """Take an event of the executor."""
        node = self._by_id.get(event.node)
        if node is None:
            return
        before = event.phase == "before"
        if before and node.c_idx == self._failing:
            name = node.node.name or node.node.op_type
            raise StepFailed(name, "failing_node", 0, "it was created to fail")
        flags = EventFlag.PRE if before else EventFlag.POST
        flags |= EventFlag.FIRST if node.c_idx == 0 else EventFlag(0)
        flags |= EventFlag.LAST if node.c_idx == self._last else EventFlag(0)
        observer = self._observer
        if observer is None or not observer.wants(flags, node.c_idx):
            return
        names = (node.inputs if before else node.outputs) if observer.tensors else ()
        read = {name: _read(event, name) for name in names}
        self._send(flags, node, {name: array for name, array in read.items() if array is not None})

    def _send(self, flags: EventFlag, node: NodeInfo | None, tensors: Mapping[str, Array]) -> None:
        observer = self._observer
        if observer is not None and observer.wants(flags, None if node is None else node.c_idx):
            observer.callback(Event(flags, self._run, self._batch, node, tensors))


def _read(event: NodeEvent, name: str) -> Array | None:
    """Return a value, None if it is not live or contradicts a foreign program's declaration."""
    try:
        return event.read(name)
    except (ValueError, IndexError):
        return None
