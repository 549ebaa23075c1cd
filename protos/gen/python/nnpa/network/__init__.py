# SPDX-License-Identifier: Apache-2.0
"""Hosted networks on the wire, by version."""
