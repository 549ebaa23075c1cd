# SPDX-License-Identifier: Apache-2.0
"""X-CUBE-AI's client API: the life cycle of a network, its buffers, errors and observers."""
