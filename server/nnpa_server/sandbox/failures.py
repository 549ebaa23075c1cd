# SPDX-License-Identifier: Apache-2.0
"""How jobs of workers fail.

WorkerFailed   a job that its worker did not answer; `why` says how that came
"""

from enum import StrEnum


class Why(StrEnum):
    """How a job failed."""

    MEMORY = "memory"
    TIME = "time"
    PROTOCOL = "protocol"
    ENDED = "ended"
    RAISED = "raised"
    START = "start"


class WorkerFailed(Exception):
    """A job without an answer; the worker has ended, except where its program raised."""

    def __init__(self, why: Why, text: str) -> None:
        self.why, self.text = why, text
        super().__init__(f"{why}: {text}")
