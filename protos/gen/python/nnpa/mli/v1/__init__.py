# SPDX-License-Identifier: Apache-2.0
"""embARC MLI on the wire, version 1."""
