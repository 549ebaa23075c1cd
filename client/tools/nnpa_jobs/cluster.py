# SPDX-License-Identifier: Apache-2.0
"""Ray clusters: names of `nnpa_tools.evaluation.cluster`."""

from nnpa_tools.evaluation.cluster import ClusterError, RayCluster, runtime_environment

__all__ = ["ClusterError", "RayCluster", "runtime_environment"]
