# SPDX-License-Identifier: Apache-2.0
"""The content cache of a session: names, replacement, limits and refusals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_server.config import Limits
from nnpa_server.sessions.content_cache import Contents

from tests.server.conftest import LIMITS, Running
from tests.server.wire import Client, chunks, desc, init, load, op, pre_desc, refused

CODE = grpc.StatusCode
GRID = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
BIG = tensor_pb2.BYTE_ORDER_BIG_ENDIAN
A, B, OUT = (bytes([letter]) * 16 for letter in b"abo")
PAGE = 4096


def ztensor(**fields: Any) -> tensor_pb2.Ztensor:
    """Describe a transformed tensor of GRID's shape."""
    descs = {"pre_transformed_desc": pre_desc(1, 2, 2, 3), "transformed_desc": desc(1, 2, 2, 3)}
    return tensor_pb2.Ztensor(**descs, is_transformed=True, **fields)


def sticks_of(client: Client, order: int = 0) -> bytes:
    """Return GRID's sticks in a byte order."""
    client.run(*load(1, GRID))
    source = pb.ReadSticks(id=1, byte_order=tensor_pb2.ByteOrder.ValueType(order))
    _, sticks = client.read(sticks=source)
    client.run(op("free_ztensor_buffer", ztensor=1))
    return sticks


def added(client: Client, a: tensor_pb2.Ztensor, b: tensor_pb2.Ztensor, **out: Any) -> bytes:
    """Add two inline tensors, and return the sum's sticks."""
    (result,) = client.run(op("add", input_a=a, input_b=b, output=ztensor(**out)))
    assert result.zdnn_status == 0
    sticks: bytes = result.outputs[0].ztensor.sticks
    return sticks


@pytest.mark.parametrize("order", [0, 1, BIG])
def test_contents_come_back_by_name(client: Client, order: int) -> None:
    """A name stands for the bytes that were sent or returned under it, in either byte order."""
    sticks = sticks_of(client, order)
    kept = ztensor(sticks=sticks, cache_as=A, byte_order=order)
    first = added(client, kept, kept, cache_as=OUT, byte_order=order)
    named = ztensor(cached=A, byte_order=order)
    assert added(client, named, named, byte_order=order) == first
    total = ztensor(sticks=first, byte_order=order)
    by_name = ztensor(cached=OUT, byte_order=order)
    assert added(client, by_name, named, byte_order=order) == added(
        client, total, kept, byte_order=order
    )


def test_a_name_stands_for_one_byte_order(client: Client) -> None:
    """A name whose contents came in one byte order is a miss in the other order."""
    kept = ztensor(sticks=sticks_of(client), cache_as=A)
    added(client, kept, kept)
    big = ztensor(cached=A, byte_order=BIG)
    with refused(CODE.NOT_FOUND, "CACHE_MISS"):
        added(client, big, big)


def test_operations_do_not_write_to_cached_contents(client: Client) -> None:
    """A transform into a tensor with cached contents leaves these as they were."""
    sticks = sticks_of(client)
    added(client, ztensor(sticks=sticks, cache_as=A), ztensor(sticks=sticks))
    target = ztensor(cached=A)
    target.is_transformed = False
    data = [np.full_like(GRID, 7).tobytes()]
    (result,) = client.run(op("transform_ztensor", ztensor=target, data=data))
    assert result.zdnn_status == 0
    assert result.outputs[0].ztensor.sticks != sticks
    named, sent = ztensor(cached=A), ztensor(sticks=sticks)
    assert added(client, named, named) == added(client, sent, sent)


@pytest.mark.parametrize("order", [0, BIG])
def test_replaced_contents_are_forgotten(client: Client, order: int) -> None:
    """An output replaces the named contents before it, and no others."""
    sticks = sticks_of(client, order)
    kept = ztensor(sticks=sticks, cache_as=A, byte_order=order)
    added(client, kept, kept, cache_as=OUT, byte_order=order)
    named = ztensor(cached=OUT, byte_order=order)
    doubled_sticks = added(client, named, named, cache_as=B, cache_instead_of=OUT, byte_order=order)
    with refused(CODE.NOT_FOUND, "CACHE_MISS"):
        added(client, named, named, byte_order=order)
    new = ztensor(cached=B, byte_order=order)
    sent = ztensor(sticks=doubled_sticks, byte_order=order)
    assert added(client, new, new, byte_order=order) == added(client, sent, sent, byte_order=order)
    first = ztensor(cached=A, byte_order=order)
    added(
        client, first, first, cache_as=OUT, cache_instead_of=b"was never there!", byte_order=order
    )


def test_an_output_that_is_not_kept_replaces_nothing(client: Client) -> None:
    """An output without a name, or of a call that fails, replaces nothing."""
    kept = ztensor(sticks=sticks_of(client), cache_as=A)
    added(client, kept, kept, cache_instead_of=A)
    named = ztensor(cached=A)
    wrong = tensor_pb2.Ztensor(transformed_desc=desc(2, 2, 2, 3), cache_as=B, cache_instead_of=A)
    with refused(CODE.ABORTED, "PROGRAM_CHECK"):
        client.run(op("add", input_a=named, input_b=named, output=wrong))
    added(client, named, named)


def test_a_miss_names_operand_and_operation(client: Client) -> None:
    """A name that the cache does not have is CACHE_MISS with the operand and the operation."""
    field = "operations[0].add.input_a.inline_ztensor.cached"
    with refused(CODE.NOT_FOUND, "CACHE_MISS", field=field, operation_index=0):
        added(client, ztensor(cached=A), ztensor(cached=A))


