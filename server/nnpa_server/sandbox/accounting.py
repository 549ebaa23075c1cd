# SPDX-License-Identifier: Apache-2.0
"""Read the kernel's counts of a process: memory, address space, processor time.

Sources: proc_pid_statm(5), proc_pid_status(5), clock_getcpuclockid(3).
"""

import os
import time
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def private_bytes(pid: int) -> int:
    """Return the resident bytes that belong to no file or arena; 0 if the process has ended."""
    try:
        _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(of_files)) * _PAGE


def limited_bytes(pid: int) -> tuple[int, int]:
    """Return the bytes that RLIMIT_DATA and RLIMIT_AS count; 0, 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(":", 1) for line in lines)
    data, size = (int(fields.get(name, "0 kB").split()[0]) << 10 for name in ("VmData", "VmSize"))
    return data, size


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process in seconds; raise OSError after it was reaped."""
    return time.clock_gettime((~pid << 3) | 2)
