# SPDX-License-Identifier: Apache-2.0
"""A worker with a fork server of its own."""

from collections.abc import Mapping

from nnpa_server.sandbox.fork_server import ForkServer
from nnpa_server.sandbox.process import WorkerProcess, go_on


class Forked(WorkerProcess):
    """A worker of one program, which takes its fork server along when it ends."""

    def __init__(self, program: str, environment: Mapping[str, str] | None = None) -> None:
        self.fork_server = ForkServer(program, environment or {})
        self.fork_server.wait_ready(200, go_on)
        super().__init__(self.fork_server)
        self.wait_ready(60)

    def end(self) -> None:
        """End the worker and its fork server."""
        self.close()
        self.fork_server.close()
