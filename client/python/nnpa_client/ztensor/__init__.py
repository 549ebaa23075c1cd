# SPDX-License-Identifier: Apache-2.0
"""`zdnn_ztensor` from afar: the structure here, the sticks in the session."""

from nnpa_client.ztensor._ztensor import Ztensor

__all__ = ["Ztensor"]
