# SPDX-License-Identifier: Apache-2.0
"""The sanitizer: what a program does that a machine would let pass."""
