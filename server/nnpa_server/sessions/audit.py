# SPDX-License-Identifier: Apache-2.0
"""The audit log: a line when a session begins and one when it ends, of the logger nnpa.audit."""

import logging
import time
from dataclasses import dataclass, field

from nnpa_server.logs import Facts, as_text

_log = logging.getLogger("nnpa.audit")


@dataclass(slots=True)
class Trail:
    """The facts of a session for the audit log.

    `token` is the holder's name, `peer` the client's address. `operations` counts the session's
    operations and the calls of its networks; `most_bytes` is the peak size of its tensors.
    """

    token: str = ""
    peer: str = "-"
    machine: str = "-"
    calls: int = 0
    operations: int = 0
    most_bytes: int = 0
    began: float = field(default_factory=time.monotonic)


def created(tag: str, trail: Trail) -> None:
    """Log that a session began."""
    _tell({"event": "session_created", **_who(tag, trail)})


def ended(tag: str, trail: Trail, why: str) -> None:
    """Log that a session ended, and why: "deleted", "idle", "lease" or "shutdown"."""
    counts = {
        "why": why,
        "seconds": round(time.monotonic() - trail.began, 3),
        "calls": trail.calls,
        "operations": trail.operations,
        "most_bytes": trail.most_bytes,
    }
    _tell({"event": "session_ended", **_who(tag, trail), **counts})


def model_changed(event: str, model: str, token: str) -> None:
    """Log that a caller changed a model; `event` is "model_published" or "model_unloaded"."""
    _tell({"event": event, "model": model, "token": token or "-"})


def _who(tag: str, trail: Trail) -> Facts:
    return {
        "session": tag,
        "token": trail.token or "-",
        "peer": trail.peer,
        "machine": trail.machine,
    }


def _tell(facts: Facts) -> None:
    _log.info("%s", as_text(facts), extra={"facts": facts})
