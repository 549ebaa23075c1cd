# SPDX-License-Identifier: Apache-2.0
"""nnpa.mli.v1.MliService: embARC MLI kernels with their tensors, several in one call."""

from nnpa_server.mli.handlers import SERVICE, add_to

__all__ = ["SERVICE", "add_to"]
