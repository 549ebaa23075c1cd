# SPDX-License-Identifier: Apache-2.0
"""nnpa.network.v1.NetworkService: hosted networks."""

from nnpa_server.network.handlers import INFER, SERVICE, add_to, compile_in, share_in
from nnpa_server.network.pools import Pools, make_pools

__all__ = ["INFER", "SERVICE", "Pools", "add_to", "compile_in", "make_pools", "share_in"]
