# SPDX-License-Identifier: Apache-2.0
"""What a server's start leaves behind."""

import subprocess
import sys

SCRIPT = """
import gc
gc.disable()
from nnpa_server.app import tune_collector
tune_collector()
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_the_collector_works_after_the_start() -> None:
    """Cycles are not collected while modules are imported, and are as soon as calls are served."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split() == ["True", "True"]
