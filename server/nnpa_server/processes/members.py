# SPDX-License-Identifier: Apache-2.0
"""Start and watch the server processes behind the router; restart those that die."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nnpa_server.config import Config, config_to_json

_log = logging.getLogger("nnpa.server")
_METRICS = "nnpa-server metrics on "
_RESTART_SECONDS = 1.0  # from the start of a process that died to the next one


class Member:
    """A server process with its configuration; `metrics` is the address of its metrics."""

    def __init__(self, number: int, config: Config, log_level: str) -> None:
        self.number = number
        self.config = config
        self.metrics = ""
        self._log_level = log_level
        self._ready = threading.Event()
        self._start()

    def _start(self) -> None:
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nnpa_server.processes.member", self._log_level],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # of one that has ended already
            self.process.stdin.write(config_to_json(self.config).encode() + b"\n")
            self.process.stdin.flush()
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        """Read the lines of the listeners, until the process ends."""
        expected = 1 + bool(self.config.health_listen) + bool(self.config.metrics)
        assert process.stdout is not None
        for count, line in enumerate(process.stdout, 1):
            text = line.decode()
            if text.startswith(_METRICS):
                self.metrics = text.removeprefix(_METRICS).strip()
            if count == expected:
                self._ready.set()
        self._ready.set()

    def is_ready(self) -> bool:
        """Wait until the process serves; return False if it has ended instead."""
        self._ready.wait()
        return self.process.poll() is None

    def start_again(self) -> bool:
        """Restart the process if it has died, after a pause if it died soon."""
        if self.process.poll() is None or time.monotonic() < self.started + _RESTART_SECONDS:
            return False
        text = "process %d ended with code %d: its sessions are lost, it is started again"
        _log.error(text, self.number, self.process.returncode)
        self._start()
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process if it runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)


def quota_socket(folder: Path) -> str:
    """Return the socket in `folder` at which processes count sessions."""
    return f"{folder}/quota"


def member_config(config: Config, number: int, folder: Path) -> Config:
    """Return the configuration of a process behind the router.

    Its sockets lie in `folder`, except those beside a Unix socket for clients, which reach plain
    sockets without the router.
    """
    beside = next((address for address in config.listen if address.startswith("unix:")), "")
    suffix = f".{number}"
    return replace(
        config,
        listen=(f"{beside}{suffix}" if beside else f"unix:{folder}/main{suffix}",),
        health_listen=f"unix:{folder}/health{suffix}" if config.health_listen else "",
        metrics="127.0.0.1:0" if config.metrics else "",
        reflection="on" if config.offers_reflection else "off",
        tls=None,
        no_model_control=True,
        exit_with_parent=True,
        processes=1,
        socket_suffix=suffix,
        quota=quota_socket(folder),
    )


def end(members: Sequence[Member], number: int = signal.SIGTERM) -> None:
    """Send a signal to every process."""
    for member in members:
        member.signal(number)
