# SPDX-License-Identifier: Apache-2.0
"""A bare server to compare the real one with: it echoes each request.

`python -m tests.bench.echo ADDRESS [--tuned]` prints the address when it is ready. The server has
the defaults of gRPC and malloc, except the size of messages; with `--tuned` it has the real
server's settings of malloc.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BytesValue

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
SERVICE = "nnpa.bench.Echo"


def _same(request: Any, _context: object) -> Any:
    return request


def _each(requests: Iterator[bytes], _context: object) -> Iterator[bytes]:
    return requests


def _copied(request: BytesValue, _context: object) -> BytesValue:
    """Echo through protobuf: copy the payload out of one message into another."""
    return BytesValue(value=request.value)


def main() -> None:
    """Serve until standard input is closed."""
    if sys.argv[2:] == ["--tuned"]:
        from nnpa_server.tuning.process import (
            tune_malloc,  # heavy: without the flag the start is bare too
        )

        tune_malloc()
    server = grpc.server(ThreadPoolExecutor(8), options=OPTIONS)
    handlers: dict[str, Any] = {
        "Raw": grpc.unary_unary_rpc_method_handler(_same),
        "Stream": grpc.stream_stream_rpc_method_handler(_each),
        "Message": grpc.unary_unary_rpc_method_handler(
            _copied, BytesValue.FromString, BytesValue.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = sys.argv[1]
    port = server.add_insecure_port(address)
    server.start()
    print(address if address.startswith("unix:") else f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(None)


class EchoClient:
    """Calls of the bare server over one channel."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, OPTIONS)
        self.raw: Callable[[bytes], bytes] = self.channel.unary_unary(
            f"/{SERVICE}/Raw", bytes, bytes
        )
        self.stream: Any = self.channel.stream_stream(f"/{SERVICE}/Stream", bytes, bytes)
        self.message: Callable[[BytesValue], BytesValue] = self.channel.unary_unary(
            f"/{SERVICE}/Message", BytesValue.SerializeToString, BytesValue.FromString
        )


if __name__ == "__main__":
    main()
