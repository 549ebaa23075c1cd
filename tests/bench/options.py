# SPDX-License-Identifier: Apache-2.0
"""Options of the command line for the rows, set before any row is measured."""

PEERS = False
"""Whether to measure the peers that need environments of their own."""
