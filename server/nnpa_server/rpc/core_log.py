# SPDX-License-Identifier: Apache-2.0
"""What gRPC's core writes to stderr, as log records: it knows of refused TLS handshakes, we do not.

Source of the lines' form: Abseil logging library, "log line prefix".
"""

import logging
import os
import re
import sys
import threading
from collections.abc import Callable

_log = logging.getLogger("nnpa.grpc")
_LINE = re.compile(r"([IWEF])\d{4} \S+ +\d+ (\S+)\] (.*)")
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_HANDSHAKE = "Handshake failed"
REASON = "TLS_HANDSHAKE_FAILED"


def follow(refused: Callable[[str], None]) -> None:
    """Have what libraries write to file 2 come as records of nnpa.grpc, from here to the end.

    Python's stderr and the log's handlers go on to where file 2 went. `refused` is called with each
    TLS handshake that failed: a certificate of another CA, or none, or no TLS.
    """
    kept = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(kept)
    sys.stderr = kept

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
