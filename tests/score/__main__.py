# SPDX-License-Identifier: Apache-2.0
"""The suites that need the installed package only: `python -m tests.score SUITE FOLDER [SERVER]`.

JSON lines on the standard output: {"of": cases}, then a line for each case, whose keys are the
fields of `nnpa_tools.conformance.Case`.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from nnpa_tools.conformance import Case

from tests.score import reference_cases, shared_vectors

Cases = Callable[[argparse.Namespace], tuple[int, Iterator[Case]]]
SUITES: Mapping[str, Cases] = {
    "vectors": lambda words: shared_vectors.cases(words.folder, words.server, words.answers),
    "mli": lambda words: reference_cases.cases(words.folder / "mli"),
}


def main(words: list[str]) -> None:
    """Run a suite and tell its cases as they end."""
    parser = argparse.ArgumentParser(prog="python -m tests.score")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("server", nargs="?")
    parser.add_argument("--answers", type=Path)
    chosen = parser.parse_args(words)
    of, cases = SUITES[chosen.suite](chosen)
    print(json.dumps({"of": of}), flush=True)
    for case in cases:
        line = {name: getattr(case, name) for name in Case.__dataclass_fields__}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
