# SPDX-License-Identifier: Apache-2.0
"""The states of a server, with one word each in log, health, help and documents.

    listening   it takes calls; health of all services but that of models is SERVING
    ready       its models have been loaded, too: health of their service, and ServerReady
    draining    it takes no new calls any more: health of all services is NOT_SERVING, for good

Without models a server is ready as soon as it listens.
"""

from collections.abc import Iterable

from grpc_health.v1 import health, health_pb2

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Readiness:
    """Says the state by `health`, the service; `models` is the name of the service of models."""

    def __init__(self, services: Iterable[str], models: str) -> None:
        self.health = health.HealthServicer(experimental_non_blocking=False)
        self._services, self._models = (*services, ""), models
        self._is_loaded = self._is_draining = False
        for name in (*self._services, models):
            self.health.set(name, _NOT_SERVING)

    def listen(self) -> None:
        """Say that calls are taken."""
        for name in self._services:
            self.health.set(name, _SERVING)

    def be_ready(self) -> None:
        """Say that the models have been loaded, unless the server drains."""
        self._is_loaded = True
        self.health.set(self._models, _SERVING)

    def is_ready(self) -> bool:
        """Return whether the models have been loaded and the server does not drain."""
        return self._is_loaded and not self._is_draining

    def drain(self) -> None:
        """Say that proxies are to send newcomers elsewhere, from now on. May be repeated."""
        self._is_draining = True
        self.health.enter_graceful_shutdown()
