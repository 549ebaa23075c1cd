# SPDX-License-Identifier: Apache-2.0
"""Instruments: what examines programs, models and machines, above client and server."""
