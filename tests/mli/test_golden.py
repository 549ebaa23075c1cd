# SPDX-License-Identifier: Apache-2.0
"""The reference cases of the MLI library, run by the rule of each file name.

NNPA_MLI_GOLDEN names another folder of such files; all its cases are run.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.mli.golden import Row, run_file, table

DEFAULT = Path(__file__).parents[1] / "vectors" / "mli"
FOLDER = Path(os.environ.get("NNPA_MLI_GOLDEN", DEFAULT))
FILES = sorted(FOLDER.glob("*.json"))
ROWS: dict[str, Row] = {}


def row_of(path: Path) -> Row:
    """Run a file once per session."""
    if path.stem not in ROWS:
        ROWS[path.stem] = run_file(path)
    return ROWS[path.stem]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_of_an_asserted_file_agrees(path: Path) -> None:
    """Values, fields and status of every case equal the reference, named mappings included."""
    row = row_of(path)
    assert row.cases > 0
    if row.asserted:
        assert not row.differences, "\n".join(row.differences[:5])
        assert row.agree + row.mapped == row.cases


def test_the_folder_holds_reference_files() -> None:
    """A folder without reference files is a mistake, not a pass."""
    assert FILES, f"{FOLDER}: no *.json"


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The run shows file, cases, agree and mapped of every file."""
    rows = [row_of(path) for path in FILES]
    with capsys.disabled():
        print(f"\n{table(rows)}", file=sys.stderr)  # the one stream that parallel runs show
    assert sum(row.cases for row in rows) == sum(
        row.agree + row.mapped + len(row.differences) for row in rows
    )
