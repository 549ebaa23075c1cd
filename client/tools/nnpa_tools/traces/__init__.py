# SPDX-License-Identifier: Apache-2.0
"""Traces read again: differences, replay, lint, values, and views of them."""
