# SPDX-License-Identifier: Apache-2.0
"""The embARC MLI API of the wire, by version."""
