# SPDX-License-Identifier: Apache-2.0
"""zDNN on the wire, version 1: status, tensor, operation, fault, accelerator, trace."""
