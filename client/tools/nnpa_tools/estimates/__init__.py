# SPDX-License-Identifier: Apache-2.0
"""Time on the machine: how long calls of zDNN would take on the zAIU of a z16 or z17.

    estimate(calls, "telum1").total         # from least to most, with a grade

The answer is an interval with a grade, never one number, and no time that this emulator takes.
"""
