# SPDX-License-Identifier: Apache-2.0
"""Programs for s390x: a vector conversion that is patched, against one that traps each time."""

import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from tests.bench.report import Figure, row

ROOT = Path(__file__).parents[2]
_COMPILER = "s390x-linux-gnu-gcc"
_SYSROOT = Path("/usr/s390x-linux-gnu")
_PATCHED, _TRAPPING = 1_000_000, 50_000  # conversions
_REPETITIONS = 5


@row("29", "a vector conversion of a program for s390x, patched over trapping (time)")
def conversion() -> list[Figure]:
    """The same binary with and without NNPA_TRAP_PATCH; both set IEEE flags without a server."""
    missing = [tool for tool in (_COMPILER, "qemu-s390x", "make") if shutil.which(tool) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not installed")
    with tempfile.TemporaryDirectory() as folder:
        make = ["make", "-C", str(ROOT / "client/trap"), f"OUT={folder}"]
        subprocess.run(make, check=True, capture_output=True)
        program = Path(folder) / "pace"
        source = ROOT / "tests/trap/programs/pace.c"
        subprocess.run(
            [_COMPILER, "-O2", "-march=z13", str(source), "-o", str(program)], check=True
        )
        library = Path(folder) / "libnnpa-trap.so"
        runs = [
            (_nanoseconds(program, library, "1"), _nanoseconds(program, library, "0"))
            for _ in range(_REPETITIONS)
        ]
    patched, trapping = (statistics.median(times) for times in zip(*runs, strict=True))
    quotient = statistics.median(left / right for left, right in runs)
    note = f"{patched:.0f} ns and {trapping:.0f} ns"
    return [Figure("patched over trapping", quotient, 0.08, 0.03, note=note)]


def _nanoseconds(program: Path, library: Path, patch: str) -> float:
    """Return the nanoseconds of one conversion."""
    count = _PATCHED if patch == "1" else _TRAPPING
    variables = {"NNPA_TRAP_MACHINE": "z17", "NNPA_TRAP_PATCH": patch}
    qemu = ["qemu-s390x", "-L", str(_SYSROOT), "-E", f"LD_PRELOAD={library}"]
    ended = subprocess.run(
        [*qemu, str(program), str(count)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ended.stdout.split()[0])
