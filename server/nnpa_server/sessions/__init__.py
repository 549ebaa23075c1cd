# SPDX-License-Identifier: Apache-2.0
"""What sessions hold, and who may use them."""
