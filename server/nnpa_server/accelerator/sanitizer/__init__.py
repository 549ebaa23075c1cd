# SPDX-License-Identifier: Apache-2.0
"""The sanitizer reports misuse of tensors that a machine would not notice."""
