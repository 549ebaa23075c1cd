# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`: its output and its exit codes."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nnpa_client.errors import ZdnnError
from nnpa_tools.cli import main
from nnpa_tools.commands import demo
from nnpa_tools.commands.exit_codes import in_flags

from tests.certificates import issue
from tests.client.server_process import serving


def run(*arguments: str) -> Result:
    """Run `nnpa` in this process on a wide terminal."""
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "120"})


def test_version_is_the_distribution_s() -> None:
    """--version tells the distribution's version."""
    assert run("--version").output == f"nnpa {version('nnpa')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["demo", "--help"]])
def test_help_tells_exit_codes(arguments: list[str]) -> None:
    """Every help page lists the exit codes."""
    result = run(*arguments)
    assert result.exit_code == 0
    assert "3 server unreachable" in " ".join(result.output.split())


def test_info_is_a_readable_table(server_target: str) -> None:
    """`nnpa info` shows machines with aliases and limits, and the machines of each function."""
    result = run("info", server_target)
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert any(line[:2] == ["telum2", "z17"] and "2097152" in line for line in lines)
    assert ["NNPA_SQRT", "34", "-", "yes"] in lines
    assert any(line[:1] == ["z15"] and "no" in line for line in lines)


def test_info_as_json(server_target: str) -> None:
    """`nnpa info --json` is the machines as the wire has them."""
    machines = json.loads(run("info", server_target, "--json").output)
    assert [machine["name"] for machine in machines][:2] == ["machines/telum1", "machines/telum2"]
    assert "NNPA_ADD" in machines[0]["functions"]


@pytest.mark.parametrize("arguments", [["nothing"], ["info", "not-a-target"], ["demo", "--what"]])
def test_usage_errors_end_with_2(arguments: list[str]) -> None:
    """Unknown commands, options and targets end with exit code 2."""
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "and --tls-ca where the server has TLS"),
        (["--tls-cert", __file__], "--tls-cert: given alone, --tls-cert and --tls-key go together"),
        (["--tls-cert", __file__, "--tls-key", __file__], "--tls-ca: not given, --tls-cert needs"),
    ],
)
def test_mistakes_with_tls_name_flags(options: list[str], says: str) -> None:
    """The message of a mistake with TLS names the command's flags, never Python's keywords."""
    target = "127.0.0.1:1" if options else "https://127.0.0.1:1"
    refusal = run("info", target, *options)
    assert refusal.exit_code == 2
    assert says in refusal.stderr
    assert "tls_" not in refusal.stderr


def test_a_port_with_tls_names_the_flag(tmp_path: Path) -> None:
    """A command without certificates at a port with TLS prints that --tls-ca is missing."""
    certificate, key = issue("server", issue("ca")).write(tmp_path, "server")
    flags = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(["127.0.0.1:0"], *flags) as (target,):
        refusal = run("info", target)
    assert refusal.exit_code == 3
    assert f"{target} speaks TLS. Give --tls-ca, or set ZDNN_TLS_CA:" in refusal.stderr


def test_a_wrong_token_names_the_flag(tmp_path: Path) -> None:
    """A command without a token at a server that needs one prints that --token is missing."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.alice]\nsha256 = "{"5f" * 32}"\n')
    with serving(["127.0.0.1:0"], "--tokens", str(tokens)) as (target,):
        refusal = run("info", target)
    assert refusal.exit_code == 3
    assert "Set ZDNN_TOKEN or --token." in refusal.stderr


def test_a_path_keeps_its_name() -> None:
    """Flags stand for keywords alone: a file that is called like one keeps its name."""
    text = "/etc/tls_ca.pem: no file; tls_ca names it, see 'tls_ca'"
    assert in_flags(text) == "/etc/tls_ca.pem: no file; --tls-ca names it, see 'tls_ca'"


@pytest.mark.parametrize("command", ["info", "demo"])
def test_an_unreachable_server_ends_with_3(command: str, tmp_path: Path) -> None:
    """A missing server ends with exit code 3 and one line of explanation."""
    result = run(command, f"unix:{tmp_path}/nobody.sock")
    assert result.exit_code == 3
    assert "UNAVAILABLE" in result.output
    assert "Traceback" not in result.output


def test_a_refusal_ends_with_4(server_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the accelerator ends with exit code 4 and its message."""

    def refuse(*_arguments: object) -> list[demo.Report]:
        raise ZdnnError(0x00100004, "add")

    monkeypatch.setattr(demo, "run", refuse)
    result = run("demo", server_target)
    assert result.exit_code == 4
    assert "zdnn_add: ZDNN_INVALID_STATE" in result.output
