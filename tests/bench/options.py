# SPDX-License-Identifier: Apache-2.0
"""What the command line asks of the rows, set before any is measured."""

PEERS = False
"""Whether to measure the peers that need environments of their own."""
