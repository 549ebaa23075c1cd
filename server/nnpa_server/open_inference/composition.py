# SPDX-License-Identifier: Apache-2.0
"""Compose the parts that load and run models for clients of the protocol."""

from collections.abc import Callable

from nnpa_server.config import Config
from nnpa_server.open_inference.inference import Inference
from nnpa_server.open_inference.loading import Compile, Loader, Share
from nnpa_server.open_inference.reading import RequestReader
from nnpa_server.open_inference.repository import Repository
from nnpa_server.open_inference.request_cache import RequestCache
from nnpa_server.open_inference.saved_models import SavedModels
from nnpa_server.open_inference.service import OpenInferenceService
from nnpa_server.open_inference.shared_memory import Regions
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.shared_objects import ObjectAccess


class Models:
    """The loader of models, the regions of shared memory, inference, and the service over them.

    `is_ready` returns True once the operator's and the saved models are loaded. `compile_model`
    compiles models; the context of `share` makes many of them share workers.
    """

    def __init__(
        self,
        config: Config,
        repository: Repository,
        metrics: Metrics | None,
        is_ready: Callable[[], bool],
        saved: SavedModels | None,
        compile_model: Compile,
        share: Share,
    ) -> None:
        limit, shortcuts = config.limits.max_session_bytes, config.shortcuts
        self.loader = Loader(repository, compile_model, config.models, limit, saved, share)
        access = ObjectAccess.of(config)
        self.regions = None if access is None else Regions(access, config.max_regions)
        read = RequestReader(repository, limit).read
        if "request-cache" in shortcuts:
            read = RequestCache(read).read
        self.inference = Inference(
            read, repository.note_success, self.regions, config.max_response, limit, metrics
        )
        self.service = OpenInferenceService(
            repository,
            self.inference,
            None if config.no_model_control else self.loader,
            self.regions,
            is_ready,
        )
