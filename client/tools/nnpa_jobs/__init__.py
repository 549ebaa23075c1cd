# SPDX-License-Identifier: Apache-2.0
"""Evaluation on a cluster: names of `nnpa_tools.evaluation`."""
