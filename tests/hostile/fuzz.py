# SPDX-License-Identifier: Apache-2.0
"""Fuzz a server: mutated calls of every method beside a bystander, judged by what is documented."""

import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.hostile import corpus, state
from tests.hostile.bystander import BystanderProcess
from tests.hostile.calls import Answer
from tests.hostile.corpus import Case
from tests.hostile.fixture import Fixture, FixtureError
from tests.hostile.gauges import MIB, Gauges, MemorySampler, wait_until_quiet
from tests.hostile.methods import fault_of, is_past_session, methods
from tests.hostile.target import Server

FLAGS = ("--max-sessions", "32", "--max-session-bytes", "64MiB", "--max-models", "16",
         "--max-message", "8MiB", "--idle-timeout", "60s", "--shared-memory")  # fmt: skip
QUOTAS = 32 * 64 * MIB
SPARE = 512 * MIB
REST_EVERY = 5000
TURNS_BETWEEN_RESTS = 120
OVERTIME = 3
REST_SECONDS, QUIET_TIMEOUT = 7.0, 60.0
FLAT_AFTER = 100_000
MAX_GROWTH = 1.05
MAX_MORE = {"threads": 112, "descriptors": 48, "shared": 0}
"""What a server at rest may have more than at first: its pools fill up, and a worker waits."""
MAX_FINDINGS = 50
TRACEBACK = re.compile(rb"^Traceback ", re.MULTILINE)


@dataclass(frozen=True)
class Bounds:
    """When a run ends: after seconds or messages, and else when each method has its calls.

    On a busy machine it has `OVERTIME` times the seconds for them.

    0 is no bound. Calls that a method lacks in the end are a failure.
    """

    seconds: float = 0.0
    messages: int = 0
    calls: int = 0


@dataclass
class MethodCount:
    """The calls of one method: sent, past the check of the session, OK; the longest seconds."""

    sent: int = 0
    past: int = 0
    ok: int = 0
    longest: float = 0.0


@dataclass
class Finding:
    """A fault and the case that showed it; `smallest` is its smallest case, a file or bytes."""

    text: str
    method: str
    origin: str
    count: int = 1
    smallest: str = ""

    @property
    def kind(self) -> tuple[str, str]:
        """The method and the text without numbers and names, equal for findings of one kind."""
        return re.sub(r"\[.*?\]|[0-9a-f]{6,}|\d+", "#", self.text), self.method


