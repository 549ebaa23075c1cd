# SPDX-License-Identifier: Apache-2.0
"""The NNPA instruction on the wire, by version."""
