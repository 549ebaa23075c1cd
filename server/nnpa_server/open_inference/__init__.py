# SPDX-License-Identifier: Apache-2.0
"""inference.GRPCInferenceService: the Open Inference Protocol, in Triton's dialect.

What models run on is imported by the first call, or while the server is idle.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from nnpa_server.config import Config
from nnpa_server.open_inference.handlers import SERVICE, handlers_of
from nnpa_server.open_inference.repository import Repository
from nnpa_server.open_inference.saved_models import SavedModels
from nnpa_server.sessions.metrics import Metrics

if TYPE_CHECKING:
    from nnpa_server.open_inference.loading import Compile, Share
    from nnpa_server.open_inference.models import Models

__all__ = ["SERVICE", "handlers_of", "make_models"]


def make_models(
    config: Config,
    repository: Repository,
    metrics: Metrics | None,
    is_ready: Callable[[], bool],
    shortcuts: Collection[str],
    saved: SavedModels | None = None,
    compile_model: "Compile | None" = None,
    share: "Share | None" = None,
) -> "Models":
    """Return what runs models; `is_ready` tells whether the operator's and `saved` are loaded.

    `compile_model` compiles them elsewhere than here, where many `share` what they run in.
    """
    from nnpa_server.open_inference.loading import unshared
    from nnpa_server.open_inference.models import Models

    return Models(
        config,
        repository,
        metrics,
        is_ready,
        shortcuts,
        saved,
        compile_model,
        share or unshared,
    )
