# SPDX-License-Identifier: Apache-2.0
"""A container of nnpa-server for tests, by Testcontainers; takes the extra `testcontainers`.

    with NnpaContainer() as container, container.connect(machine="telum1") as session:
        a = session.ztensor(np.ones((2, 3), np.float32))

Build the image from deploy/Dockerfile before, under the name nnpa; `NnpaContainer("my/nnpa:1")`
uses another image.
"""

from typing import Any

from nnpa_wire.installation import pip_install

try:
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy
except ModuleNotFoundError as error:
    text = f"NnpaContainer needs testcontainers: {pip_install('testcontainers')}"
    raise ModuleNotFoundError(text, name=error.name) from error

from nnpa_client.connection import connect
from nnpa_client.session import Session

__all__ = ["PORT", "NnpaContainer"]

PORT = 50051
_CONFINED = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
_READY = r"^nnpa-server listening on "


class NnpaContainer(DockerContainer):
    """nnpa-server in a container, without privileges, its root read-only; ready when started.

    `flags` are further flags of nnpa-server, such as "--max-sessions", "8". Other keywords as in
    `DockerContainer`.
    """

    def __init__(self, image: str = "nnpa", *flags: str, **options: Any) -> None:
        merged: dict[str, Any] = {**_CONFINED, **options}
        try:
            super().__init__(image, **merged)
        except DockerException as error:
            advice = "Start Docker, or set DOCKER_HOST to an engine that this user may use."
            raise DockerException(f"no Docker engine answers: {error}. {advice}") from None
        self.with_exposed_ports(PORT)
        self.with_command(["--listen", f"0.0.0.0:{PORT}", "--insecure", *flags])
        self.waiting_for(LogMessageWaitStrategy(_READY))

    @property
    def target(self) -> str:
        """The server's address as this process reaches it, host:port."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}"

    def connect(self, **options: Any) -> Session:
        """Open a session in this container; options as in `nnpa_client.connect`."""
        return connect(self.target, **options)

    def environment(self) -> dict[str, str]:
        """Return the environment variables by which a C program finds this server."""
        return {"ZDNN_SERVER": self.target}
