# SPDX-License-Identifier: Apache-2.0
"""The suites that need a clone of the repository: pytest runs them, and writes their cases.

python -m tests.score.pytest_suites GROUPED_BY WORDS_OF_PYTEST...
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn


class Tests(NamedTuple):
    """Tests that are a suite: pytest's words, and the part of a test that names its group.

    "law" is the docstring, "subject" the parameters before the last hyphen, and "subject and
    machine" the subject with the machine behind it.
    """

    words: tuple[str, ...]
    grouped_by: str = "law"


SUITES: Mapping[str, Tests] = {
    "laws": Tests(
        ("tests/emulator/test_laws.py", "tests/emulator/test_instruction_law.py",
         "tests/mli/test_laws.py", "tests/mli/test_conversion_laws.py"),
    ),
    "onnx": Tests(("tests/network/test_backend.py",)),
    "sdks": Tests(("tests/conformance/test_conformance.py", "-k", "function"), "subject"),
    "models": Tests(
        ("tests/network/test_models.py", "-k", "does_what_the_list_says"), "subject and machine"
    ),
    "run": Tests(("tests/trap/test_vectors.py",)),
}  # fmt: skip


def run(words: Sequence[str], grouped_by: str) -> NoReturn:
    """Become a process of pytest that writes its cases to the standard output, and nothing else."""
    out = os.dup(1)
    os.set_inheritable(out, True)
    os.dup2(2, 1)
    plugin = ("-p", "tests.score.cases_of_pytest")
    cases = (f"--score-fd={out}", f"--score-group={grouped_by}")
    style = ("-m", "", "-o", "console_output_style=classic")
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *plugin, *cases, *style, *words])


if __name__ == "__main__":
    run(sys.argv[2:], sys.argv[1])
