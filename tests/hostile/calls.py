# SPDX-License-Identifier: Apache-2.0
"""Calls of any method with any bytes, and their answers."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

ACCELERATOR = "/nnpa.zdnn.v1.AcceleratorService/"
NETWORK = "/nnpa.network.v1.NetworkService/"
INFERENCE = "/inference.GRPCInferenceService/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
HEALTH = "/grpc.health.v1.Health/"
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
MAX_ANSWERS = 64
M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Answer:
    """How a call ended: the gRPC code, the reason of its ErrorInfo, and the messages before."""

    code: str
    reason: str = ""
    details: str = ""
    facts: dict[str, str] = field(default_factory=dict[str, str])
    messages: tuple[bytes, ...] = ()
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether the call ended well."""
        return self.code == "OK"

    @property
    def name(self) -> str:
        """The reason, or the code where there is none."""
        return self.reason or self.code

    def read(self, kind: type[M]) -> M:
        """Return the first message; raises AssertionError where there is none."""
        assert self.messages, f"{self.name}: {self.details}"
        return kind.FromString(self.messages[0])


class Caller:
    """Calls over one channel, with a token or without; nothing is parsed, nothing is repeated."""

    def __init__(self, address: str, token: str = "") -> None:
        self.channel = grpc.insecure_channel(address, OPTIONS)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    def call(
        self,
        path: str,
        *messages: bytes | Message,
        timeout: float = 10.0,
        max_answers: int = MAX_ANSWERS,
    ) -> Answer:
        """Make a call; it ends after `max_answers` answers."""
        begin = time.monotonic()
        answers: list[bytes] = []
        call = self.open(path, iter([_raw(message) for message in messages]), timeout)
        try:
            for answer in call:
                answers.append(answer)
                if len(answers) >= max_answers:
                    break
            else:
                return Answer("OK", messages=tuple(answers), seconds=time.monotonic() - begin)
        except grpc.RpcError as error:
            return read_error(error, tuple(answers), time.monotonic() - begin)
        call.cancel()
        return Answer("OK", messages=tuple(answers), seconds=time.monotonic() - begin)

    def open(self, path: str, messages: Iterator[bytes], timeout: float | None = None) -> Any:
        """Begin a call; an iterator that waits keeps it open."""
        method = self.channel.stream_stream(path, _same, _same)
        return method(messages, timeout=timeout, metadata=self.metadata)

    def session(self, options: pb.Session | None = None) -> str:
        """Create a session; return its name."""
        stub = AcceleratorServiceStub(self.channel)
        request = pb.CreateSessionRequest(session=options)
        created: pb.Session = stub.CreateSession(request, timeout=10.0, metadata=self.metadata)
        return created.name

    def close(self) -> None:
        """Close the channel, and with it all open calls."""
        self.channel.close()


def read_error(error: grpc.RpcError, answers: Sequence[bytes] = (), seconds: float = 0.0) -> Answer:
    """Return how a call failed."""
    call: Any = error
    details = str(call.details() or "")
    reason, facts = "", dict[str, str]()
    with suppress(ValueError):
        status = rpc_status.from_call(call)
        info = error_details_pb2.ErrorInfo()
        if status is not None and status.details and status.details[0].Unpack(info):
            reason, facts = str(info.reason), dict(info.metadata)
    return Answer(call.code().name, reason, details, facts, tuple(answers), seconds)


def chunks(data: bytes, size: int = 1 << 20) -> Iterable[bytes]:
    """Cut bytes."""
    return (data[start : start + size] for start in range(0, len(data), size))


def _raw(message: bytes | Message) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _same(raw: bytes) -> bytes:
    return raw