def test_contents_belong_to_one_session(client: Client) -> None:
    """Contents that one session cached are a miss in another session."""
    kept = ztensor(sticks=sticks_of(client), cache_as=A)
    added(client, kept, kept)
    with refused(CODE.NOT_FOUND, "CACHE_MISS"):
        added(client.open_session(), ztensor(cached=A), ztensor(cached=A))


def test_contents_of_another_size(client: Client) -> None:
    """A name whose contents are not of the descriptor's size is DATA_SIZE_MISMATCH."""
    kept = ztensor(sticks=sticks_of(client), cache_as=A)
    added(client, kept, kept)
    large = tensor_pb2.Ztensor(transformed_desc=desc(2, 2, 2, 3), is_transformed=True, cached=A)
    with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH", value=2 * PAGE, limit=4 * PAGE):
        client.run(op("exp", input=large, output=large))


@pytest.mark.parametrize("name", [b"", b"a" * 15, b"a" * 65])
def test_names_are_16_to_64_bytes(client: Client, name: bytes) -> None:
    """A name that could be a guess, or that is long, is FIELD_INVALID before anything runs."""
    with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", value=f"{len(name)} bytes"):
        client.run(op("exp", input=ztensor(cached=name), output=ztensor()))
    if name:
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", value=f"{len(name)} bytes"):
            client.run(op("exp", input=ztensor(), output=ztensor(cache_as=name)))
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", value=f"{len(name)} bytes"):
            client.run(op("exp", input=ztensor(), output=ztensor(cache_instead_of=name)))
        client.run(*init(1, 1, 2, 2, 3))
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="sticks.cache_as"):
            client.read(sticks=pb.ReadSticks(id=1, cache_as=name))


def test_streams_fill_the_cache_and_take_from_it(client: Client) -> None:
    """Streams up and down cache their contents under names, which then create tensors."""
    sticks = sticks_of(client)
    header = client.sticks_header(id=1, new_ztensor=ztensor(cache_as=A), total_bytes=len(sticks))
    client.write([header, *chunks(sticks)])
    client.write([client.sticks_header(id=2, new_ztensor=ztensor(cached=A))])
    assert client.read(sticks=pb.ReadSticks(id=2, cache_as=B))[1] == sticks
    client.run(op("exp", input=2, output=2))
    client.write([client.sticks_header(id=3, new_ztensor=ztensor(cached=B))])
    assert client.read(sticks=pb.ReadSticks(id=3))[1] == sticks
    with refused(CODE.NOT_FOUND, "CACHE_MISS", field="header.sticks.new_ztensor.cached"):
        client.write([client.sticks_header(id=4, new_ztensor=ztensor(cached=OUT))])


def test_the_least_recently_used_contents_go_first(start: Callable[..., Running]) -> None:
    """A full cache forgets the contents whose last use is oldest, and counts what it holds."""
    running = start(limits=replace(LIMITS, max_session_cache=4 * PAGE))
    client = running.client()
    assert client.limits.max_cache_bytes == 4 * PAGE
    sticks = sticks_of(client)
    for name in (A, B):
        client.run(op("exp", input=ztensor(sticks=sticks, cache_as=name), output=ztensor()))
    client.run(op("exp", input=ztensor(cached=A), output=ztensor(cache_as=OUT)))
    assert running.server.store.counts().cached_bytes == 4 * PAGE
    client.run(op("exp", input=ztensor(cached=A), output=ztensor()))
    with refused(CODE.NOT_FOUND, "CACHE_MISS"):
        client.run(op("exp", input=ztensor(cached=B), output=ztensor()))


def test_the_cache_gives_way_to_tensors(start: Callable[..., Running]) -> None:
    """Cached contents count in the session's quota and are forgotten before a tensor is refused."""
    running = start(limits=Limits(max_session_bytes=8 * PAGE, max_session_cache=8 * PAGE))
    client = running.client()
    sticks = sticks_of(client)
    client.run(op("exp", input=ztensor(sticks=sticks, cache_as=A), output=ztensor()))
    client.run(*(operation for number in (1, 2, 3, 4) for operation in init(number, 1, 2, 2, 3)))
    counts = running.server.store.counts()
    assert (counts.stored_bytes, counts.cached_bytes) == (8 * PAGE, 0)


def test_a_server_may_have_no_cache(start: Callable[..., Running]) -> None:
    """With --max-session-cache 0 nothing is kept, and the session's limit is 0."""
    client = start(limits=replace(LIMITS, max_session_cache=0)).client()
    assert client.limits.max_cache_bytes == 0
    sticks = sticks_of(client)
    client.run(op("exp", input=ztensor(sticks=sticks, cache_as=A), output=ztensor()))
    with refused(CODE.NOT_FOUND, "CACHE_MISS"):
        client.run(op("exp", input=ztensor(cached=A), output=ztensor()))


def test_contents_replace_those_of_the_same_name() -> None:
    """A name is held once, and its earlier contents are no longer counted."""
    contents = Contents(100)
    old, new = np.zeros(60, np.uint8), np.ones(80, np.uint8)
    contents.put((A, 0), old)
    contents.put((A, 0), new)
    assert (contents.held, contents.get((A, 0)) is new) == (80, True)
    contents.put((A, 0), np.zeros(101, np.uint8))
    assert (contents.held, contents.get((A, 0))) == (0, None)
