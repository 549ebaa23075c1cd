# SPDX-License-Identifier: Apache-2.0
"""Watching a network: which events come, in which order, with which tensors.

Order and flags: X-CUBE-AI 7.0 Platform Observer API; layer type ids as its public header has them.
"""

import threading
from typing import Any

import numpy as np
import pytest
from nnpa_network.client_api.creation import NetworkParams
from nnpa_network.client_api.observer import Event, EventFlag, EventQueue, Observer, layer_type

from tests.network.lifecycle import (
    DEFAULT_WEIGHTS,
    X,
    activations_of,
    buffers,
    created,
    ready,
    words,
)
from tests.network.small_models import dense_reference

INIT, PRE, POST = EventFlag.INIT, EventFlag.PRE, EventFlag.POST
FIRST, LAST = EventFlag.FIRST, EventFlag.LAST


def test_order_of_events() -> None:
    """Per batch: before and after every node in order, the first and the last one marked."""
    network, seen = ready(), list[Event]()
    assert network.register(Observer(seen.append, PRE | POST))
    assert network.run(*buffers(network, X[:2])).n_batches == 2
    expected = [
        (PRE | FIRST, 0), (POST | FIRST, 0), (PRE, 1), (POST, 1), (PRE | LAST, 2), (POST | LAST, 2),
    ]  # fmt: skip
    per_batch = [(flags, c_idx, batch) for batch in (0, 1) for flags, c_idx in expected]
    order = [
        (event.flags, event.node.c_idx, event.batch) for event in seen if event.node is not None
    ]
    assert order == per_batch
    assert {event.run for event in seen} == {1}


def test_mask_and_nodes() -> None:
    """An observer gets the events and nodes of its mask, no more."""
    network, seen = ready(), list[Event]()
    network.register(Observer(seen.append, POST, nodes=frozenset({1})))
    network.run(*buffers(network, X))
    assert [(event.flags, event.node and event.node.c_idx) for event in seen] == [(POST, 1)] * 3


def test_init_event() -> None:
    """The end of init is an event without a node; a failing init causes no event."""
    network, seen = created(), list[Event]()
    network.register(Observer(seen.append, INIT))
    assert not network.init(None)
    assert seen == []
    assert network.init(NetworkParams(DEFAULT_WEIGHTS, activations_of(network)))
    assert [(event.flags, event.node, event.run) for event in seen] == [(INIT, None, 0)]


def test_tensors_on_demand() -> None:
    """A node's inputs come before it, its outputs after it, by their names in the model."""
    network, seen = ready(), list[Event]()
    network.register(Observer(seen.append, PRE | POST, tensors=True))
    network.run(*buffers(network, X[:1]))
    names = [
        (event.node.c_idx, event.flags & 0xFF, set(event.tensors)) for event in seen if event.node
    ]
    assert (0, PRE, {"x"}) in names
    assert (1, POST, {"sum"}) in names
    assert (2, PRE, {"sum"}) in names
    assert (2, POST, {"y"}) in names
    # The product is never there: the accelerator adds the bias before it rounds.
    assert not any("product" in read for _, _, read in names)
    np.testing.assert_array_equal(seen[0].tensors["x"], X[:1])
    last = seen[-1].tensors["y"]
    np.testing.assert_allclose(last, dense_reference(X[:1]), rtol=0.01)
    assert seen[0].nbytes == 16


def test_observing_changes_no_result() -> None:
    """A run gives the same bits with and without an observer."""
    alone, watched = ready(), ready()
    watched.register(Observer(lambda _: None, PRE | POST, tensors=True))
    output = alone.run(*buffers(alone, X)).outputs[0].data
    assert output == watched.run(*buffers(watched, X)).outputs[0].data


