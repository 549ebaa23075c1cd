# SPDX-License-Identifier: Apache-2.0
"""Stateless work on all cores of a machine: evaluation over a dataset."""
