# SPDX-License-Identifier: Apache-2.0
"""How far a long command is, on the standard error: a bar, or a line now and then."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nnpa_tools.commands.terminal import Terminal, echo

_QUIET_SECONDS = 10.0  # between lines where there is no terminal


@contextmanager
def shown_progress(what: str) -> Generator[Callable[[int, int], None]]:
    """Show how many of how many are done, and the time left; `what` names them."""
    console = Terminal(stderr=True)
    if not console.is_terminal:
        yield _Lines(what)
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


class _Lines:
    """Writes a line of progress every ten seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = self._told = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        """Say how far it is, unless a line came just now."""
        now = time.monotonic()
        if now - self._told < _QUIET_SECONDS or done == of:
            return
        self._told = now
        left = (now - self._began) / done * (of - done)
        echo(f"{done:,} of {of:,} {self._what}, {left:,.0f} s left", err=True)
