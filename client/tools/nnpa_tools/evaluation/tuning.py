# SPDX-License-Identifier: Apache-2.0
"""Tuning of a process that measures: one thread, memory that is kept, cached kernels."""

from nnpa_server.config import kernel_cache, leave_out_telemetry
from nnpa_server.tuning.kernel_cache import leave_out_scipy


def tune() -> None:
    """Tune this process; call it before the emulator and ONNX Runtime are imported."""
    kernel_cache()
    leave_out_telemetry()
    leave_out_scipy()
    from nnpa_server.tuning.process import pin_blas, tune_malloc  # imports the emulator

    pin_blas()
    tune_malloc()
