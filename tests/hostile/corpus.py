# SPDX-License-Identifier: Apache-2.0
"""Cases: calls as bytes. Those of a seed, and those that once broke something, in `corpus/`."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.hostile.calls import INFERENCE, NETWORK
from tests.hostile.mutation import mutate
from tests.hostile.recorded_calls import recorded_calls

CORPUS = Path(__file__).parent / "corpus"
MAX_TRIES = 80
TURNS = {
    INFERENCE + "RepositoryModelLoad": 12,
    NETWORK + "CreateNetwork": 12,
    NETWORK + "ExportProgram": 6,
    NETWORK + "MeasureAccuracy": 6,
    NETWORK + "ProbeNetwork": 6,
}
"""Methods that are called every so many turns: most of their calls take a worker."""
Breaks = Callable[["Case"], bool]


@dataclass(frozen=True)
class Case:
    """A call: the method's path, the messages' bytes with placeholders, and where it comes from."""

    path: str
    messages: tuple[bytes, ...]
    origin: str

    def to_json(self, why: str) -> str:
        """Return the case as a file of the corpus."""
        messages = [message.hex() for message in self.messages]
        facts = {"method": self.path, "messages": messages, "origin": self.origin, "why": why}
        return json.dumps(facts, indent=1) + "\n"


def case(seed: int, number: int) -> Case:
    """Return a case by its number: methods take turns, the rest is drawn."""
    path, random = _draw(seed, number)
    recording = random.choice(recorded_calls()[path])
    return Case(path, mutate(random, recording), f"{seed}:{number}")


def path_of(seed: int, number: int) -> str:
    """Return the method of a case."""
    return _draw(seed, number)[0]


def _draw(seed: int, number: int) -> tuple[str, Random]:
    paths = list(recorded_calls())
    turn, at = divmod(number, len(paths))
    random = Random(f"{seed}:{number}")
    if turn % TURNS.get(paths[at], 1) == 0:
        return paths[at], random
    return random.choice([path for path in paths if path not in TURNS]), random


def kept_cases(folder: Path = CORPUS) -> Iterator[Case]:
    """Return the cases of the corpus, by the names of their files."""
    for file in sorted(folder.glob("*.json")):
        facts = json.loads(file.read_text(encoding="utf-8"))
        messages = tuple(map(bytes.fromhex, facts["messages"]))
        yield Case(facts["method"], messages, file.stem)


def keep(case: Case, why: str, folder: Path = CORPUS) -> Path:
    """Add a case to the corpus; return its file."""
    method = case.path.rpartition("/")[2].replace(" ", "-").lower()
    words = "-".join(re.findall(r"[a-z]+", why.lower())[:4])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{method}-{words}-{case.origin.replace(':', '-')}.json"
    file.write_text(case.to_json(why), encoding="utf-8")
    return file


def minimise(case: Case, breaks: Breaks) -> Case:
    """Return a smaller case that still breaks: messages and parts of them are left out."""
    tries = MAX_TRIES
    smallest = case
    is_smaller = True
    while is_smaller and tries > 0:
        is_smaller = False
        for smaller in _smaller(smallest):
            tries -= 1
            if breaks(smaller):
                smallest, is_smaller = smaller, True
                break
            if tries == 0:
                break
    return smallest


def _smaller(case: Case) -> Iterator[Case]:
    """Return cases with a message less, then with shorter messages, large cuts first."""
    messages = case.messages
    for at in range(len(messages)):
        yield Case(case.path, messages[:at] + messages[at + 1 :], case.origin)
    for at, message in enumerate(messages):
        size = len(message) // 2
        while size:
            for start in range(0, len(message) - size + 1, size):
                shorter = message[:start] + message[start + size :]
                yield Case(case.path, (*messages[:at], shorter, *messages[at + 1 :]), case.origin)
            size //= 2
