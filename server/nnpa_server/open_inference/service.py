# SPDX-License-Identifier: Apache-2.0
"""GRPCInferenceService: each method of nnpa/oip/open_inference_grpc.proto in a few lines.

Methods raise `CallRefused`; the interceptor turns it into a gRPC error.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallCancelled, CallRefused, from_exception, invalid
from nnpa_server.open_inference import metadata
from nnpa_server.open_inference.inference import Inference
from nnpa_server.open_inference.loading import Loader
from nnpa_server.open_inference.messages import InferRequest, InferResponse, StreamResponse
from nnpa_server.open_inference.repository import Repository, State
from nnpa_server.open_inference.requests import not_offered
from nnpa_server.open_inference.shared_memory import Regions, require_regions
from nnpa_server.sessions.cancellation import CancellationCheck, Context

_failures = logging.getLogger("nnpa.failure")
_EXTENSIONS = (
    "model_repository",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
)
_FINAL_WANTED, _FINAL = "triton_enable_empty_final_response", "triton_final_response"


@dataclass(eq=False)
class OpenInferenceService:
    """Implements GRPCInferenceService."""

    repository: Repository
    inference: Inference
    loader: Loader | None  # None if clients may not load models
    regions: Regions | None  # None if clients may not share memory
    is_ready: Callable[[], bool]  # returns True once the models of the operator are loaded

    def ServerLive(self, _request: object, _context: object) -> pb.ServerLiveResponse:
        """Return that the server is live."""
        return pb.ServerLiveResponse(live=True)

    def ServerReady(self, _request: object, _context: object) -> pb.ServerReadyResponse:
        """Return true once the operator's models are loaded, until the server drains."""
        return pb.ServerReadyResponse(ready=self.is_ready())

    def ModelReady(self, request: pb.ModelReadyRequest, _context: object) -> pb.ModelReadyResponse:
        """Return true if a model is ready, false after a failed warm-up or for an unknown model."""
        try:
            model = self.repository.find(request.name, request.version)
        except CallRefused:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=model.state == State.READY)

    def ServerMetadata(self, _request: object, _context: object) -> pb.ServerMetadataResponse:
        """Return the name, version and extensions of the server."""
        offered = (*_EXTENSIONS, *(("system_shared_memory",) if self.regions else ()))
        return pb.ServerMetadataResponse(
            name="nnpa-server", version=version("nnpa"), extensions=offered
        )

    def ModelMetadata(
        self, request: pb.ModelMetadataRequest, _context: object
    ) -> pb.ModelMetadataResponse:
        """Return the inputs and outputs of a model."""
        model = self.repository.find(request.name, request.version)
        return metadata.describe(model, self.repository.versions(model.name))

    def ModelConfig(
        self, request: pb.ModelConfigRequest, _context: object
    ) -> pb.ModelConfigResponse:
        """Return the configuration of a model."""
        model = self.repository.find(request.name, request.version)
        config = metadata.configuration(model, self.repository.versions(model.name))
        return pb.ModelConfigResponse(config=config)

    def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, _context: object
    ) -> pb.ModelStatisticsResponse:
        """Return the statistics of a model, or of all models."""
        models = self.repository.models()
        if request.name:
            chosen = self.repository.find(request.name, request.version)
            models = [
                model
                for model in models
                if model is chosen or (model.name == chosen.name and not request.version)
            ]
        return pb.ModelStatisticsResponse(model_stats=map(metadata.statistics, models))

    def ModelInfer(self, request: InferRequest, context: Context) -> InferResponse:
        """Run a model once."""
        return self.inference.infer(request, context)

    def ModelStreamInfer(
        self, requests: Iterator[InferRequest], context: Context
    ) -> Generator[StreamResponse]:
        """Run a model for each request; an error is the answer to its request."""
        for request in requests:
            try:
                response = self.inference.infer(request, context)
            except CallCancelled:
                raise
            except Exception as error:
                yield _stream_error(request, from_exception(error))
            else:
                yield _final(request, response)
                del response
            del request  # a stream that waits keeps neither

    def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, _context: object
    ) -> pb.RepositoryIndexResponse:
        """List the models."""
        if self.loader is not None:
            self.loader.note_folder()
        return pb.RepositoryIndexResponse(
            models=(
                entry
                for entry in self.repository.index()
                if entry.state == State.READY or not request.ready
            )
        )

    def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: Context
    ) -> pb.RepositoryModelLoadResponse:
        """Load a model from the folder or from the request."""
        loader, name = self._require_control(), request.model_name or request.repository_name
        override, files = "", dict[str, bytes]()
        for key, parameter in request.parameters.items():
            match parameter.WhichOneof("parameter_choice"):
                case "string_param" if key == "config":
                    override = parameter.string_param
                case "bytes_param" if key.startswith("file:"):
                    files[key] = parameter.bytes_param
                case kind:
                    limit = "config, a string, or file:<version>/<file>.onnx, bytes"
                    raise invalid("parameters", f"{key[:64]!r} as {kind}", limit)
        loader.load(name, override, files, check=CancellationCheck(context))
        return pb.RepositoryModelLoadResponse(model_name=name, isLoaded=True)

    def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, _context: object
    ) -> pb.RepositoryModelUnloadResponse:
        """Unload a model."""
        name = request.model_name or request.repository_name
        self._require_control().unload(name)
        return pb.RepositoryModelUnloadResponse(model_name=name, isUnloaded=True)

    def _require_control(self) -> Loader:
        if self.loader is None:
            raise not_offered("model_repository", "the operator loads models, not the clients")
        return self.loader

    def SystemSharedMemoryStatus(
        self, request: pb.SystemSharedMemoryStatusRequest, context: Context
    ) -> pb.SystemSharedMemoryStatusResponse:
        """List the connection's regions, or one of them."""
        regions, response = require_regions(self.regions), pb.SystemSharedMemoryStatusResponse()
        chosen = regions.of(context.peer())
        if request.name:
            chosen = [regions.find(context.peer(), request.name)]
        for region in chosen:
            status = response.regions[region.name]
            status.name, status.key = region.name, region.key
            status.offset, status.byte_size = region.offset, region.byte_size
        return response

    def SystemSharedMemoryRegister(
        self, request: pb.SystemSharedMemoryRegisterRequest, context: Context
    ) -> pb.SystemSharedMemoryRegisterResponse:
        """Register a region of shared memory for the connection."""
        require_regions(self.regions).register(
            context.peer(), request.name, request.key, request.offset, request.byte_size
        )
        return pb.SystemSharedMemoryRegisterResponse()

    def SystemSharedMemoryUnregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        """Unregister a region of the connection, or all of them."""
        require_regions(self.regions).unregister(context.peer(), request.name)
        return pb.SystemSharedMemoryUnregisterResponse()


def _final(request: InferRequest, response: InferResponse) -> InferResponse:
    """Mark a response as the last of its request, if the request asks for the mark."""
    if _FINAL_WANTED.encode() not in request.head:
        return response
    parameters = pb.ModelInferRequest.FromString(request.head).parameters
    if _FINAL_WANTED not in parameters or not parameters[_FINAL_WANTED].bool_param:
        return response
    response.message.parameters[_FINAL].bool_param = True
    return response


def _stream_error(request: InferRequest, refused: CallRefused) -> pb.ModelStreamInferResponse:
    """Return the stream's message for an error, with the id of its request."""
    if refused.reason == wire.ERROR_REASON_INTERNAL:
        _failures.exception("correlation_id=%s", refused.metadata["correlation_id"])
    return pb.ModelStreamInferResponse(
        error_message=f"[{refused.code.name}] {refused.message}",
        infer_response=pb.ModelInferResponse(id=request.id.decode()),
    )
