# SPDX-License-Identifier: Apache-2.0
"""`nnpa libzdnn`: the paths and flags of the C library, for compilers and build systems."""

import click
from nnpa_client.libzdnn import NOT_INSTALLED, cflags, libs, prefix

from nnpa_tools.commands.terminal import echo


@click.command("libzdnn", epilog="gcc $(nnpa libzdnn --cflags) program.c $(nnpa libzdnn --libs)")
@click.option("--cflags", "with_cflags", is_flag=True, help="Print the compiler's flags.")
@click.option("--libs", "with_libs", is_flag=True, help="Print the linker's flags.")
@click.option("--path", "with_path", is_flag=True, help="Print the folder (the default).")
@click.option(
    "--network", is_flag=True, help="Flags of libnnpa_network, for `nnpa network generate`."
)
def libzdnn(with_cflags: bool, with_libs: bool, with_path: bool, network: bool) -> None:
    """Print where libzdnn is: zDNN's C functions, remote. Needs the wheel nnpa-libzdnn.

    Programs compiled with these flags run on the server that ZDNN_SERVER names.
    """
    where = prefix()
    if where is None:
        raise click.ClickException(NOT_INSTALLED)
    parts = [str(where)] if with_path or not (with_cflags or with_libs) else []
    parts += [cflags(where)] if with_cflags else []
    parts += [libs(where, "nnpa_network" if network else "zdnn")] if with_libs else []
    echo(" ".join(parts))
