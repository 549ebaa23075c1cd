# SPDX-License-Identifier: Apache-2.0
"""Data to measure a model with: files of arrays, tables, folders of images, and their labels."""

from nnpa_tools.evaluation.datasets.images import Preprocessing, read_preprocessing
from nnpa_tools.evaluation.datasets.opening import open_data
from nnpa_tools.evaluation.datasets.rows import Dataset

__all__ = ["Dataset", "Preprocessing", "open_data", "read_preprocessing"]
