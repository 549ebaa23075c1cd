# SPDX-License-Identifier: Apache-2.0
"""What every verb is made with."""

from nnpa_client._guest import Verb

__all__ = ["Verb"]
