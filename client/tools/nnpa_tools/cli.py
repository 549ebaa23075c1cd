# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from nnpa_tools.commands.exit_codes import EXIT_CODES_WITH_TARGET
from nnpa_tools.commands.terminal import visible

_COMMANDS: Mapping[str, str] = {
    "check": "check:check",
    "completion": "completion:completion",
    "conformance": "conformance:conformance",
    "demo": "run_demo:run_demo",
    "doctor": "doctor:doctor",
    "estimate": "estimate:estimate_command",
    "faults": "faults:faults",
    "info": "info:info",
    "libzdnn": "libzdnn:libzdnn",
    "network": "network:network",
    "run": "run:run",
    "token": "new_token:token",
    "top": "top:top",
    "trace": "trace:trace",
    "view": "view:view",
}
"""Module and name of each command in `nnpa_tools.commands`, in the form of an entry point."""


class _LazyGroup(click.Group):
    """Imports a command when it is used, so that no command waits for the imports of another.

    Source: Click documentation, "Lazily Loading Subcommands".
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported at its first use."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module, name = _COMMANDS[cmd_name].split(":")
            self.add_command(
                getattr(importlib.import_module(f"nnpa_tools.commands.{module}"), name)
            )
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; print control characters in its errors as escapes."""
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
