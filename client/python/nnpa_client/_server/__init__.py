# SPDX-License-Identifier: Apache-2.0
"""How this client reaches a server: calls, shortcuts around them, servers of its own."""
