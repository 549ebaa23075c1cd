# SPDX-License-Identifier: Apache-2.0
"""Observers of operations: metrics and traces."""
