# SPDX-License-Identifier: Apache-2.0
"""Observers of operations: metrics, traces, the sanitizer, faults, and the page's last calls."""
