# SPDX-License-Identifier: Apache-2.0
"""The one Hypothesis profile, always the same examples, and BLAS on one thread as in the server.

The README's command first names the tests that it leaves out, and ends soon after Ctrl-C.
"""

import gc
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none
from threadpoolctl import threadpool_limits

FOLDERS = {"libmli": "libmli", "libzdnn": "libzdnn", "torch": "torch", "trap": "libzdnn"}
"""Folders whose tests all have one marker."""
MINUTES = 5
"""How long the README's command takes on two cores without load, pytest alone."""
_GRACE = 1.0  # seconds in which workers may end their servers after Ctrl-C

threadpool_limits(limits=1, user_api="blas")

settings.register_profile(
    "nnpa",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("nnpa")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the time of the README's command and its left-out tests; -q has no other header."""
    config = session.config
    expression = str(config.getoption("markexpr"))
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    is_readmes = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if reporter is None or not is_readmes or expression not in config.getini("addopts"):
        return
    left_out = ", ".join(re.findall(r"not (\w+)", expression))
    reporter.write_line(
        f"nnpa: about {MINUTES} minutes on two cores; leaves out {left_out}, "
        "which .ci/run and .ci/full run"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not read a folder whose tests are all left out: half of the time is rewriting asserts."""
    if collection_path.parent != Path(__file__).parent:
        return None
    marker = FOLDERS.get(collection_path.name)
    return True if marker and f"not {marker}" in str(config.getoption("markexpr")) else None


@given(none())
def _start_hypothesis(_: None) -> None:
    """Make Hypothesis keep its random numbers, which it looks for among objects not yet frozen."""


def pytest_collection_finish() -> None:
    """Exempt modules and 20,000 tests from later garbage collections, a second for a full one."""
    _start_hypothesis()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
    """After Ctrl-C give workers a moment, not xdist's ten seconds, and leave no process behind."""
    workers: Any = session.config.pluginmanager.getplugin("dsession")
    if exitstatus != pytest.ExitCode.INTERRUPTED or workers is None:
        return (yield)
    workers.nodemanager.EXIT_TIMEOUT = _GRACE
    started = psutil.Process().children(recursive=True)
    result = yield
    for process in started:
        if process.is_running():
            process.kill()
    return result
