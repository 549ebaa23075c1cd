# SPDX-License-Identifier: Apache-2.0
"""Worker processes for code that is not trusted; what they run, this package does not know."""
