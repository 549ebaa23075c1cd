# SPDX-License-Identifier: Apache-2.0
"""The worker processes of a server that hosts models."""

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
"""Most workers of a kind at a time."""
# ONNX Runtime starts a thread for telemetry, and a process with threads cannot be confined.
_WORKER_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True, slots=True)
class Pools:
    """Workers that compile models, and workers that run programs with host nodes."""

    compilers: Pool
    runners: Pool
    kernels: WorkerKernels | None = None

    def note_run(self, functions: Collection[str], size: int) -> None:
        """Count what a worker ran, by functions and bytes, so that their kernels are compiled."""
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
    """Return what gives workers for models, None where the server does all by itself.

    All that compile take at most `compile_bytes` together, or one of them what it may take.
    `compiler` compiles kernels that workers lack.
    Say what the kernel lacks; raise `NotConfined` where `sandbox` requires it.
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
        f"{room}.compiling:start",
        environment,
        whole=whole,
        max_leased=PLACES,
        max_bytes=compile_bytes,
    )
    runners = Pool(f"{room}.running:start:{names}", environment, whole=whole, max_leased=PLACES)
    place = None if compiler is None else compiler.place
    if compiler is None or place is None:
        return Pools(compilers, runners)
    return Pools(compilers, runners, WorkerKernels(compiler, place, runners.renew))
