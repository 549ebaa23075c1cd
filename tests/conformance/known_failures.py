# SPDX-License-Identifier: Apache-2.0
"""The vectors that an SDK cannot pass, each with its reason: the lists of `known_failing`."""

from pathlib import Path

from tests import vector_runner
from tests.vector_runner import VECTORS

KNOWN_FAILING = Path(__file__).parent / "known_failing"


def known_failing(testee: str) -> dict[str, str]:
    """Return the vectors that a testee cannot pass, `stem/name` to reason.

    A line `*/name` stands for the vector of that name in every file that has one.
    """
    path = KNOWN_FAILING / f"{testee.removesuffix('-plain')}.txt"
    reasons: dict[str, str] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if text and not text.startswith("#"):
            pattern, _, reason = text.partition(": ")
            assert reason, f"{path.name}: {text!r}, expected `stem/name: reason`"
            for vector in _matching(pattern):
                assert vector not in reasons, f"{path.name}: {vector} twice"
                reasons[vector] = reason
    return reasons


def _matching(pattern: str) -> list[str]:
    stem, _, name = pattern.partition("/")
    if stem != "*":
        return [pattern]
    vectors = vector_runner.load(VECTORS)
    stems = [vector.function for vector in vectors if vector.line["name"] == name]
    assert stems, f"{pattern}: no vector of that name"
    return [f"{stem}/{name}" for stem in stems]
