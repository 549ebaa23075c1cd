# SPDX-License-Identifier: Apache-2.0
"""Public names that moved are still where they were, and the core needs no instrument."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from nnpa_client._forwards import HOMES
from nnpa_wire.installation import pip_install

from tests.server.process import PATIENCE, ServerProcess
from tests.tools.test_missing_extras import left_out

NAMES = [
    (module, home, name)
    for module, homes in HOMES.items()
    for home, names in homes.items()
    for name in names
]


@pytest.mark.parametrize(("module", "home", "name"), NAMES)
def test_a_forwarded_name_is_the_object_of_its_home(module: str, home: str, name: str) -> None:
    """A name is exported by the module that forwards it, and is the object that its home has."""
    assert name in import_module(module).__all__
    assert getattr(import_module(module), name) is getattr(import_module(home), name)


def test_another_name_is_no_attribute() -> None:
    """A module that forwards names has no others."""
    for module in HOMES:
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
            _ = import_module(module).nothing


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python without the packages of the extra `tools`."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=left_out("tools", folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [("nnpa", "nnpa_tools", "tools"), ("nnpa-server", "nnpa_server", "server")],
)
def test_a_command_without_its_extra_says_what_to_install(
    command: str, package: str, extra: str, tmp_path: Path
) -> None:
    """A command whose extra is not installed ends with 2 and one line."""
    code = f"import sys; from {package}.__main__ import main; sys.exit(main())"
    ended = _run(code, tmp_path)
    line = f"{command}: click is not installed: {pip_install(extra)}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", line)


def test_no_forwarded_name_needs_the_tools(tmp_path: Path) -> None:
    """Every forwarded name is there without the extra `tools`."""
    ended = _run("\n".join(f"from {module} import {name}" for module, _, name in NAMES), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_core_calls_a_server(tmp_path: Path) -> None:
    """A client without the extra `tools` adds two tensors on a server."""
    server = ServerProcess("--listen", f"unix:{tmp_path}/nnpa.sock", log=tmp_path / "log")
    try:
        code = (
            "import numpy as np\nfrom nnpa_client import connect, zdnn\n"
            f"with connect({server.address!r}) as session:\n"
            "    a = session.ztensor(np.ones((2, 3), np.float32))\n"
            "    print(zdnn.add(a, a).numpy()[0, 0])\n"
        )
        ended = _run(code, tmp_path)
    finally:
        server.stop()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2.0\n", "")
