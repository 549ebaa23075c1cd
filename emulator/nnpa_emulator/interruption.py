# SPDX-License-Identifier: Apache-2.0
"""Interruption of long operations, at places that depend on shapes only: bits stay as they are.

The caller of operations sets a check for its thread; operations call `go_on` between blocks, and
the check raises to end them. The output keeps the blocks that an interrupted operation has written.
"""

import threading
from collections.abc import Callable


class _Thread(threading.local):
    check: Callable[[], object] | None = None


thread = _Thread()
"""Operations of the present thread call its `check` between blocks, unless it is None."""


def go_on() -> None:
    """Go on with an operation, unless this thread's check raises."""
    check = thread.check
    if check is not None:
        check()
