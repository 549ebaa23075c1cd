# SPDX-License-Identifier: Apache-2.0
"""All that runs models for clients of the protocol, put together."""

from collections.abc import Callable, Collection
from functools import partial

from nnpa_network.shortcuts import SHORTCUTS as NETWORK_SHORTCUTS

from nnpa_server.config import Config
from nnpa_server.open_inference.composition import SHORTCUTS, compose_reader
from nnpa_server.open_inference.inference import Inference
from nnpa_server.open_inference.loading import Compile, Loader, Share, compile_onnx, unshared
from nnpa_server.open_inference.reading import RequestReader
from nnpa_server.open_inference.repository import Repository
from nnpa_server.open_inference.saved_models import SavedModels
from nnpa_server.open_inference.service import OpenInferenceService
from nnpa_server.open_inference.shared_memory import Regions
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.shared_objects import ObjectAccess


class Models:
    """A loader of models, the memory that clients share, inference, and the service over them."""

    def __init__(
        self,
        config: Config,
        repository: Repository,
        metrics: Metrics | None,
        is_ready: Callable[[], bool],
        shortcuts: Collection[str] = SHORTCUTS | NETWORK_SHORTCUTS,
        saved: SavedModels | None = None,
        compile_model: Compile | None = None,
        share: Share = unshared,
    ) -> None:
        limit = config.limits.max_session_bytes
        compile_here = partial(compile_onnx, shortcuts=frozenset(shortcuts))
        self.loader = Loader(
            repository, compile_model or compile_here, config.models, limit, saved, share
        )
        access = ObjectAccess.of(config)
        self.regions = None if access is None else Regions(access, config.max_regions)
        reader = RequestReader(repository, limit)
        read = compose_reader(reader.read, shortcuts)
        self.inference = Inference(
            read, repository.note_success, self.regions, config.max_response, limit, metrics
        )
        loader = None if config.no_model_control else self.loader
        self.service = OpenInferenceService(
            repository, self.inference, loader, self.regions, is_ready
        )
