# SPDX-License-Identifier: Apache-2.0
"""The failures of workers' jobs."""

from enum import StrEnum


class Why(StrEnum):
    """The kind of a job's failure."""

    MEMORY = "memory"
    TIME = "time"
    PROTOCOL = "protocol"
    ENDED = "ended"
    RAISED = "raised"
    START = "start"


class WorkerFailed(Exception):
    """A job has no answer. The worker has ended, unless `why` is RAISED."""

    def __init__(self, why: Why, text: str) -> None:
        self.why, self.text = why, text
        super().__init__(f"{why}: {text}")
