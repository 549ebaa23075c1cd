# SPDX-License-Identifier: Apache-2.0
"""The pools of worker processes that compile and run hosted models."""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from nnpa_server.config import SHORTCUTS, kernel_environment
from nnpa_server.network.worker_kernels import WorkerKernels
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.pool import Pool
from nnpa_server.tuning.background import BackgroundCompiler

_log = logging.getLogger("nnpa.sandbox")
PLACES = 16
"""The most workers of a pool at a time."""
_NICENESS = 5  # of workers that compile: calls go first, in the server and in workers that run
# ONNX Runtime starts a thread for telemetry, and a process with threads cannot be confined.
_WORKER_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True, slots=True)
class Pools:
    """A pool of workers that compile models, and one of workers that run host nodes."""

    compilers: Pool
    runners: Pool
    kernels: WorkerKernels | None = None

    def note_run(self, functions: Collection[str], size: int) -> None:
        """Count a worker's run by functions and bytes, so that their kernels get compiled."""
        if self.kernels is not None:
            self.kernels.note(functions, size)

    def close(self) -> None:
        """End all workers."""
        self.compilers.close()
        self.runners.close()


def make_pools(
    sandbox: str,
    shortcuts: Collection[str] = SHORTCUTS,
    compile_bytes: int | None = None,
    compiler: BackgroundCompiler | None = None,
) -> Pools | None:
    """Return the pools of workers, or None if models run in the server's process.

    All compiling workers together take at most `compile_bytes`, or a single one what its job may
    take. `compiler` compiles kernels that workers lack.
    Log the confinements that the kernel lacks; raise `NotConfined` if `sandbox` is "require".
    """
    if sandbox == "off":
        return None
    missing = confinement.missing()
    if missing and sandbox == "require":
        raise confinement.NotConfined(f"the kernel lacks {', '.join(missing)}: --sandbox require")
    if not confinement.is_linux():
        _log.warning("models run in the server's process: workers need Linux")
        return None
    if missing:
        _log.warning("workers are not confined by %s, which the kernel lacks", ", ".join(missing))
    names = ",".join(sorted(shortcuts))
    environment = {**_WORKER_ENVIRONMENT, **kernel_environment()}
    whole, room = sandbox == "require", "nnpa_server.network"
    compilers = Pool(
        f"{room}.compiling:start:{names}",
        environment,
        whole=whole,
        max_leased=PLACES,
        max_bytes=compile_bytes,
        niceness=_NICENESS,
    )
    runners = Pool(f"{room}.running:start:{names}", environment, whole=whole, max_leased=PLACES)
    if compiler is None or compiler.place is None:
        return Pools(compilers, runners)

    def renew() -> None:
        compilers.renew()
        runners.renew()

    return Pools(compilers, runners, WorkerKernels(compiler, compiler.place, renew))
