# SPDX-License-Identifier: Apache-2.0
"""Attacks on servers: known ones, random ones, and load for hours. Only on servers started here."""
