# SPDX-License-Identifier: Apache-2.0
"""Close sessions that the program left open when the interpreter ends."""

import atexit
import os
import sys
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """An object that holds a resource of a server until it is closed."""

    def close(self) -> None:
        """Release the resource; may be repeated."""
        ...


_left_open: WeakSet[Closable] = WeakSet()
if sys.platform != "win32":  # which has no fork
    os.register_at_fork(after_in_child=_left_open.clear)  # they are the parent's


def close_at_exit(resource: Closable) -> None:
    """Have a resource closed when the interpreter ends, unless it was closed or dropped before."""
    _left_open.add(resource)


@atexit.register
def _close() -> None:
    for resource in tuple(_left_open):
        resource.close()
