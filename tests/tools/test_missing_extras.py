# SPDX-License-Identifier: Apache-2.0
"""Every command and the server start without an error, with each extra left out in turn."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.server.process import PATIENCE

ROOT = Path(__file__).parents[2]
OF_THE_COMMANDS = "tools"
"""The extra without which there are no commands: `test_forwards.py` leaves it out."""
OF_DEVELOPERS = {"bench", "check", "site", "test", "test-core", "test-protobuf7"}
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
OF_USERS = sorted(EXTRAS.keys() - OF_DEVELOPERS - {OF_THE_COMMANDS})
COMMANDS = """
import click
from click.testing import CliRunner
from nnpa_tools.cli import main

def names(group, path):
    context = click.Context(group)
    for name in group.list_commands(context):
        yield [*path, name]
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from names(command, [*path, name])

for path in names(main, []):
    ended = CliRunner().invoke(main, [*path, "--help"])
    assert ended.exit_code == 0 and not ended.stderr, (path, ended.output, ended.exception)
    print(*path)
"""


def left_out(extra: str, folder: Path) -> dict[str, str]:
    """Return an environment whose Python has no package that the extra itself names."""
    packages = {
        canonicalize_name(requirement.name)
        for requirement in map(Requirement, EXTRAS[extra])
        if requirement.name != "nnpa"
    }
    modules = [
        module
        for module, distributions in metadata.packages_distributions().items()
        if packages & {canonicalize_name(name) for name in distributions}
        and module not in ("opentelemetry", "google")  # namespaces that others share
    ]
    code = f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"
    (folder / "sitecustomize.py").write_text(code)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_the_extras_for_developers_exist() -> None:
    """The list of extras for developers names real extras; every other extra is tested below."""
    assert EXTRAS.keys() > OF_DEVELOPERS


@pytest.mark.heavy
@pytest.mark.parametrize("extra", OF_USERS)
def test_every_command_starts(extra: str, tmp_path: Path) -> None:
    """Each command of `nnpa` prints its help without the extra."""
    run = subprocess.run(
        [sys.executable, "-c", COMMANDS], env=left_out(extra, tmp_path), capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert len(run.stdout.splitlines()) > 20


@pytest.mark.heavy
@pytest.mark.parametrize("extra", sorted({*OF_USERS} - {"server"}))
def test_the_server_starts_without_a_word(extra: str, tmp_path: Path) -> None:
    """A server without the extra computes, and its first screen shows only the session."""
    environment = left_out(extra, tmp_path)
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    with subprocess.Popen(
        [sys.executable, "-m", "nnpa_server", "--listen", f"unix:{tmp_path}/nnpa.sock"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        assert "listening" in server.stdout.readline()
        adding = (
            "import numpy as np\nfrom nnpa_client import connect, zdnn\n"
            f"with connect('unix:{tmp_path}/nnpa.sock') as session:\n"
            "    a = session.ztensor(np.ones((2, 3), np.float32))\n"
            "    print(zdnn.add(a, a).numpy()[0, 0])\n"
        )
        added = subprocess.run(
            [sys.executable, "-c", adding], env=environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(2)  # what is done in the background has had its time
        server.terminate()
        _, log = server.communicate(timeout=PATIENCE)
    assert (added.stdout, added.stderr) == ("2.0\n", "")
    words = [line for line in log.splitlines() if "nnpa.audit" not in line and "ended" not in line]
    assert [
        line for line in words if "draining" not in line and "left in the store" not in line
    ] == []
