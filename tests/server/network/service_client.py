# SPDX-License-Identifier: Apache-2.0
"""A session that hosts networks, spoken to over the wire as the contract has it."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import network_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2, accelerator_pb2_grpc
from onnx import ModelProto

DEFAULT_WEIGHTS = pb.Buffer()


class Client:
    """A session, and the two services."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.accelerator = accelerator_pb2_grpc.AcceleratorServiceStub(channel)
        self.stub = network_pb2_grpc.NetworkServiceStub(channel)
        self.session = self.accelerator.CreateSession(accelerator_pb2.CreateSessionRequest()).name

    def header(self, data: bytes = b"", **fields: Any) -> pb.CreateNetworkRequest:
        """Return a header; `data` is the ONNX file that is announced."""
        if not fields.keys() & {"program_bytes", "published"}:
            fields["onnx_bytes"] = len(data)
        header = pb.CreateNetworkHeader(session=self.session, **fields)
        return pb.CreateNetworkRequest(header=header)

    def upload(self, data: bytes, **fields: Any) -> Iterator[pb.CreateNetworkRequest]:
        """Yield a header and the file in chunks."""
        yield self.header(data, **fields)
        for start in range(0, len(data), 1 << 20):
            yield pb.CreateNetworkRequest(chunk=data[start : start + (1 << 20)])

    def create(self, model: ModelProto, **fields: Any) -> pb.CreateNetworkResponse:
        """Create a network of a model."""
        return self.stub.CreateNetwork(self.upload(model.SerializeToString(), **fields))

    def init(self, handle: str, size: int = 1 << 16, **fields: Any) -> bool:
        """Initialise a network with its own weights and `size` bytes of activations."""
        params = pb.NetworkParams(
            params=DEFAULT_WEIGHTS, activations=pb.Buffer(channels=size, data=b"")
        )
        fields.setdefault("params", params)
        request = pb.InitNetworkRequest(session=self.session, network=handle, **fields)
        return self.stub.InitNetwork(request).ok

    def ready(self, model: ModelProto, **fields: Any) -> str:
        """Create and initialise a network, and return its handle."""
        created = self.create(model, **fields)
        assert not created.HasField("error"), created.error
        assert self.init(created.network.name)
        return created.network.name

    def run(
        self, handle: str, inputs: Sequence[pb.Buffer], outputs: Sequence[pb.Buffer], **fields: Any
    ) -> pb.RunNetworkResponse:
        """Run a network."""
        request = pb.RunNetworkRequest(
            session=self.session, network=handle, inputs=inputs, outputs=outputs, **fields
        )
        return self.stub.RunNetwork(request)

    def infer(self, handle: str, **arrays: Any) -> pb.InferNetworkResponse:
        """Run a network once over named arrays."""
        inputs = [
            pb.NamedArray(
                name=name, dtype=array.dtype.name, shape=array.shape, data=array.tobytes()
            )
            for name, array in arrays.items()
        ]
        request = pb.InferNetworkRequest(session=self.session, network=handle, inputs=inputs)
        return self.stub.InferNetwork(request)

    def error(self, handle: str, sequence: int = 0) -> tuple[int, int]:
        """Read a network's first error."""
        request = pb.GetNetworkErrorRequest(session=self.session, network=handle, sequence=sequence)
        error = self.stub.GetNetworkError(request).error
        return error.type, error.code

    def info(self, handle: str) -> pb.NetworkReport:
        """Describe a network."""
        request = pb.GetNetworkInfoRequest(session=self.session, network=handle)
        return self.stub.GetNetworkInfo(request).report

    def destroy(self, handle: str) -> pb.DestroyNetworkResponse:
        """Destroy a network."""
        request = pb.DestroyNetworkRequest(session=self.session, network=handle)
        return self.stub.DestroyNetwork(request)

    def close(self) -> None:
        """Delete the session."""
        request = accelerator_pb2.DeleteSessionRequest(name=self.session)
        self.accelerator.DeleteSession(request)


def filled(buffer: pb.Buffer, values: Any, **fields: Any) -> pb.Buffer:
    """Return a descriptor with the data of an array, batches first."""
    copy = pb.Buffer()
    copy.CopyFrom(buffer)
    array = np.ascontiguousarray(values)
    copy.MergeFrom(pb.Buffer(n_batches=len(array), data=array.tobytes(), **fields))
    return copy


def room(buffer: pb.Buffer, n_batches: int = 1) -> pb.Buffer:
    """Return a descriptor with memory for `n_batches` batches."""
    copy = pb.Buffer()
    copy.CopyFrom(buffer)
    copy.MergeFrom(pb.Buffer(n_batches=n_batches, data=b""))
    return copy
