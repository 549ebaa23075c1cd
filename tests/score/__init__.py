# SPDX-License-Identifier: Apache-2.0
"""The suites that `nnpa conformance score` runs; the package has them, too."""
