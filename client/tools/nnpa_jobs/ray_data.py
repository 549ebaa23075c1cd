# SPDX-License-Identifier: Apache-2.0
"""Evaluation in Ray Data: names of `nnpa_tools.evaluation.ray_data`."""

from nnpa_tools.evaluation.ray_data import MeasureBatch, report

__all__ = ["MeasureBatch", "report"]