@dataclass
class Progress:
    """The progress of a run, as its file of state keeps it."""

    seed: int
    next: int = 0
    seconds: float = 0.0
    methods: dict[str, MethodCount] = field(default_factory=dict[str, MethodCount])
    codes: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[Finding] = field(default_factory=list[Finding])
    rests: list[dict[str, int]] = field(default_factory=list[dict[str, int]])

    def to_json(self) -> str:
        """Return the progress as a file of state."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def load(cls, path: Path | None, seed: int) -> "Progress":
        """Go on with the run of a file of state, or begin one."""
        kept = state.load(path)
        if not kept:
            return cls(seed)
        if kept["seed"] != seed:
            raise SystemExit(f"{path} is a run of seed {kept['seed']}")
        kept["methods"] = {name: MethodCount(**count) for name, count in kept["methods"].items()}
        kept["findings"] = [Finding(**finding) for finding in kept["findings"]]
        return cls(**kept)


class Fuzzer:
    """Sends the cases of a seed to one server from several threads."""

    def __init__(
        self,
        executable: Path,
        progress: Progress,
        bounds: Bounds,
        *,
        threads: int = 4,
        state_file: Path | None = None,
        findings: Path | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.executable, self.progress, self.bounds = executable, progress, bounds
        self.threads, self.state_file, self.findings = threads, state_file, findings
        self.flags = (*FLAGS, *flags)
        self.server: Server
        self._lock = threading.Lock()
        self._log_read = 0
        self._first_rest = len(progress.rests)

    def run(self) -> None:
        """Fuzz until the bounds; findings go into the progress."""
        if self.is_over():
            return
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-fuzz-")))
            self.server = server = stack.enter_context(Server(self.executable, folder, *self.flags))
            wait_until_quiet(server.pid, QUIET_TIMEOUT, share=0.5)
            bystander = BystanderProcess(server.address)
            stack.callback(bystander.kill)
            fixtures = [
                Fixture(f"unix:{server.socket}" if number % 2 else server.address, server.socket)
                for number in range(self.threads)
            ]
            for fixture in fixtures:
                stack.callback(fixture.close)
            self._fuzz(fixtures, bystander)

    def _fuzz(self, fixtures: list[Fixture], bystander: BystanderProcess) -> None:
        self._rest(fixtures)
        for kept in corpus.kept_cases():
            self._send(kept, fixtures[0])
        begin, before = time.monotonic(), self.progress.seconds
        bystander.enter("attack")
        with MemorySampler(self.server.pid) as sampler:
            while self.server.is_alive() and not self.is_over():
                self._send_some(fixtures)
                self._rest(fixtures)
                self.progress.seconds = before + time.monotonic() - begin
                self._save()
        if not self.server.is_alive():
            self._note("the server ended", "", str(self.progress.next))
        for text in bystander.end()["attack"].complaints():
            self._note(text, "", str(self.progress.next))
        limit = self.progress.rests[self._first_rest]["memory"] + QUOTAS + SPARE
        if sampler.peak > limit:
            self._note(f"memory above {limit // MIB} MiB", "", str(self.progress.next))
        self._judge_rests()
        self._save()

    def is_over(self) -> bool:
        """Tell whether the bounds are reached."""
        bounds, progress = self.bounds, self.progress
        if bounds.seconds or bounds.messages:
            is_late = bool(bounds.seconds) and progress.seconds >= self._seconds()
            return is_late or (bool(bounds.messages) and progress.next >= bounds.messages)
        return not self.lacking()

    def _seconds(self) -> float:
        """Return how long the run may take: longer while methods lack calls."""
        return self.bounds.seconds * (OVERTIME if self.lacking() else 1)

    def lacking(self) -> list[str]:
        """Return the methods that have not their calls yet."""
        return list(filter(self._lacks, methods()))

    def _lacks(self, path: str) -> bool:
        count = self.progress.methods.get(path, MethodCount())
        return count.past < self.bounds.calls

    def _send_some(self, fixtures: list[Fixture]) -> None:
        """Send cases from all threads until it is time to rest, or the end."""
        until = self.progress.next + REST_EVERY
        if self.bounds.messages:
            until = min(until, self.bounds.messages)
        if self.bounds.calls:
            until = min(until, self.progress.next + TURNS_BETWEEN_RESTS * len(methods()))
        deadline = time.monotonic() + (self._seconds() - self.progress.seconds)

        def work(fixture: Fixture) -> None:
            while self.server.is_alive():
                if self.bounds.seconds and time.monotonic() > deadline:
                    return
                if (number := self._next(until)) is None:
                    return
                self._send(corpus.case(self.progress.seed, number), fixture)

        threads = [threading.Thread(target=work, args=(fixture,)) for fixture in fixtures]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _next(self, until: int) -> int | None:
        """Take the next case, of a method that lacks calls if one does; None when it is over."""
        progress = self.progress
        with self._lock:
            lacking = self.lacking()
            for number in range(progress.next, until):
                progress.next = number + 1
                if not lacking or corpus.path_of(progress.seed, number) in lacking:
                    return number
        return None

    def _send(self, case: Case, fixture: Fixture) -> None:
        """Send one case, count it, and note what it broke."""
        try:
            answer = fixture.send(case.path, case.messages)
        except FixtureError as error:
            self._note_lost(error, case)
            return
        self._count(case.path, answer)
        fault = fault_of(case.path, answer)
        if fault and self.server.is_alive():
            self._note(fault, case.path, case.origin, lambda: self._smallest(case, fault, fixture))

    def _note_lost(self, error: FixtureError, case: Case) -> None:
        """Note that a valid call failed, unless there is no server any more."""
        if self.server.is_alive():
            self._note(f"a valid call failed: {error}", case.path, case.origin)

    def _smallest(self, case: Case, text: str, fixture: Fixture) -> str:
        """Make a case as small as it can be; return where it is kept, or its bytes."""

        def breaks(smaller: Case) -> bool:
            with suppress(FixtureError):
                return bool(fault_of(case.path, fixture.send(smaller.path, smaller.messages)))
            return False

        smallest = corpus.minimise(case, breaks)
        if self.findings is None:
            return " ".join(message.hex() for message in smallest.messages)[:400]
        return str(corpus.keep(smallest, text, self.findings))

    def _count(self, path: str, answer: Answer) -> None:
        with self._lock:
            count = self.progress.methods.setdefault(path, MethodCount())
            count.sent += 1
            count.past += is_past_session(path, answer)
            count.ok += answer.is_ok
            count.longest = round(max(count.longest, answer.seconds), 3)
            codes = self.progress.codes
            codes[answer.name] = codes.get(answer.name, 0) + 1

    def _note(self, text: str, method: str, origin: str, smallest: Callable[[], str] = str) -> None:
        """Note a finding; one that differs in numbers alone is the same."""
        finding = Finding(text[:300], method, origin)
        with self._lock:
            for earlier in self.progress.findings:
                if earlier.kind == finding.kind:
                    earlier.count += 1
                    return
            if len(self.progress.findings) >= MAX_FINDINGS:
                return
            self.progress.findings.append(finding)
        finding.smallest = smallest()

    def _rest(self, fixtures: list[Fixture]) -> None:
        """Let the server rest without sessions of ours, and read its gauges."""
        for fixture in fixtures:
            fixture.drop()
        time.sleep(REST_SECONDS)
        self.progress.rests.append(
            {"messages": self.progress.next, **Gauges.read(self.server.pid).to_json()}
        )
        self._read_log()
        for fixture in fixtures:
            try:
                fixture.renew()
            except FixtureError as error:
                self._note_lost(error, Case("", (), str(self.progress.next)))

    def _read_log(self) -> None:
        with self.server.log.open("rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        for traceback in TRACEBACK.split(text)[1:]:
            lines = [line for line in traceback.splitlines() if line and not line.startswith(b" ")]
            last = lines[1] if len(lines) > 1 else b""
            self._note(f"a traceback in the log: {last[:150]!r}", "", str(self.progress.next))

    def _judge_rests(self) -> None:
        """Compare the server's gauges at rest with the first ones."""
        rests = self.progress.rests[self._first_rest :]
        first, last = rests[0], rests[-1]
        for gauge, most in MAX_MORE.items():
            if last[gauge] > first[gauge] + most:
                self._note(f"{gauge} at rest: {first[gauge]}, then {last[gauge]}", "", "")
        flat_from = first["messages"] + FLAT_AFTER
        early = [rest["memory"] for rest in rests if rest["messages"] <= flat_from]
        late = [rest["memory"] for rest in rests if rest["messages"] > flat_from]
        if late and late[-1] > MAX_GROWTH * max(early):
            self._note(f"memory at rest: {max(early)}, then {late[-1]}", "", "")

    def _save(self) -> None:
        if self.state_file is not None:
            state.save(self.state_file, self.progress.to_json())


@dataclass(frozen=True)
class End:
    """How a case ended that was sent alone."""

    case: Case
    name: str
    fault: str
    is_past: bool

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.case.origin}: {self.case.path}: {self.fault or self.name}"


def replay(executable: Path, cases: Iterator[Case], flags: tuple[str, ...] = ()) -> list[End]:
    """Send cases to a fresh server, one after the other; return how each ended."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-fuzz-")))
        server = stack.enter_context(Server(executable, folder, *FLAGS, *flags))
        fixture = Fixture(server.address, server.socket)
        stack.callback(fixture.close)
        ends: list[End] = []
        for case in cases:
            answer = fixture.send(case.path, case.messages)
            is_past = is_past_session(case.path, answer)
            ends.append(End(case, answer.name, fault_of(case.path, answer), is_past))
        return ends
