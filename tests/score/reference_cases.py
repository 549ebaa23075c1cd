# SPDX-License-Identifier: Apache-2.0
"""The MLI library's reference cases as cases of the score."""

from collections.abc import Iterator
from pathlib import Path

from nnpa_tools.conformance.counts import Case

from tests.mli.golden import run_file

_NO_COUNTERPART = "no 1.x counterpart"


def cases(folder: Path) -> tuple[int, Iterator[Case]]:
    """Return the number of files, and each file's cases when it has run."""
    files = sorted(folder.glob("*.json"))
    return len(files), (case for file in files for case in _cases(file))


def _cases(file: Path) -> Iterator[Case]:
    try:
        row = run_file(file)
    except Exception as error:  # of any kind, as the file may be broken
        yield Case(file.stem, "failed", reason=f"{type(error).__name__}: {error}")
        return
    if row.agree + row.mapped:
        yield Case(row.file, "passed", count=row.agree + row.mapped)
    for difference in row.differences:
        name, _, note = difference.partition(": ")
        if row.asserted:
            yield Case(row.file, "failed", name=name, reason=note)
        else:
            yield Case(row.file, "refused", name=name, reason=_reported(note))


def _reported(note: str) -> str:
    """Return the reason why a case of a file without a promise differs."""
    if note.endswith(_NO_COUNTERPART):
        return "a kernel of library 2.0, whose tensors the 1.x kernels cannot express"
    return "the library answers otherwise; reported, not promised"
