# SPDX-License-Identifier: Apache-2.0
"""Close at the end of the program what it has left open."""

import atexit
import os
import sys
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """What holds something elsewhere until it is closed."""

    def close(self) -> None:
        """Close it; may be repeated."""
        ...


_left_open: WeakSet[Closable] = WeakSet()
if sys.platform != "win32":  # which has no fork
    os.register_at_fork(after_in_child=_left_open.clear)  # they are the parent's


def close_at_exit(resource: Closable) -> None:
    """Close a resource, if it is still there and open, when the interpreter ends."""
    _left_open.add(resource)


@atexit.register
def _close() -> None:
    for resource in tuple(_left_open):
        resource.close()
