# SPDX-License-Identifier: Apache-2.0
"""The parts of a program under construction: typed values, arrangements, constants, steps."""
