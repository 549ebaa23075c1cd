# SPDX-License-Identifier: Apache-2.0
"""Interruption of long operations, at places that depend on shapes only: bits stay as they are.

Whoever runs operations in a thread sets its check; operations call `go_on` between blocks, and the
check raises what is to end them. What an interrupted operation has written to its output stays.
"""

import threading
from collections.abc import Callable
from functools import partial


class _Thread(threading.local):
    check: Callable[[], object] | None = None


_thread = _Thread()


set_check: Callable[[Callable[[], object] | None], None] = partial(setattr, _thread, "check")
"""Set the function that operations of this thread call between blocks; None removes it."""


def go_on() -> None:
    """Go on with an operation, unless this thread's check raises."""
    check = _thread.check
    if check is not None:
        check()
