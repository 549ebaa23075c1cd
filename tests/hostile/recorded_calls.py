# SPDX-License-Identifier: Apache-2.0
"""Valid calls of every method, from which mutations begin.

Names that a server gives are placeholders of the same length, which are replaced in the bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from nnpa.mli.v1 import mli_pb2
from nnpa.network.v1 import network_pb2 as network
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1 import trace_pb2 as trace

from tests import vector_runner
from tests.hostile import instructions, models
from tests.hostile.calls import ACCELERATOR, HEALTH, INFERENCE, NETWORK, REFLECTION
from tests.hostile.known_answers import lists
from tests.hostile.methods import FRAMES, PLAIN_SOCKET, methods
from tests.server.mli.mli_wire import kernel, scenes

Recording: TypeAlias = Sequence[Message]
SESSION, NETWORK_NAME = "sessions/" + "S" * 32, "networks/" + "N" * 16
TRACE, OBJECT = "traces/" + "T" * 32, "nnpa-fuzz-" + "K" * 16
OBJECT_BYTES = 4096
MODEL, UNLOADED, REGION = "fuzzed", "absent", "region"
TENSORS = (1, 2, 3, 4)
SHAPE = (1, 1, 4, 8)
MLI = "/nnpa.mli.v1.MliService/"
TRACING = "/nnpa.zdnn.v1.TraceService/"
SERVICES = ("", "nnpa.zdnn.v1.AcceleratorService", "inference.GRPCInferenceService")
ROW = np.arange(4, dtype=np.float32).reshape(1, 4)
DATA = bytes(4 * 4 * 8)


@cache
def recorded_calls() -> Mapping[str, tuple[Recording, ...]]:
    """Return the recordings of every method by its path."""
    recordings = {
        **_of_accelerator(),
        **_of_networks(),
        **_of_inference(),
        **_of_probes(),
        **_of_instructions(),
    }
    missing = methods().keys() - recordings.keys()
    assert not missing, missing
    return {path: tuple(recordings[path]) for path in methods()}


def _by_id(number: int) -> tensors.TensorRef:
    return tensors.TensorRef(id=number)


def _described(kind: "tensors.DataTypes.ValueType") -> tensors.TensorDesc:
    dim4, dim3, dim2, dim1 = SHAPE
    return tensors.TensorDesc(
        layout=tensors.ZDNN_NHWC, type=kind, dim4=dim4, dim3=dim3, dim2=dim2, dim1=dim1
    )


def tensor_operations(number: int) -> list[wire.Operation]:
    """Return what makes one of the session's tensors."""
    sticks = _described(tensors.ZDNN_DLFLOAT16)
    sticks.format = tensors.ZDNN_FORMAT_4DFEATURE
    init = wire.InitZtensor(
        ztensor=number, pre_transformed_desc=_described(tensors.FP32), transformed_desc=sticks
    )
    return [
        wire.Operation(init_ztensor=init),
        wire.Operation(allochelper_ztensor=wire.AllochelperZtensor(ztensor=_by_id(number))),
        wire.Operation(
            transform_ztensor=wire.TransformZtensor(ztensor=_by_id(number), data=[DATA])
        ),
    ]


def _execute(*operations: wire.Operation) -> zdnn.ExecuteRequest:
    return zdnn.ExecuteRequest(session=SESSION, operations=operations)


def _requests_of_lists() -> list[zdnn.ExecuteRequest]:
    """Return lists: of vectors, of the session's tensors, and of a tensor's life."""
    life = [
        *tensor_operations(9),
        wire.Operation(add=wire.Add(input_a=_by_id(9), input_b=_by_id(1), output=_by_id(2))),
        wire.Operation(exp=wire.Exp(input=_by_id(9), output=tensors.TensorRef(new_id=10))),
        wire.Operation(transform_origtensor=wire.TransformOrigtensor(ztensor=_by_id(10))),
        *(
            wire.Operation(free_ztensor_buffer=wire.FreeZtensorBuffer(ztensor=_by_id(number)))
            for number in (9, 10)
        ),
    ]
    vectors = [_execute(*vector_runner.operations(vector)) for vector in lists()]
    return [_execute(*life), _execute(), *vectors]


