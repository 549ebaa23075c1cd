# SPDX-License-Identifier: Apache-2.0
"""The states of a server, by the words that log, health, help and documents use.

    listening   it takes calls; every service but the models' has health SERVING
    ready       its models are loaded; the models' service has health SERVING, ServerReady is true
    draining    it takes no new calls; every service has health NOT_SERVING until the end

Without models a server is ready as soon as it listens.
"""

from collections.abc import Iterable

from grpc_health.v1 import health, health_pb2

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Readiness:
    """Publishes the state through the service `health`; `models` names the service of models."""

    def __init__(self, services: Iterable[str], models: str) -> None:
        self.health = health.HealthServicer(experimental_non_blocking=False)
        self._services, self._models = (*services, ""), models
        self._is_loaded = self._is_draining = False
        for name in (*self._services, models):
            self.health.set(name, _NOT_SERVING)

    def listen(self) -> None:
        """Set the state to listening."""
        for name in self._services:
            self.health.set(name, _SERVING)

    def be_ready(self) -> None:
        """Set the state to ready, unless the server drains."""
        self._is_loaded = True
        self.health.set(self._models, _SERVING)

    def is_ready(self) -> bool:
        """Return True if the models have been loaded and the server does not drain."""
        return self._is_loaded and not self._is_draining

    def drain(self) -> None:
        """Set the state to draining, so that proxies send no more calls here. May be repeated."""
        self._is_draining = True
        self.health.enter_graceful_shutdown()
