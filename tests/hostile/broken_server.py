# SPDX-License-Identifier: Apache-2.0
"""A server with a planted fault, to see that the tools see it: a proxy before one that works.

`python -m tests.hostile.broken_server FAULT FLAG ...` takes the flags of `nnpa-server`. Calls over
TCP go through the fault; those over the Unix socket go to the working server.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import grpc

from tests.hostile.calls import ACCELERATOR, OPTIONS
from tests.hostile.target import OWN_SERVER

EXECUTE, EVERY = ACCELERATOR + "Execute", 10
LEAK_BYTES = 8 << 20
SLOW_SECONDS = 3.0
ROOT = Path(__file__).resolve().parents[2]
_kept: list[object] = []


def _wrong_bits(answer: bytes, _context: grpc.ServicerContext) -> bytes:
    return (
        answer[:-100] + bytes([answer[-100] ^ 1]) + answer[-99:] if len(answer) > 4096 else answer
    )


def _internal(_answer: bytes, context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.INTERNAL, "a planted failure")


def _traceback(answer: bytes, _context: grpc.ServicerContext) -> bytes:
    print(
        "Traceback (most recent call last):\n  planted\nPlantedError: it",
        file=sys.stderr,
        flush=True,
    )
    return answer


def _leak(answer: bytes, _context: grpc.ServicerContext) -> bytes:
    _kept.append(b"x" * LEAK_BYTES)
    return answer


def _descriptors(answer: bytes, _context: grpc.ServicerContext) -> bytes:
    _kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(8))
    return answer


def _slow(answer: bytes, _context: grpc.ServicerContext) -> bytes:
    time.sleep(SLOW_SECONDS)
    return answer


FAULTS: Mapping[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
    "wrong-bits": _wrong_bits,
    "internal": _internal,
    "traceback": _traceback,
    "leak": _leak,
    "descriptors": _descriptors,
    "slow": _slow,
}


def executable(folder: Path, fault: str) -> Path:
    """Write a command that starts a server with a fault; return its path."""
    path = folder / f"nnpa-server-{fault}"
    module = f"{sys.executable} -m tests.hostile.broken_server {fault}"
    path.write_text(f'#!/bin/sh\ncd {ROOT} && exec {module} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


class _Proxy(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs alone
    """Hands every call on as bytes; every tenth answer of Execute comes with the fault."""

    def __init__(self, channel: grpc.Channel, fault: str) -> None:
        self._channel, self._fault = channel, FAULTS[fault]
        self._numbers = itertools.count(1)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method

        def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            call: Any = self._channel.stream_stream(method, None, None)(requests)
            context.add_callback(call.cancel)
            try:
                for response in call:
                    is_spoiled = method == EXECUTE and next(self._numbers) % EVERY == 0
                    yield self._fault(response, context) if is_spoiled else response
            except grpc.RpcError:
                context.set_trailing_metadata(call.trailing_metadata())
                context.abort(call.code(), call.details())

        return grpc.stream_stream_rpc_method_handler(answer)


def main(fault: str, flags: Sequence[str]) -> None:
    """Start the working server on the Unix socket alone, and the proxy on TCP."""
    if "--help" in flags:
        os.execv(OWN_SERVER, [str(OWN_SERVER), "--help"])
    addresses = [flags[at + 1] for at, flag in enumerate(flags) if flag == "--listen"]
    (socket,) = (address for address in addresses if address.startswith("unix:"))
    rest = [flag for flag in flags if flag != "--listen" and flag not in addresses]
    command = [str(OWN_SERVER), "--listen", socket, "--exit-with-parent", *rest]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as working:
        assert working.stdout is not None
        ready = working.stdout.readline().decode()
        channel = grpc.insecure_channel(socket, OPTIONS)
        server = grpc.server(ThreadPoolExecutor(32), options=OPTIONS)
        server.add_generic_rpc_handlers((_Proxy(channel, fault),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        print(f"nnpa-server listening on 127.0.0.1:{port}\n{ready}", end="", flush=True)
        ended = threading.Event()

        def end(_number: int, _frame: FrameType | None) -> None:
            ended.set()

        signal.signal(signal.SIGTERM, end)
        ended.wait()
        server.stop(None)
        working.terminate()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
