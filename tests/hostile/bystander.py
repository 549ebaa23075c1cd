# SPDX-License-Identifier: Apache-2.0
"""A harmless client in a process of its own, which notices when others harm it.

It runs lists with known answers in one session, compares bits, asks for health, and now and then
comes over a new connection. Its standard input names the phase that follows ("idle", "attack");
"end" has it print what it saw in each.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.hostile import known_answers
from tests.hostile.calls import OPTIONS, Caller, read_error

TIMEOUT = 5.0
MAX_SECONDS = 2.0
PAUSE = 0.03
HEALTH_EVERY, NEW_CONNECTION_EVERY = 10, 20
MAX_FAILURES = 5
WARM = "warm"
END_TIMEOUT = 30.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Phase:
    """Observations of a phase: the seconds of each call, and the failures."""

    seconds: list[float] = field(default_factory=list[float])
    failures: list[str] = field(default_factory=list[str])
    failed: int = 0

    def fail(self, text: str) -> None:
        """Count a failure; the first ones are kept."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(text[:300])

    def quantile(self, share: float) -> float:
        """Return the seconds that a share of the calls does not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def longest(self) -> float:
        """The seconds of the longest call."""
        return max(self.seconds, default=0.0)

    def complaints(self) -> list[str]:
        """Return the failures, and the times beyond a bystander's limits."""
        texts = [f"bystander: {text}" for text in self.failures]
        if self.longest > MAX_SECONDS:
            texts.append(f"bystander: a call took {self.longest:.1f} s")
        if not self.seconds and not self.failures:
            texts.append("bystander: no call ended")
        return texts


class _Bystander:
    def __init__(self, address: str, token: str, health: str) -> None:
        self.address, self.token, self.health = address, token, health or address
        self.caller = Caller(address, token)
        self.session = self.caller.session()
        self.phases: dict[str, Phase] = {}
        self.enter(WARM)

    def enter(self, name: str) -> None:
        self.phase = self.phases.setdefault(name, Phase())

    def turn(self, number: int) -> None:
        """Run a list, perhaps over a new connection, and perhaps ask for health."""
        if number % NEW_CONNECTION_EVERY == 0:
            guest = Caller(self.address, self.token)
            self.run(number, guest)
            guest.close()
        else:
            self.run(number, self.caller)
        if number % HEALTH_EVERY == 0:
            self.ask_for_health()

    def run(self, number: int, caller: Caller) -> None:
        phase, stub = self.phase, AcceleratorServiceStub(caller.channel)

        def execute(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
            begin = time.monotonic()
            try:
                response: pb.ExecuteResponse = stub.Execute(
                    request, timeout=TIMEOUT, metadata=caller.metadata
                )
            finally:
                phase.seconds.append(time.monotonic() - begin)
            return response

        try:
            known_answers.check(number, self.session, execute)
        except grpc.RpcError as error:
            answer = read_error(error)
            phase.fail(f"list {number}: {answer.name}: {answer.details}")
        except known_answers.WrongAnswerError as error:
            phase.fail(f"wrong answer: {error}")

    def ask_for_health(self) -> None:
        """Ask over a new connection, as probes do."""
        phase, begin = self.phase, time.monotonic()
        with grpc.insecure_channel(self.health, OPTIONS) as channel:
            try:
                stub = health_pb2_grpc.HealthStub(channel)
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT)
                if answer.status != health_pb2.HealthCheckResponse.SERVING:
                    phase.fail(f"health: {answer.status}")
            except grpc.RpcError as error:
                phase.fail(f"health: {read_error(error).name}")
        phase.seconds.append(time.monotonic() - begin)


def _listen(bystander: _Bystander, ended: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "end":
            break
        bystander.enter(line.strip())
    ended.set()


def main(settings: Mapping[str, str]) -> None:
    """Run lists until standard input says that it is the end."""
    bystander = _Bystander(settings["address"], settings["token"], settings["health"])
    for number in range(known_answers.LISTS):
        bystander.turn(number)
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=_listen, args=(bystander, ended), daemon=True).start()
    number = 0
    while not ended.wait(PAUSE):
        bystander.turn(number)
        number += 1
    print(json.dumps({name: asdict(phase) for name, phase in bystander.phases.items()}))


class BystanderProcess:
    """The bystander as its starter sees it."""

    def __init__(self, address: str, token: str = "", health: str = "") -> None:
        settings = json.dumps({"address": address, "token": token, "health": health})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.bystander", settings],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self.kill()
            raise RuntimeError("the bystander did not start")

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{phase}\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Phase]:
        """End it; return what it saw, by phase."""
        printed, _ = self._process.communicate("end\n", timeout=END_TIMEOUT)
        seen: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return {name: Phase(**phase) for name, phase in seen.items()}

    def kill(self) -> None:
        """End it without a word."""
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
