# SPDX-License-Identifier: Apache-2.0
"""What `nnpa conformance score` runs; the package brings it along."""
