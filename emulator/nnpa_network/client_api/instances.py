# SPDX-License-Identifier: Apache-2.0
"""The networks of one client: by handle, and one of each C name.

Source: X-CUBE-AI 7.0 Embedded Inference Client API, ai_<name>_create ("current implementation
supports only one instance by c-model"). The answers to unknown handles and to a full table follow
ST's public application code, which wraps several networks.
"""

import threading
from collections.abc import Callable

from nnpa_network.client_api.creation import Caller, Options, Provenance, require_compatible
from nnpa_network.client_api.errors import NO_ERROR, AiError, ErrorCode, ErrorType, NetworkRefused
from nnpa_network.client_api.network import Network, RunResult
from nnpa_network.importing.plan import Plan

INVALID_HANDLE = AiError(ErrorType.INVALID_HANDLE, ErrorCode.NETWORK, "no network has this handle")
NOT_RUN = RunResult(0)
"""What run answers for an invalid handle."""


class Instances:
    """At most `limit` networks; `new_handle` makes names that are never used again."""

    def __init__(self, limit: int, new_handle: Callable[[], str]) -> None:
        self._limit, self._new_handle = limit, new_handle
        self._by_handle: dict[str, Network] = {}
        self._lock = threading.RLock()

    def create(
        self,
        signature: str,
        compiled: Callable[[], Plan],
        provenance: Provenance,
        options: Options,
        caller: Caller,
    ) -> str:
        """Create a network of the model with this signature and return its handle.

        `compiled` returns its plan, and is called after all checks. A network of the same C name
        and model is returned instead, unless it is strict. Raise `NetworkRefused`, `ModelRefused`.
        """
        require_compatible(caller, options)
        with self._lock:
            for handle, network in self._by_handle.items():
                if network.provenance.c_name == provenance.c_name:
                    _require_same(network, signature, options)
                    return handle
            if len(self._by_handle) >= self._limit:
                text = f"{len(self._by_handle)} networks exist, at most {self._limit}"
                raise NetworkRefused(ErrorType.ALLOCATION_FAILED, ErrorCode.NETWORK, text)
            handle = self._new_handle()
            self._by_handle[handle] = Network(compiled(), provenance, options, caller)
            return handle

    def find(self, handle: str) -> Network | None:
        """Return a network, None for an unknown handle."""
        with self._lock:
            return self._by_handle.get(handle)

    def get_error(self, handle: str, sequence: int = 0) -> AiError:
        """Return a network's first error and clear it; an invalid handle is itself the error."""
        network = self.find(handle)
        return INVALID_HANDLE if network is None else network.get_error(sequence)

    def destroy(self, handle: str) -> AiError:
        """Destroy a network; an error, also for an invalid handle, means that it was not."""
        network = self.find(handle)
        if network is None:
            return INVALID_HANDLE
        if not network.destroy():
            return AiError(ErrorType.DEALLOCATION_FAILED, ErrorCode.NETWORK, "a run is under way")
        with self._lock:
            self._by_handle.pop(handle, None)
        return NO_ERROR

    def all(self) -> dict[str, Network]:
        """Return the networks by handle, in the order of their C names."""
        with self._lock:
            pairs = sorted(self._by_handle.items(), key=lambda pair: pair[1].provenance.c_name)
            return dict(pairs)

    def clear(self) -> None:
        """Drop every network."""
        with self._lock:
            self._by_handle.clear()


def _require_same(network: Network, signature: str, options: Options) -> None:
    name = network.provenance.c_name
    if options.strict or network.plan.signature != signature:
        text = f"a network {name} exists" + ("" if options.strict else ", of another model")
        raise NetworkRefused(ErrorType.CREATE_FAILED, ErrorCode.IN_USE, text)
