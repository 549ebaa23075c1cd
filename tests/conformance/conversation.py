# SPDX-License-Identifier: Apache-2.0
"""Talking to a testee: frames of length and JSON, with a deadline."""

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.vector_runner import Json

ANSWER_SECONDS = 60.0
GOODBYE_SECONDS = 20.0
LONGEST_FRAME = 1 << 28
_HEADER = 4
_TOLD = 2000


class BrokenProtocolError(Exception):
    """The testee broke the protocol: it ended, took too long, or said what is no frame."""


class Conversation:
    """A testee, started when it is first asked, and anew after it broke the protocol.

    Use as a context manager; leaving it checks that the testee ends with 0.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self._command, self._log = command, log
        self._variables = {**os.environ, **variables}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        code = self._end()
        if kind is None and code:
            raise BrokenProtocolError(f"ended with {code}: {self._said()}")

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._variables,
            )
        return self._process

    def _end(self) -> int:
        """Close the testee's input, wait for its end, and return its code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            return process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BrokenProtocolError(f"still runs after {GOODBYE_SECONDS:g} s") from error
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def ask(self, request: Json) -> dict[str, Any]:
        """Send one frame and return the answer's JSON; BrokenProtocolError if there is none."""
        process = self._process or self._start()
        try:
            return self._exchange(process, request)
        except (BrokenPipeError, ValueError, BrokenProtocolError) as error:
            process.kill()
            self._end()
            raise BrokenProtocolError(f"{error}: {self._said()}") from error

    def _exchange(self, process: "subprocess.Popen[bytes]", request: Json) -> dict[str, Any]:
        raw = json.dumps(request, allow_nan=False).encode()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(len(raw).to_bytes(_HEADER, "little") + raw)
        process.stdin.flush()
        source, deadline = process.stdout.fileno(), time.monotonic() + ANSWER_SECONDS
        size = int.from_bytes(_read(source, _HEADER, deadline), "little")
        if size > LONGEST_FRAME:
            raise BrokenProtocolError(f"frame: {size} bytes, at most {LONGEST_FRAME}")
        answer = json.loads(_read(source, size, deadline))
        if not isinstance(answer, dict):
            raise BrokenProtocolError(f"answer: {type(answer).__name__}, expected an object")
        return answer

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_TOLD:] if self._log.exists() else ""


def _read(source: int, size: int, deadline: float) -> bytes:
    """Return exactly `size` bytes of a pipe; `deadline` is in seconds of the monotonic clock."""
    parts, missing = list[bytes](), size
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while missing:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise BrokenProtocolError(f"no answer within {ANSWER_SECONDS:g} s")
            part = os.read(source, min(missing, 1 << 20))
            if not part:
                raise BrokenProtocolError("ended")
            parts.append(part)
            missing -= len(part)
    return b"".join(parts)
