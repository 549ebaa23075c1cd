# SPDX-License-Identifier: Apache-2.0
"""Fault sweeps: every call of a program fails once, with every status that it can have."""
