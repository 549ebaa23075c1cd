# SPDX-License-Identifier: Apache-2.0
"""Models: analysis before they are hosted, views of them, and C generated for them."""
