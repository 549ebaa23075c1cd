# SPDX-License-Identifier: Apache-2.0
"""A sentence on the largest part of an estimated time, with the remedy."""

from nnpa_client._values.display import counted

from nnpa_tools.estimates.estimator import Estimate

_MIN_SHARE = 0.25  # of a cause, below which the largest function is named in its place
_TRANSFORMS = (
    "Transforms between arrays and sticks take about {share:.0%} of it: keep ztensors on the "
    "accelerator from call to call, and transform weights once, to save them."
)
_SMALL = (
    "{small} below the break-even with the CPU: about {share:.0%} of it, saved by fewer and larger "
    "calls, such as larger batches."
)
_FIXED = (
    "Fixed costs of calls take about {share:.0%} of it: fewer and larger calls, such as larger "
    "batches, save it."
)
_PADDING = (
    "Padding takes about {share:.0%} of it: columns or channels fill sticks of 64 and rows pages "
    "of 32, so that fuller ones, such as larger batches, cost little more."
)
_ARITHMETIC = (
    "{function} takes about {share:.0%} of it, by its arithmetic: only smaller shapes or fewer "
    "calls change that."
)


def dominant(estimate: Estimate) -> str:
    """Return a sentence on the largest part of the time, "" for an estimate of no calls.

    Causes are transforms, calls below the break-even with the CPU, the fixed cost of calls, and
    padding; where all are small, the arithmetic of a function.
    """
    if not estimate.lines:
        return ""
    shares = estimate.shares
    causes = (
        (shares.transforms, _TRANSFORMS),
        (shares.small, _SMALL),
        (shares.fixed, _FIXED),
        (shares.padding, _PADDING),
    )
    share, text = max(causes, key=lambda cause: cause[0])
    if share < _MIN_SHARE:
        share, text = shares.of_largest, _ARITHMETIC
    small = counted(len(estimate.small), "call")
    return text.format(share=share, small=small, function=shares.largest)