def _of_accelerator() -> dict[str, Sequence[Recording]]:
    requests = _requests_of_lists()
    spec = zdnn.MachineSpec(model=zdnn.MACHINE_MODEL_TELUM1, max_dim_idx_size=64)
    options = zdnn.Session(machine_spec=spec, precheck=True, library_version="1.1.0", sanitize=True)
    update = zdnn.UpdateSessionRequest(session=zdnn.Session(name=SESSION, machine_spec=spec))
    update.session.log_level = zdnn.LOG_LEVEL_TRACE
    masked = zdnn.UpdateSessionRequest(session=zdnn.Session(name=SESSION, precheck=True))
    masked.update_mask.paths.append("precheck")
    streams = [requests[at : at + 3] for at in range(0, len(requests), 3)]
    plain: dict[str, Sequence[Recording]] = {
        "ListMachines": [[zdnn.ListMachinesRequest()], [zdnn.ListMachinesRequest(page_size=1)]],
        "GetMachine": [[zdnn.GetMachineRequest(name=f"machines/{it}")] for it in ("telum1", "z16")],
        "CreateSession": [
            [zdnn.CreateSessionRequest()],
            [zdnn.CreateSessionRequest(session=options)],
        ],
        "GetSession": [[zdnn.GetSessionRequest(name=SESSION)]],
        "UpdateSession": [[update], [masked]],
        "HoldSession": [[zdnn.HoldSessionRequest(name=SESSION)]],
        "DeleteSession": [[zdnn.DeleteSessionRequest(name=SESSION)]],
        "Execute": [[request] for request in requests],
        "ExecuteStream": streams,
        "WriteTensor": _writes(),
        "ReadTensor": _reads(),
        "ListTensors": [[zdnn.ListTensorsRequest(session=SESSION, page_size=2)]],
    }
    return {**{ACCELERATOR + name: calls for name, calls in plain.items()}, PLAIN_SOCKET: streams}


def _writes() -> list[Recording]:
    operation = wire.Operation(transform_ztensor=wire.TransformZtensor(ztensor=_by_id(1)))
    arrays = zdnn.WriteArrays(operation=operation, array_bytes=[len(DATA)])
    sticks = zdnn.WriteSticks(id=2, total_bytes=4096)
    chunk = zdnn.WriteTensorRequest(chunk=bytes(2048))
    return [
        [
            zdnn.WriteTensorRequest(header=zdnn.WriteTensorHeader(session=SESSION, arrays=arrays)),
            zdnn.WriteTensorRequest(chunk=DATA),
        ],
        [
            zdnn.WriteTensorRequest(header=zdnn.WriteTensorHeader(session=SESSION, sticks=sticks)),
            chunk,
            chunk,
        ],
    ]


def _reads() -> list[Recording]:
    operation = wire.Operation(transform_origtensor=wire.TransformOrigtensor(ztensor=_by_id(1)))
    return [
        [zdnn.ReadTensorRequest(session=SESSION, operation=operation)],
        [zdnn.ReadTensorRequest(session=SESSION, sticks=zdnn.ReadSticks(id=2))],
    ]


def _of_networks() -> dict[str, Sequence[Recording]]:
    named: Any = {"session": SESSION, "network": NETWORK_NAME}
    array = models.infer_request(SESSION, NETWORK_NAME, x=ROW).inputs[0]
    buffer = network.Buffer(data=ROW.tobytes(), n_batches=1, height=1, width=1, channels=4)
    room = network.Buffer(data=b"", n_batches=1)
    sample = network.Sample(inputs=[array])
    shape = network.InputShape(name="x", shape=[1, 4])
    initialise = models.init_request(SESSION, NETWORK_NAME)
    calls: dict[str, Sequence[Recording]] = {
        "CreateNetwork": [
            models.create_requests(SESSION, data, c_name="recorded")
            for data in (models.harmless(), models.doubling_loop(2), models.inference_bomb(64))
        ],
        "InitNetwork": [[network.InitNetworkRequest(**named)], [initialise]],
        "RunNetwork": [[network.RunNetworkRequest(**named, inputs=[buffer], outputs=[room])]],
        "InferNetwork": [[models.infer_request(SESSION, NETWORK_NAME, x=ROW)]],
        "GetNetworkError": [[network.GetNetworkErrorRequest(**named, sequence=1)]],
        "GetNetworkInfo": [[network.GetNetworkInfoRequest(**named)]],
        "GetNodeInfo": [[network.GetNodeInfoRequest(**named, c_idx=0)]],
        "ObserveNetwork": [[network.ObserveNetworkRequest(**named, events=3, tensors=True)]],
        "ListNetworks": [[network.ListNetworksRequest(session=SESSION)]],
        "DestroyNetwork": [[network.DestroyNetworkRequest(**named)]],
        "MeasureAccuracy": [[network.MeasureAccuracyRequest(**named, samples=[sample], html=True)]],
        "ProbeNetwork": [[network.ProbeNetworkRequest(**named, sizes=[1, 2])]],
        "ExportProgram": [[network.ExportProgramRequest(**named, shapes=[shape])]],
    }
    return {NETWORK + name: recordings for name, recordings in calls.items()}


def _load_request(name: str, data: bytes) -> oip.RepositoryModelLoadRequest:
    request = oip.RepositoryModelLoadRequest(model_name=name)
    request.parameters[
        "config"
    ].string_param = '{"parameters":{"machine":{"string_value":"telum1"}}}'
    request.parameters["file:1/model.onnx"].bytes_param = data
    return request


