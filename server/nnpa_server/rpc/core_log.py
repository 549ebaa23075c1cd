# SPDX-License-Identifier: Apache-2.0
"""Turn the lines that gRPC's core writes to stderr into log records.

Only the core knows of refused TLS handshakes. It writes to stderr itself, and all its calls wait
while the reader of a pipe is slow; the log drops lines instead.
Source of the lines' form: Abseil logging library, "log line prefix".
"""

import logging
import os
import re
import stat
import threading
from collections.abc import Callable

_log = logging.getLogger("nnpa.grpc")
_LINE = re.compile(r"([IWEF])\d{4} \S+ +\d+ (\S+)\] (.*)")
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_HANDSHAKE = "Handshake failed"
REASON = "TLS_HANDSHAKE_FAILED"


def may_block() -> bool:
    """Return True if writes to stderr may block: all but writes to a regular file may."""
    try:
        return not stat.S_ISREG(os.fstat(2).st_mode)
    except OSError:  # closed
        return False


def follow(refused: Callable[[str], None]) -> None:
    """Redirect file descriptor 2, from now on, to records of the logger nnpa.grpc.

    `refused` is called with REASON for each TLS handshake that failed, by a certificate of another
    CA, a missing certificate, or a client without TLS.
    """
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)

    def read() -> None:
        with os.fdopen(reading, errors="backslashreplace") as lines:
            for line in lines:
                _tell(line.rstrip("\n"), refused)

    threading.Thread(target=read, name="core-log", daemon=True).start()


def _tell(line: str, refused: Callable[[str], None]) -> None:
    match = _LINE.fullmatch(line)
    level, text = (_LEVELS[match[1]], f"{match[2]} {match[3]}") if match else (logging.INFO, line)
    if match is not None and match[3].startswith(_HANDSHAKE):
        refused(REASON)
    _log.log(level, "%s", text)
