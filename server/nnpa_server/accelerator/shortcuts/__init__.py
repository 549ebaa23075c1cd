# SPDX-License-Identifier: Apache-2.0
"""Shortcuts: each wraps a function of the plain path, and `--plain` can take it away."""
