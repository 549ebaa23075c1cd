# SPDX-License-Identifier: Apache-2.0
"""Mutation check: draws faults at random, and reports the faults that the README's tests find.

    python -m tests.mutants --count 20 --seed 7 --json mutants.json
    python -m tests.mutants --count 20 --seed 7 --only 3 15 --tests "pytest -x -m heavy"

Each fault is one changed node of the arithmetic, of the server's decode and execute, or of the
client's verbs, in a scratch copy of the repository. A fault is killed if the tests fail or do not
end in time. The exit code is 1 if a fault survived, and 2 if the tests fail without one.
"""

import argparse
import json
import random
import secrets
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests import scratch_copy
from tests.mutants.sites import Mutation, mutations
from tests.mutants.trial import Trial, Verdict

ROOMS = (
    "emulator/nnpa_emulator/ops",
    "emulator/nnpa_emulator/reference",
    "emulator/nnpa_emulator/stick.py",
    "emulator/nnpa_emulator/ztensor.py",
    "server/nnpa_server/accelerator/decode.py",
    "server/nnpa_server/accelerator/execute.py",
    "client/python/nnpa_client/_guest/verb.py",
    "client/python/nnpa_client/zdnn",
)
"""Folders and files whose faults the README's tests must find."""
TESTS = (sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider")


def main(arguments: Sequence[str]) -> int:
    """Draw faults, judge each, and report; return the exit code."""
    chosen = _parser().parse_args(arguments)
    seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    sample = random.Random(seed).sample(faults_of(chosen.rooms), chosen.count)
    drawn = dict(enumerate(sample, start=1))
    judged = {number: drawn[number] for number in chosen.only or drawn}
    print(f"seed {seed}: {len(judged)} faults", flush=True)
    with tempfile.TemporaryDirectory(prefix="nnpa-mutants-") as folder:
        scratch_copy.make(Path(folder))
        trial = Trial(Path(folder), shlex.split(chosen.tests))
        sound = trial.run_without_fault()
        if sound.failed is not None:
            print(f"without a fault the tests fail: {sound.failed}\n{sound.output[-4000:]}")
            return 2
        print(f"without a fault the tests pass in {sound.seconds:.0f} s", flush=True)
        verdicts = [_judged(trial, number, *fault) for number, fault in judged.items()]
    survivors = [verdict for verdict in verdicts if verdict.by is None]
    print(f"seed {seed}: {len(verdicts) - len(survivors)} killed, {len(survivors)} survived")
    if chosen.json is not None:
        kept = {"seed": seed, "verdicts": [asdict(verdict) for verdict in verdicts]}
        chosen.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 1 if survivors else 0


def faults_of(rooms: Sequence[str] = ROOMS) -> list[tuple[Path, Mutation]]:
    """Return all faults that the files of the rooms can have."""
    return [
        (file.relative_to(scratch_copy.ROOT), mutation)
        for room in rooms
        for file in _sources(scratch_copy.ROOT / room)
        for mutation in mutations(file.read_text(encoding="utf-8"))
    ]


def _sources(room: Path) -> list[Path]:
    return [room] if room.is_file() else sorted(room.rglob("*.py"))


def _judged(trial: Trial, number: int, file: Path, mutation: Mutation) -> Verdict:
    """Return the verdict on a fault, and print it; of a survivor the diff, too."""
    verdict = trial.judge(file, mutation)
    place = f"{verdict.seconds:5.0f} s  {verdict.file}:{verdict.line} {verdict.kind}"
    if verdict.by is None:
        print(f"{number:3} SURVIVED {place}\n{verdict.diff}", flush=True)
    else:
        print(f"{number:3} killed   {place}, by {verdict.by}", flush=True)
    return verdict


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--count", type=int, default=20, help="faults to draw (default: 20)")
    add("--seed", type=int, help="draw the faults of an earlier run again (default: random)")
    add("--only", nargs="+", type=int, metavar="N", help="judge the faults of these numbers alone")
    add("--json", type=Path, metavar="FILE", help="write the verdicts to a file")
    add("--rooms", nargs="+", default=ROOMS, metavar="PATH", help="folders and files for faults")
    add("--tests", default=shlex.join(TESTS), metavar="COMMAND", help="tests to run in the copy")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
