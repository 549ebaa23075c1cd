# SPDX-License-Identifier: Apache-2.0
"""A guest on the emulated machine: its options, and the calls that run on it."""
