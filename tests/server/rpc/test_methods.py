# SPDX-License-Identifier: Apache-2.0
"""No method of a registered service answers with a traceback in the log."""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.server.process import ServerProcess, serving

SECONDS = 20.0
SIZES = (0, 0, 1, 7, 60, 2000)
"""Bytes of the messages that a method gets: an empty one is a message of default values."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that offers every service, with its log."""
    folder: Path = tmp_path_factory.mktemp("methods")
    with serving(folder, "--listen", "127.0.0.1:0", "--reflection", "on") as process:
        yield process


def registered_methods(channel: Any) -> list[MethodDescriptor]:
    """Return the methods that a server's reflection names."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    services = [pool.FindServiceByName(name) for name in sorted(database.get_services())]
    return [method for service in services for method in service.methods]


def call(channel: Any, method: MethodDescriptor, message: bytes) -> grpc.StatusCode:
    """Call a method with the bytes of one message; return how it ended."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    answers = channel.stream_stream(path)(iter([message]), timeout=SECONDS)
    with suppress(grpc.RpcError, StopIteration):
        next(answers)
        answers.cancel()
        return grpc.StatusCode.OK
    code: grpc.StatusCode = answers.code()
    return code


def test_no_method_answers_with_a_traceback(server: ServerProcess) -> None:
    """Empty and random messages end as documented: not UNKNOWN, no traceback in the log."""
    drawn = random.Random(19)
    with grpc.insecure_channel(server.address) as channel:
        methods = registered_methods(channel)
        assert {"List", "Execute", "ModelInfer"} & {method.name for method in methods}
        ended = {
            (method.full_name, size): call(channel, method, drawn.randbytes(size))
            for method in methods
            for size in SIZES
        }
    assert len(ended) >= 5 * len({name for name, _size in ended})
    broken = {key for key, code in ended.items() if code is grpc.StatusCode.UNKNOWN}
    assert not broken
    assert "Traceback" not in server.log_text()


def test_method_that_no_service_implements_is_unimplemented(server: ServerProcess) -> None:
    """Health.List, which newer definitions of the health service have, is UNIMPLEMENTED."""
    with grpc.insecure_channel(server.address) as channel:
        calls: Any = channel
        listing = calls.unary_unary("/grpc.health.v1.Health/List")
        with pytest.raises(grpc.RpcError) as refused:
            listing(b"", timeout=SECONDS)
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "Traceback" not in server.log_text()