def _infer_requests() -> list[oip.ModelInferRequest]:
    raw = oip.ModelInferRequest(model_name=MODEL, id="7", raw_input_contents=[ROW.tobytes()])
    raw.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    raw.outputs.add(name="y")
    typed = oip.ModelInferRequest(model_name=MODEL)
    typed.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    typed.inputs[0].contents.fp32_contents.extend(ROW.ravel().tolist())
    typed.parameters["nnpa_max_response_bytes"].int64_param = 1 << 20
    region = oip.ModelInferRequest(model_name=MODEL)
    region.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    region.inputs[0].parameters["shared_memory_region"].string_param = REGION
    region.inputs[0].parameters["shared_memory_byte_size"].int64_param = 16
    return [raw, typed, region]


def _of_inference() -> dict[str, Sequence[Recording]]:
    register = oip.SystemSharedMemoryRegisterRequest(
        name="another", key=OBJECT, byte_size=OBJECT_BYTES
    )
    cuda = oip.CudaSharedMemoryRegisterRequest(name="region", raw_handle=b"h", byte_size=16)
    version = {"name": MODEL, "version": "1"}
    settings = oip.TraceSettingRequest(model_name=MODEL)
    settings.settings["trace_level"].value.append("TIMESTAMPS")
    logs = oip.LogSettingsRequest()
    logs.settings["log_verbose_level"].uint32_param = 1
    infers = _infer_requests()
    calls: dict[str, Sequence[Recording]] = {
        "ServerLive": [[oip.ServerLiveRequest()]],
        "ServerReady": [[oip.ServerReadyRequest()]],
        "ModelReady": [[oip.ModelReadyRequest(**version)]],
        "ServerMetadata": [[oip.ServerMetadataRequest()]],
        "ModelMetadata": [[oip.ModelMetadataRequest(**version)]],
        "ModelInfer": [[request] for request in infers],
        "ModelStreamInfer": [infers, infers[:1]],
        "ModelConfig": [[oip.ModelConfigRequest(**version)]],
        "ModelStatistics": [[oip.ModelStatisticsRequest(**version)]],
        "RepositoryIndex": [[oip.RepositoryIndexRequest(ready=True)]],
        "RepositoryModelLoad": [[_load_request(MODEL, models.harmless())]],
        "RepositoryModelUnload": [[oip.RepositoryModelUnloadRequest(model_name=MODEL)]],
        "SystemSharedMemoryStatus": [[oip.SystemSharedMemoryStatusRequest()]],
        "SystemSharedMemoryRegister": [[register]],
        "SystemSharedMemoryUnregister": [[oip.SystemSharedMemoryUnregisterRequest()]],
        "CudaSharedMemoryStatus": [[oip.CudaSharedMemoryStatusRequest()]],
        "CudaSharedMemoryRegister": [[cuda]],
        "CudaSharedMemoryUnregister": [[oip.CudaSharedMemoryUnregisterRequest()]],
        "TraceSetting": [[settings]],
        "LogSettings": [[logs]],
    }
    return {INFERENCE + name: recordings for name, recordings in calls.items()}


def _of_instructions() -> dict[str, Sequence[Recording]]:
    messages, frames = instructions.messages(SESSION), instructions.frames()
    return {
        instructions.INSTRUCTION + "Issue": [[message] for message in messages],
        instructions.INSTRUCTION + "IssueStream": [messages[:3], messages[3:]],
        FRAMES: [frames[:3], frames[3:]],
    }


def _kernels() -> list[Recording]:
    """Return a call for every kernel of MLI."""
    return [
        [mli_pb2.RunKernelRequest(kernels=[kernel(name, fields)])]
        for name, fields in scenes().items()
    ]


def _of_probes() -> dict[str, Sequence[Recording]]:
    """Return calls of the small services: MLI, traces, health, reflection."""
    ask: Callable[..., reflection_pb2.ServerReflectionRequest]
    ask = reflection_pb2.ServerReflectionRequest
    symbol = "nnpa.zdnn.v1.AcceleratorService"
    health = [[health_pb2.HealthCheckRequest(service=name)] for name in SERVICES]
    return {
        MLI + "RunKernel": _kernels(),
        MLI + "ListKernels": [[mli_pb2.ListKernelsRequest()]],
        TRACING + "RecordTrace": [[trace.RecordTraceRequest(contents=True, max_bytes=1 << 16)]],
        TRACING + "EndTrace": [[trace.EndTraceRequest(trace=TRACE)]],
        HEALTH + "Check": health,
        HEALTH + "Watch": health,
        REFLECTION: [
            [ask(list_services=""), ask(file_containing_symbol=symbol)],
            [ask(file_by_filename="nnpa/zdnn/v1/tensor.proto")],
        ],
    }
