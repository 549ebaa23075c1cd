# SPDX-License-Identifier: Apache-2.0
"""Conformance: two machines' answers compared, and the score of every suite on one page."""
