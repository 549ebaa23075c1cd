# SPDX-License-Identifier: Apache-2.0
"""A pipe in place of a file of data: whoever reads it waits, so that tests know who has what."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

Action = Callable[[], None]


class Gate:
    """A pipe in place of a file: its first readers wait for an action each, later ones read it."""

    def __init__(self, path: Path, actions: Iterable[Action]) -> None:
        self._path, self._contents, self._actions = path, path.read_bytes(), list(actions)
        self.acted, self._over = 0, False
        self._failures: list[Exception] = []
        path.unlink()
        os.mkfifo(path)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            with self._path.open("wb", buffering=0) as pipe:  # waits for a reader
                if self._over:
                    return
                if self.acted < len(self._actions):
                    self._act()
                try:
                    pipe.write(self._contents)
                except BrokenPipeError:  # the action has ended the reader
                    continue

    def _act(self) -> None:
        try:
            self._actions[self.acted]()
        except Exception as error:  # readers go on, so that the test ends, and tells it
            self._failures.append(error)
        self.acted += 1

    def close(self) -> None:
        """Put the file back; raise what an action has raised."""
        self._over = True
        with self._path.open("rb"):
            self._thread.join()
        self._path.unlink()
        self._path.write_bytes(self._contents)
        if self._failures:
            raise self._failures[0]


def readers(path: Path, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that have a file open."""
    return [process for process in processes if path in set(_open_files(process.pid))]


def _open_files(pid: int) -> Iterator[Path]:
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # the process has ended
        return
    for link in links:
        try:
            yield link.readlink()
        except OSError:  # closed since
            continue
