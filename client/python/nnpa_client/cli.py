# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from nnpa_client.commands.exit_codes import EXIT_CODES_WITH_TARGET
from nnpa_client.commands.terminal import visible

_COMMANDS: Mapping[str, str] = {
    "check": "commands.check:check",
    "completion": "commands.completion:completion",
    "conformance": "commands.conformance:conformance",
    "demo": "commands.run_demo:run_demo",
    "doctor": "commands.doctor:doctor",
    "estimate": "commands.estimate:estimate_command",
    "faults": "commands.faults:faults",
    "info": "commands.info:info",
    "libzdnn": "libzdnn:libzdnn",
    "network": "commands.network:network",
    "run": "commands.run:run",
    "token": "commands.new_token:token",
    "top": "commands.top:top",
    "trace": "commands.trace:trace",
    "view": "commands.view:view",
}
"""Where each command is, as an entry point has it, in this package."""


class _LazyGroup(click.Group):
    """Imports a command when it is used, so that no command waits for what others need.

    Source: Click documentation, "Lazily Loading Subcommands".
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported at its first use."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module, name = _COMMANDS[cmd_name].split(":")
            self.add_command(getattr(importlib.import_module(f"nnpa_client.{module}"), name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what its errors tell of files and servers stays text."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = visible(error.message)
            raise


@click.group(
    cls=_LazyGroup,
    epilog=EXIT_CODES_WITH_TARGET,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="nnpa", prog_name="nnpa", message="%(prog)s %(version)s")
def main() -> None:
    """A Telum in a container: IBM's NNPA accelerator and zDNN, emulated.

    `nnpa demo` shows it at work; `nnpa-server` serves it to others.
    """
