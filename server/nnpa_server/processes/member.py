# SPDX-License-Identifier: Apache-2.0
"""One server process, which `nnpa-server` runs alone or as one of several behind a router.

As one of several it runs as `python -m nnpa_server.processes.member LOG_LEVEL`. It reads its
configuration, a line of JSON, from standard input, which its parent keeps open until it ends.
"""

import gc
import logging
import sys

from nnpa_server.config import Config, config_from_json, kernel_cache, leave_out_telemetry
from nnpa_server.logs import start_logging
from nnpa_server.tuning.kernel_cache import leave_out_scipy
from nnpa_server.tuning.process import tune_malloc

_log = logging.getLogger("nnpa.server")


def prepare(config: Config, log_level: str) -> None:
    """Tune malloc, and set up the log and the kernel cache, before the emulator is imported.

    Malloc comes first: a thread that runs before has an arena of its own, which others then share.
    """
    if "process-tuning" in config.shortcuts:
        tune_malloc()
    start_logging(log_level, as_json=config.json_log)
    gc.disable()  # until tune_collector: imports make many objects, and no cycle to be collected
    if notice := kernel_cache():
        _log.warning("%s", notice)
    leave_out_scipy()
    leave_out_telemetry()


def run(config: Config) -> int:
    """Serve until a signal, and return the exit code."""
    from nnpa_server.app import serve  # after the cache is chosen

    return serve(config)


if __name__ == "__main__":
    chosen = config_from_json(sys.stdin.readline())
    prepare(chosen, sys.argv[1])
    sys.exit(run(chosen))
