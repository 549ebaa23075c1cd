# SPDX-License-Identifier: Apache-2.0
"""Sessions: their state, quotas and leases, and the callers that may use them."""