def test_one_observer_per_network() -> None:
    """A second observer is INVALID_STATE / IN_USE, until the first one is removed."""
    network = ready()
    first = Observer(print, PRE, cookie="mine")
    assert network.register(first)
    assert not network.register(Observer(repr, PRE))
    assert words(network.get_error()) == (0x11, 0x40)
    assert not network.unregister(Observer(print, PRE, cookie="not mine"))
    assert words(network.get_error()) == (0x14, 0x10)
    assert network.unregister(first)
    assert network.register(Observer(repr, PRE))


def test_an_observer_of_nothing() -> None:
    """A mask without an event is INVALID_PARAM / NETWORK."""
    network = ready()
    for mask in (EventFlag(0), FIRST | LAST):
        assert not network.register(Observer(print, mask))
        assert words(network.get_error()) == (0x14, 0x10)


def test_enumerating_nodes() -> None:
    """Nodes are enumerated by c_idx; the first c_idx too many leaves OUT_OF_RANGE."""
    network = ready()
    nodes = [network.node_info(c_idx) for c_idx in range(4)]
    assert [node and (node.c_idx, node.type, node.id, node.node.op_type) for node in nodes] == [
        (0, 0x100 + 17, 0, "MatMul"),
        (1, 0x100 + 19, 1, "Add"),
        (2, 0x100 + 7, 2, "Relu"),
        None,
    ]
    assert words(network.get_error()) == (0x14, 0x20)
    first = nodes[0]
    assert first is not None
    assert (first.inputs, first.weights, first.outputs) == (("x",), ("w",), ("product",))


def test_nodes_need_an_initialised_network() -> None:
    """Before init a node's description is INVALID_STATE / MISSED_INIT."""
    network = created()
    assert network.node_info(0) is None
    assert words(network.get_error()) == (0x11, 0x30)


@pytest.mark.parametrize(
    ("op_type", "number"),
    [
        *(("Conv", 0x103), ("LSTM", 0x181), ("GRU", 0x105), ("Softmax", 0x10C)),
        *(("MaxPool", 0x10B), ("Gelu", 0x107), ("Reshape", 0x100), ("NoSuchThing", 0x120)),
    ],
)
def test_layer_types(op_type: str, number: int) -> None:
    """Operators have the header's layer types; what has none is a lambda."""
    assert layer_type(op_type) == number


def event(tensor: Any = None) -> Event:
    """Return an event, with a tensor or without."""
    return Event(PRE, 1, 0, None, {} if tensor is None else {"x": tensor})


def test_queue_drops_and_counts() -> None:
    """A full queue drops and counts new events, and keeps its own in order."""
    queue = EventQueue(2, 1000)
    events = [event() for _ in range(5)]
    assert [queue.offer(event) for event in events] == [True, True, False, False, False]
    assert queue.dropped() == 3
    queue.close()
    assert list(queue.read(1)) == events[:2]


def test_queue_counts_bytes() -> None:
    """Tensors count by their bytes; one that exceeds the limit alone still passes alone."""
    queue = EventQueue(100, 64)
    big = event(np.zeros(100, np.uint8))
    assert queue.offer(big)
    assert not queue.offer(event(np.zeros(1, np.uint8)))
    queue.close()
    assert list(queue.read(1)) == [big]


def test_queue_that_blocks_loses_nothing() -> None:
    """A blocking queue has the run wait for the reader; closing it lets the run go on."""
    queue = EventQueue(1, 1000, block=True)
    events = [event() for _ in range(20)]
    thread = threading.Thread(target=lambda: [queue.offer(event) for event in events])
    thread.start()
    reader = queue.read(10)
    assert [next(reader) for _ in events] == events
    thread.join(10)
    assert queue.offer(event())
    waiting = threading.Thread(target=lambda: queue.offer(event()))
    waiting.start()
    queue.close()
    waiting.join(10)
    assert not waiting.is_alive()
    assert queue.dropped() == 1


def test_a_reader_without_events_times_out() -> None:
    """A reader gets None after its timeout, and can test whether its call was cancelled."""
    assert next(EventQueue(1, 1).read(0.001)) is None
