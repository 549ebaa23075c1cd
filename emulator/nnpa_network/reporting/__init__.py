# SPDX-License-Identifier: Apache-2.0
"""The accuracy of a network: comparison with FP32, probes, pages."""
