# SPDX-License-Identifier: Apache-2.0
"""Views of the page over traces, with what the rules of the doctor find in them."""
