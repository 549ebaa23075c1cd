# SPDX-License-Identifier: Apache-2.0
"""Evaluation: the accuracy of a model over data, in this process, on all cores, or on a cluster."""
