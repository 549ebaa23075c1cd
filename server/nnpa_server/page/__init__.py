# SPDX-License-Identifier: Apache-2.0
"""The server's views of the page: machines, sticks, and the sessions of the token's holder."""

from nnpa_server.page.serving import SessionPage

__all__ = ["SessionPage"]
