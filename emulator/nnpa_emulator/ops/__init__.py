# SPDX-License-Identifier: Apache-2.0
"""Operation families, as in the zDNN manual."""
