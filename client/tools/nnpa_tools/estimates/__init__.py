# SPDX-License-Identifier: Apache-2.0
"""Time on the machine: how long calls of zDNN would take on the zAIU of a z16 or z17.

    estimate(calls, "telum1").total         # from least to most, with a grade

The answer is an interval with a grade, never one number, and no time that this emulator takes.
"""

from nnpa_tools.estimates.coefficients import estimated_machine, machines, model_of, shipped
from nnpa_tools.estimates.dominance import dominant
from nnpa_tools.estimates.estimator import Estimate, estimate, is_small, time_of
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.programs import NetworkTimes, calls_of, network_times
from nnpa_tools.estimates.work import Call, call_of

__all__ = [
    "Call",
    "Estimate",
    "Interval",
    "NetworkTimes",
    "call_of",
    "calls_of",
    "dominant",
    "estimate",
    "estimated_machine",
    "is_small",
    "machines",
    "model_of",
    "network_times",
    "shipped",
    "time_of",
]
