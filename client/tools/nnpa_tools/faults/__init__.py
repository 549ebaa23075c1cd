# SPDX-License-Identifier: Apache-2.0
"""Fault sweeps: each call of a program fails once with each status."""
