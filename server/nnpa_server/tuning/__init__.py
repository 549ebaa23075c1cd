# SPDX-License-Identifier: Apache-2.0
"""Process tuning: memory, warm-up, kernel cache."""
