# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`: what it prints and how it ends."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nnpa_client.cli import main
from nnpa_client.commands import demo
from nnpa_client.errors import ZdnnError


def run(*arguments: str) -> Result:
    """Run `nnpa` in this process on a wide terminal."""
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "120"})


def test_version() -> None:
    """--version tells the distribution's version."""
    assert run("--version").output == f"nnpa {version('nnpa')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["demo", "--help"]])
def test_help_tells_exit_codes(arguments: list[str]) -> None:
    """Every help page lists the exit codes."""
    result = run(*arguments)
    assert result.exit_code == 0
    assert "3 server unreachable" in " ".join(result.output.split())


def test_info_is_a_readable_table(server_target: str) -> None:
    """`nnpa info` shows machines with aliases and limits, and who has which function."""
    result = run("info", server_target)
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert any(line[:2] == ["telum2", "z17"] and "2097152" in line for line in lines)
    assert ["NNPA_SQRT", "34", "-", "yes"] in lines
    assert any(line[:1] == ["z15"] and "no" in line for line in lines)


def test_info_as_json(server_target: str) -> None:
    """`nnpa info --json` is the machines as the wire has them."""
    machines = json.loads(run("info", server_target, "--json").output)
    assert [one["name"] for one in machines][:2] == ["machines/telum1", "machines/telum2"]
    assert "NNPA_ADD" in machines[0]["functions"]


@pytest.mark.parametrize("arguments", [["nothing"], ["info", "not-a-target"], ["demo", "--what"]])
def test_usage_errors(arguments: list[str]) -> None:
    """Unknown commands, options and targets end with exit code 2."""
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("command", ["info", "demo"])
def test_unreachable(command: str, tmp_path: Path) -> None:
    """A server that is not there ends with exit code 3 and one line of explanation."""
    result = run(command, f"unix:{tmp_path}/nobody.sock")
    assert result.exit_code == 3
    assert "UNAVAILABLE" in result.output
    assert "Traceback" not in result.output


def test_refused(server_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the accelerator ends with exit code 4 and its message."""

    def refuse(*_arguments: object) -> list[demo.Report]:
        raise ZdnnError(0x00100004, "add")

    monkeypatch.setattr(demo, "run", refuse)
    result = run("demo", server_target)
    assert result.exit_code == 4
    assert "zdnn_add: ZDNN_INVALID_STATE" in result.output
