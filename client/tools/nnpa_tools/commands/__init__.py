# SPDX-License-Identifier: Apache-2.0
"""What the command `nnpa` does, a module for each of its words."""
