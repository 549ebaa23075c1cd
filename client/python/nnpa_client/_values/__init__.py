# SPDX-License-Identifier: Apache-2.0
"""Values of C, NumPy and the wire: constants, types, units, and how they are shown."""
