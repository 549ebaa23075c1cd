# SPDX-License-Identifier: Apache-2.0
"""`zdnn_ztensor` of a remote session: the client has the structure, the session the sticks."""

from nnpa_client.ztensor._ztensor import Ztensor

__all__ = ["Ztensor"]
