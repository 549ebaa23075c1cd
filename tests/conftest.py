# SPDX-License-Identifier: Apache-2.0
"""The one Hypothesis profile, always the same examples, and BLAS on one thread as in the server."""

from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

threadpool_limits(limits=1, user_api="blas")

settings.register_profile(
    "nnpa",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nnpa")
