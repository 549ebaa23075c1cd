# SPDX-License-Identifier: Apache-2.0
"""Options that commands share: credentials of commands that connect, and paths of written files."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from nnpa_tools.cli import main
from nnpa_tools.commands.outputs import new_file_option, new_folder_option

CREDENTIALS = {"--token", "--tls-ca", "--tls-cert", "--tls-key"}
NEEDLESS: dict[tuple[str, ...], set[str]] = {
    ("top",): {"--token"},  # metrics ask for none
    ("run",): CREDENTIALS - {"--token"},  # a Unix socket has no TLS
}


def leaves(
    command: click.Command, context: click.Context, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands that are no groups, with their words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, context, (*path, name))


COMMANDS = [
    (path, {option for parameter in command.params for option in parameter.opts})
    for path, command in leaves(main, click.Context(main))
    if {parameter.name for parameter in command.params} & {"target", "address"}
]


@pytest.mark.parametrize(
    ("path", "options"), COMMANDS, ids=[" ".join(path) for path, _options in COMMANDS]
)
def test_commands_that_connect_take_credentials(path: tuple[str, ...], options: set[str]) -> None:
    """Each command that takes the address of a server takes a token and certificates."""
    assert options >= CREDENTIALS - NEEDLESS.get(path, set())


def test_commands_that_connect_are_found() -> None:
    """The walk over the commands meets the commands that reach servers."""
    names = {" ".join(path) for path, _options in COMMANDS}
    assert names >= {"info", "demo", "top", "run", "network validate", "trace record"}


READ = {("network", "validate", "--data")}  # a path that may be of a file or a folder
WRITTEN = [
    (path, option)
    for path, command in leaves(main, click.Context(main))
    for parameter in command.params
    for option in parameter.opts[:1]
    if isinstance(parameter.type, click.File)
    or (isinstance(parameter.type, click.Path) and not parameter.type.exists)
    if (*path, option) not in READ
]


@pytest.mark.parametrize(
    ("path", "option"), WRITTEN, ids=[" ".join((*path, option)) for path, option in WRITTEN]
)
def test_a_place_that_cannot_be_written_is_usage(path: tuple[str, ...], option: str) -> None:
    """An option for an output refuses a path that cannot be written, before any work."""
    refused = CliRunner().invoke(main, [*path, option, "/proc/nothere/file"])
    assert refused.exit_code == 2
    message = " ".join(refused.stderr.split())
    assert f"Invalid value for '{option}'" in message
    assert ": /proc/nothere/file cannot be written: " in message
    assert message.endswith(". Name a place that can be written.")


def test_options_that_name_what_is_written_are_found() -> None:
    """The walk over the commands meets the options that name a file or folder to write."""
    assert {" ".join((*path, option)) for path, option in WRITTEN} == {
        "conformance run --out", "conformance score --out", "network generate --output",
        "network run --output", "network validate --html", "network validate --worst",
        "run --trace", "trace record --output", "trace replay --output",
    }  # fmt: skip


def test_a_place_is_not_made_before_it_is_written(tmp_path: Path) -> None:
    """The check that a path can be written creates nothing there."""

    @click.command()
    @new_file_option("--file")
    @new_folder_option("--folder")
    def command(file: Path, folder: Path) -> None:
        click.echo(f"{file.exists()} {folder.exists()}")

    options = ["--file", str(tmp_path / "file"), "--folder", str(tmp_path / "some" / "folder")]
    ended = CliRunner().invoke(command, options)
    assert (ended.exit_code, ended.stdout) == (0, "False False\n")
    assert list(tmp_path.iterdir()) == []
