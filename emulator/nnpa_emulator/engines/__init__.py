# SPDX-License-Identifier: Apache-2.0
"""Sums of products: operands are prepared for kernels, and large ones are computed in blocks.

An engine has the name of its family: `ops` check a call, engines cut it, `kernels` compute it.
"""
