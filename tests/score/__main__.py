# SPDX-License-Identifier: Apache-2.0
"""The suites of the score: `python -m tests.score SUITE FOLDER [SERVER]`.

JSON lines on the standard output: {"of": cases}, then a line for each case, whose keys are the
fields of `nnpa_tools.conformance.counts.Case`. The first two suites run without a clone.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from nnpa_tools.conformance.counts import Case

from tests.score import reference_cases, shared_vectors

Cases = Callable[[argparse.Namespace], tuple[int, Iterator[Case]]]
PORTABLE: Mapping[str, Cases] = {
    "vectors": lambda words: shared_vectors.cases(words.folder, words.server, words.answers),
    "mli": lambda words: reference_cases.cases(words.folder / "mli"),
}


def main(words: list[str]) -> None:
    """Run a suite and print its cases as they end."""
    parser = argparse.ArgumentParser(prog="python -m tests.score")
    parser.add_argument("suite")
    parser.add_argument("folder", type=Path)
    parser.add_argument("server", nargs="?")
    parser.add_argument("--answers", type=Path)
    chosen = parser.parse_args(words)
    if chosen.suite not in PORTABLE:
        from tests.score import pytest_suites  # in a clone only

        pytest_suites.run(*pytest_suites.SUITES[chosen.suite])
    warnings.simplefilter("ignore")
    of, cases = PORTABLE[chosen.suite](chosen)
    print(json.dumps({"of": of}), flush=True)
    for case in cases:
        print(json.dumps(asdict(case)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
