# SPDX-License-Identifier: Apache-2.0
"""Names that programs and people rely on may come, and never go."""

import subprocess
import sys
from pathlib import Path

from tests.public_names import ROOT, collect, promised

HOW_TO_ADD = "python -m tests.public_names > tests/public_names.txt"


def test_no_public_name_is_lost() -> None:
    """Every promised name, parameter and value is still what it was."""
    missing = sorted(promised() - set(collect()))
    assert not missing, "no longer there, or changed:\n" + "\n".join(missing)


def test_new_public_names_are_promised() -> None:
    """A new name joins the list, so that it cannot be lost either."""
    added = sorted(set(collect()) - promised())
    assert not added, f"new; `{HOW_TO_ADD}` promises:\n" + "\n".join(added)


def test_the_wire_keeps_its_promise() -> None:
    """`buf breaking` finds nothing in the contract that `baseline.binpb` does not allow."""
    buf = Path(sys.executable).with_name("buf")
    breaking = [str(buf), "breaking", "--against", "baseline.binpb"]
    result = subprocess.run(breaking, cwd=ROOT / "protos", capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
