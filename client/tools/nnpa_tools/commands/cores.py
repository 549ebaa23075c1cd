# SPDX-License-Identifier: Apache-2.0
"""The options `--jobs N|auto` and `--ray ADDRESS` of commands that do independent work."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from nnpa_tools.commands.terminal import echo
from nnpa_tools.jobs import Cluster

_MAX_JOBS = 1024


def jobs_option(help_text: str) -> Callable[..., Any]:
    """Return the option --jobs: a number, 0 for auto, None by default."""
    return click.option("--jobs", callback=_jobs, metavar="N|auto", help=help_text)


def ray_option(what: str) -> Callable[..., Any]:
    """Return the option --ray; `what` begins its help: the work that the cluster does."""
    text = f"{what}: host:port, from elsewhere ray://host:port; extra ray."
    return click.option("--ray", metavar="ADDRESS", help=text)


def cluster_at(ray: str, jobs: int | None, target: str | None) -> Cluster:
    """Return a cluster, whose workers have their own servers; refuse a target beside it."""
    if target is not None:
        text = "each worker has its own server, --target names one server; give one of the two"
        raise click.UsageError(f"--ray: {text}")
    return Cluster(ray, jobs)


def tell_lost(lost: Sequence[str]) -> None:
    """Print on standard error which parts a report lacks."""
    for text in lost:
        echo(f"Incomplete: {text}.", err=True)


def cores(jobs: int | None) -> int:
    """Return the number of jobs: of `--jobs`, or one for each core."""
    return jobs or len(os.sched_getaffinity(0))


def _jobs(_context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return a number of jobs, 0 for auto."""
    if text is None:
        return None
    if text == "auto":
        return 0
    if not text.isdecimal() or not 0 < int(text) <= _MAX_JOBS:
        message = f"{text!r}, expected auto or 1 to {_MAX_JOBS}"
        raise click.BadParameter(message, param=parameter)
    return int(text)
