# SPDX-License-Identifier: Apache-2.0
"""The README's test command as people run it: its first line, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from tests.conftest import FOLDERS, MINUTES, pytest_ignore_collect
from tests.server.process import wait_until

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 3.0  # from Ctrl-C to the end, where each process has a processor
QUICK = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_quick(number):
    pass
"""
STUBBORN = """
import time
from pathlib import Path

import pytest

from tests.server.process import serving

@pytest.fixture
def server(tmp_path):
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        yield server.process.pid

def test_that_does_not_end(server):
    Path(__file__).with_suffix(".started").write_text(str(server))
    while True:
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            pass
"""


def _pytest(*arguments: str | Path) -> list[str]:
    """Return the README's command, without a cache, on other tests."""
    return [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest"),
        *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), *map(str, arguments)),
    ]


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.heavy
def test_ctrl_c_ends_a_run_soon_and_tells_what_ran(tmp_path: Path) -> None:
    """Ctrl-C ends two workers, also the one that ignores it, and its server."""
    (tmp_path / "test_quick.py").write_text(QUICK)
    (tmp_path / "test_stubborn.py").write_text(STUBBORN)
    started, output = tmp_path / "test_stubborn.started", tmp_path / "output"
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs with &
    with output.open("wb") as written:
        run = subprocess.Popen(
            _pytest(tmp_path), cwd=ROOT, stdout=written, stderr=written, start_new_session=True
        )
    signal.signal(signal.SIGINT, handler)
    wait_until(lambda: started.exists() and b"\n..." in output.read_bytes())
    began = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)
    try:
        assert run.wait(60) == 2
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGABRT)  # pytest's faulthandler writes the stacks of all threads
        run.wait()
        pytest.fail(output.read_text())
    shared_by = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert time.monotonic() - began < SECONDS * min(max(shared_by, 1), 3)  # xdist's own: ten
    output_text = output.read_text()
    assert "KeyboardInterrupt" in output_text
    assert "3 passed in " in output_text
    wait_until(lambda: not _is_running(int(started.read_text())))


@pytest.mark.heavy
def test_the_first_line_says_how_long_and_what_is_left_out(tmp_path: Path) -> None:
    """The line names every marker that the default expression leaves out, once."""
    (tmp_path / "test_quick.py").write_text(QUICK)
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]
    said = subprocess.run(
        [*_pytest("-o", f"testpaths={tmp_path}")], cwd=ROOT, capture_output=True, text=True
    ).stdout
    first = said.splitlines()[0]
    assert first.startswith(f"nnpa: about {MINUTES} minutes on two cores; leaves out heavy, ")
    for marker in settings["ini_options"]["addopts"].split("-m '")[1].split("'")[0].split(" and "):
        assert first.count(marker.removeprefix("not ")) == 1
    assert (
        "nnpa: about"
        not in subprocess.run(
            _pytest(tmp_path, "-n0"), cwd=ROOT, capture_output=True, text=True
        ).stdout
    )


def test_every_test_of_a_folder_that_is_not_read_has_its_marker() -> None:
    """The marker is set by the folder's conftest, or by each of its files."""
    for folder, marker in FOLDERS.items():
        place = ROOT / "tests" / folder
        texts = [path.read_text("utf-8") for path in place.glob("test_*.py")]
        assert texts, folder
        if (place / "conftest.py").exists():
            texts = [(place / "conftest.py").read_text("utf-8")]
        assert all(f"pytest.mark.{marker}" in text for text in texts), folder


@pytest.mark.parametrize(
    ("expression", "folder", "ignored"),
    [
        ("not heavy and not libzdnn", "libzdnn", True),
        ("not heavy and not libzdnn", "trap", True),
        ("not heavy and not libzdnn", "emulator", None),
        ("libzdnn and not heavy", "libzdnn", None),
        ("", "torch", None),
    ],
)
def test_a_folder_that_is_left_out_is_not_read(
    expression: str, folder: str, ignored: bool | None
) -> None:
    """Pytest skips a folder's files only if the expression leaves out the folder's marker."""
    config = Mock()
    config.getoption.return_value = expression
    assert pytest_ignore_collect(ROOT / "tests" / folder, config) is ignored
