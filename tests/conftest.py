# SPDX-License-Identifier: Apache-2.0
"""The one Hypothesis profile: as many examples as a short suite affords, and always the same ones."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "nnpa",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nnpa")
