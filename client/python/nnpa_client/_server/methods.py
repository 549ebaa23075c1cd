# SPDX-License-Identifier: Apache-2.0
"""The rpcs that this client calls; Execute is `transport.EXECUTE`."""

from typing import TypeAlias, TypeVar

from google.protobuf import empty_pb2
from google.protobuf.message import Message
from nnpa.mli.v1 import mli_pb2 as mli
from nnpa.network.v1 import network_pb2 as network
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn
from nnpa.zdnn.v1 import trace_pb2 as trace

from nnpa_client._server.transport import Method, Timeout

Upload: TypeAlias = zdnn.WriteTensorRequest | memoryview
Download: TypeAlias = zdnn.ReadTensorResponse | memoryview
Sent = TypeVar("Sent", bound=Message)
Received = TypeVar("Received", bound=Message)


def _method(
    path: str, sent: type[Sent], received: type[Received], timeout: Timeout = "call"
) -> Method[Sent, Received]:
    return Method(f"/nnpa.{path}", sent.SerializeToString, received.FromString, timeout)


def _serialize_upload(part: Upload) -> bytes:
    if isinstance(part, memoryview):
        part = zdnn.WriteTensorRequest(chunk=bytes(part))
    return part.SerializeToString()


def _parse_download(raw: bytes) -> Download:
    part = zdnn.ReadTensorResponse.FromString(raw)
    return part if part.HasField("header") else memoryview(part.chunk)


_ZDNN = "zdnn.v1.AcceleratorService"
LIST_MACHINES = _method(
    f"{_ZDNN}/ListMachines", zdnn.ListMachinesRequest, zdnn.ListMachinesResponse, "connect"
)
GET_MACHINE = _method(f"{_ZDNN}/GetMachine", zdnn.GetMachineRequest, zdnn.Machine, "connect")
CREATE_SESSION = _method(
    f"{_ZDNN}/CreateSession", zdnn.CreateSessionRequest, zdnn.Session, "connect"
)
GET_SESSION = _method(f"{_ZDNN}/GetSession", zdnn.GetSessionRequest, zdnn.Session)
UPDATE_SESSION = _method(f"{_ZDNN}/UpdateSession", zdnn.UpdateSessionRequest, zdnn.Session)
DELETE_SESSION = _method(
    f"{_ZDNN}/DeleteSession", zdnn.DeleteSessionRequest, empty_pb2.Empty, "connect"
)
HOLD_SESSION = _method(
    f"{_ZDNN}/HoldSession", zdnn.HoldSessionRequest, zdnn.HoldSessionResponse, "none"
)
WRITE_TENSOR = Method(
    f"/nnpa.{_ZDNN}/WriteTensor", _serialize_upload, zdnn.WriteTensorResponse.FromString
)
READ_TENSOR = Method(
    f"/nnpa.{_ZDNN}/ReadTensor", zdnn.ReadTensorRequest.SerializeToString, _parse_download
)
LIST_TENSORS = _method(f"{_ZDNN}/ListTensors", zdnn.ListTensorsRequest, zdnn.ListTensorsResponse)

_TRACE = "zdnn.v1.TraceService"
RECORD_TRACE = _method(
    f"{_TRACE}/RecordTrace", trace.RecordTraceRequest, trace.RecordTraceResponse, "none"
)
END_TRACE = _method(f"{_TRACE}/EndTrace", trace.EndTraceRequest, trace.EndTraceResponse, "connect")

_MLI = "mli.v1.MliService"
RUN_KERNEL = _method(f"{_MLI}/RunKernel", mli.RunKernelRequest, mli.RunKernelResponse)
LIST_KERNELS = _method(
    f"{_MLI}/ListKernels", mli.ListKernelsRequest, mli.ListKernelsResponse, "connect"
)

_NETWORK = "network.v1.NetworkService"
CREATE_NETWORK = _method(
    f"{_NETWORK}/CreateNetwork", network.CreateNetworkRequest, network.CreateNetworkResponse
)
INIT_NETWORK = _method(
    f"{_NETWORK}/InitNetwork", network.InitNetworkRequest, network.InitNetworkResponse
)
RUN_NETWORK = _method(
    f"{_NETWORK}/RunNetwork", network.RunNetworkRequest, network.RunNetworkResponse
)
INFER_NETWORK = _method(
    f"{_NETWORK}/InferNetwork", network.InferNetworkRequest, network.InferNetworkResponse
)
GET_NETWORK_ERROR = _method(
    f"{_NETWORK}/GetNetworkError", network.GetNetworkErrorRequest, network.GetNetworkErrorResponse
)
GET_NETWORK_INFO = _method(
    f"{_NETWORK}/GetNetworkInfo", network.GetNetworkInfoRequest, network.GetNetworkInfoResponse
)
GET_NODE_INFO = _method(
    f"{_NETWORK}/GetNodeInfo", network.GetNodeInfoRequest, network.GetNodeInfoResponse
)
OBSERVE_NETWORK = _method(
    f"{_NETWORK}/ObserveNetwork", network.ObserveNetworkRequest, network.ObserveNetworkResponse
)
DESTROY_NETWORK = _method(
    f"{_NETWORK}/DestroyNetwork", network.DestroyNetworkRequest, network.DestroyNetworkResponse
)
MEASURE_ACCURACY = _method(
    f"{_NETWORK}/MeasureAccuracy", network.MeasureAccuracyRequest, network.MeasureAccuracyResponse
)
PROBE_NETWORK = _method(
    f"{_NETWORK}/ProbeNetwork", network.ProbeNetworkRequest, network.ProbeNetworkResponse
)
EXPORT_PROGRAM = _method(
    f"{_NETWORK}/ExportProgram", network.ExportProgramRequest, network.ExportProgramResponse
)
