# SPDX-License-Identifier: Apache-2.0
"""`nnpa completion`: the script with which a shell completes commands and options."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_NNPA_COMPLETE"


@click.command(epilog='In ~/.bashrc: eval "$(nnpa completion bash)"')
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands and options."""
    complete = get_completion_class(shell)
    assert complete is not None, "Click has all of the choices"
    root = context.find_root()
    click.echo(complete(root.command, {}, "nnpa", _VARIABLE).source())
