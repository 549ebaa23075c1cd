# SPDX-License-Identifier: Apache-2.0
"""Traces read again: differences, replay, values, and tables of them."""
