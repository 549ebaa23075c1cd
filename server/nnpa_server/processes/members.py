# SPDX-License-Identifier: Apache-2.0
"""The server processes behind the router: started, watched, started again when they die."""

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
    """A process at the sockets of its configuration; `metrics` is where it shows them."""

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
        """Wait until the process serves; tell whether it does, and has not ended instead."""
        self._ready.wait()
        return self.process.poll() is None

    def start_again(self) -> bool:
        """Start the process again if it has died, not at once if it dies at once."""
        if self.process.poll() is None or time.monotonic() < self.started + _RESTART_SECONDS:
            return False
        text = "process %d ended with code %d: its sessions are lost, it is started again"
        _log.error(text, self.number, self.process.returncode)
        self._start()
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)


def quota_socket(folder: Path) -> str:
    """Return the socket at which processes with sockets in `folder` count sessions."""
    return f"{folder}/quota"


def member_config(config: Config, number: int, folder: Path) -> Config:
    """Return the configuration of a process behind the router.

    Its sockets are in `folder`, but beside a Unix socket that clients use lie theirs: plain sockets
    are reached without the router.
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
