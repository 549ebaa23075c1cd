# SPDX-License-Identifier: Apache-2.0
"""nnpa.mli.v1.MliService: embARC MLI kernels with their tensors, several in one call."""

from nnpa_server.mli.operands import Room
from nnpa_server.mli.service import MAX_KERNELS, SERVICE, MliService

__all__ = ["MAX_KERNELS", "SERVICE", "MliService", "Room"]
