# SPDX-License-Identifier: Apache-2.0
"""zDNN on the wire, version 1: a module for each file of the contract."""
