# SPDX-License-Identifier: Apache-2.0
"""Times of programs for s390x: `nnpa run` with the small library against qemu-user with libzdnn.

    python -m tests.trap.measure TRAP_LIBRARY LIBZDNN_PREFIX

TRAP_LIBRARY is libnnpa-trap.so; LIBZDNN_PREFIX is libzdnn for s390x (`rustup target add
s390x-unknown-linux-gnu`, then `make -C client/libzdnn install PREFIX=... CROSS=s390x-linux-gnu-
TARGET=s390x-unknown-linux-gnu`). Both speak to one server that is warm: each program runs once
before it is timed. Prints a line a program: the least
seconds of three runs each way, and their ratio.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.client.server_process import serving
from tests.libzdnn.toolchain import LIBRARY
from tests.trap import vectors
from tests.trap.conftest import CROSS_COMPILER, PROGRAMS, Runner

SYSROOT = Path("/usr/s390x-linux-gnu")
RUNS = 3
ALLOWED = 3.0
"""How many times longer the instruction may take."""


def programs() -> list[Path]:
    """Return the ten examples of zDNN in C, and the two long programs."""
    examples = sorted((LIBRARY / "examples").glob("*.c"))
    return [*examples, PROGRAMS / "many_transforms.c", PROGRAMS / "many_matmuls.c"]


def _compiled(source: Path, library: Path, program: Path) -> Path:
    includes = [f"-I{LIBRARY / 'include'}", f"-I{LIBRARY / 'examples'}"]
    linked = [f"-L{library}", "-lzdnn", "-lm", f"-Wl,-rpath,{library}"]
    command = [CROSS_COMPILER, "-std=gnu11", "-O2", *includes, str(source), "-o", str(program)]
    subprocess.run([*command, *linked], check=True)
    return program


def _seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Return the least time of a few runs, after one that warms the server."""
    times: list[float] = []
    for _ in range(RUNS + 1):
        begun = time.monotonic()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        times.append(time.monotonic() - begun)
    return min(times[1:])


def main(trap_library: str, prefix: str) -> int:
    """Measure all programs; return 1 if one takes more by the instruction than is allowed."""
    folder = Path(tempfile.mkdtemp())
    small = vectors.built(folder / "small").parent
    qemu = ["qemu-s390x", "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT / 'lib'}"]
    ratios = list[float]()
    flags = ("--max-sessions", "256", "--shared-memory")
    with serving([f"unix:{folder / 'nnpa.sock'}"], *flags) as (server,):
        runner = Runner(folder, Path(trap_library).absolute(), server)
        for source in programs():
            mine = _compiled(source, small, folder / f"{source.stem}.small")
            theirs = _compiled(source, Path(prefix).absolute() / "lib", folder / source.stem)
            ways = (
                _seconds(runner.command(mine), runner.environment()),
                _seconds([*qemu, str(theirs)], {**os.environ, "ZDNN_SERVER": server}),
            )
            ratios.append(ways[0] / ways[1])
            print(f"{source.stem:40} {ways[0]:8.3f} {ways[1]:8.3f} {ratios[-1]:6.2f}")
    return 0 if max(ratios) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
