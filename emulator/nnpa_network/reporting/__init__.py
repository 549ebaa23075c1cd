# SPDX-License-Identifier: Apache-2.0
"""What a network costs in accuracy: comparison with FP32, probes, pages."""
