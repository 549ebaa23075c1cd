# SPDX-License-Identifier: Apache-2.0
"""Views of traces for the page, with lint findings."""
