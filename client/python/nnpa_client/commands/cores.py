# SPDX-License-Identifier: Apache-2.0
"""The option `--jobs N|auto` of commands that do independent work."""

import os
from collections.abc import Callable
from typing import Any

import click

_MAX_JOBS = 1024


def jobs_option(help_text: str, default: str | None = None) -> Callable[..., Any]:
    """Return the option: a number, or None for auto, which is one for each core."""
    return click.option("--jobs", callback=_jobs, metavar="N|auto", default=default, help=help_text)


def cores(jobs: int | None) -> int:
    """Return how many jobs `--jobs` means: None is one for each core of this process."""
    return jobs or len(os.sched_getaffinity(0))


def _jobs(_context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return a number of jobs; None is one for each core."""
    if text is None or text == "auto":
        return None
    if not text.isdecimal() or not 0 < int(text) <= _MAX_JOBS:
        message = f"{text!r}, expected auto or 1 to {_MAX_JOBS}"
        raise click.BadParameter(message, param=parameter)
    return int(text)
