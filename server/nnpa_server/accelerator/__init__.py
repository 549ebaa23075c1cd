# SPDX-License-Identifier: Apache-2.0
"""nnpa.zdnn.v1.AcceleratorService: sessions, lists of operations, transfers."""

from nnpa_server.accelerator.arms import ARMS, Arm
from nnpa_server.accelerator.service import SERVICE, AcceleratorService, add_to

__all__ = ["ARMS", "SERVICE", "AcceleratorService", "Arm", "add_to"]
