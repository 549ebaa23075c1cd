# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `nnpa`, one module for each."""
