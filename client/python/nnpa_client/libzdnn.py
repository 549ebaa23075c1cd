# SPDX-License-Identifier: Apache-2.0
"""`nnpa libzdnn`: where the C library is, for compilers and build systems."""

import importlib
from pathlib import Path

import click

_PACKAGE = "nnpa_libzdnn"
NOT_INSTALLED = (
    "libzdnn is not installed: pip install client/libzdnn/wheel in a clone of nnpa, "
    "which takes Rust and a C compiler"
)


def prefix() -> Path | None:
    """Return the folder with include/ and lib/ of the wheel nnpa-libzdnn, None without it."""
    try:
        path: Path = importlib.import_module(_PACKAGE).PREFIX
    except ModuleNotFoundError:
        return None
    return path


def library_folder() -> Path | None:
    """Return the folder of libzdnn.so.0, None without the wheel."""
    where = prefix()
    return None if where is None else where / "lib"


def cflags(where: Path) -> str:
    """Return what a compiler needs to find zdnn.h."""
    return f"-I{where / 'include'}"


def libs(where: Path, library: str = "zdnn") -> str:
    """Return what a linker needs, and the program at run time."""
    return f"-L{where / 'lib'} -Wl,-rpath,{where / 'lib'} -l{library}"


@click.command("libzdnn", epilog="gcc $(nnpa libzdnn --cflags) program.c $(nnpa libzdnn --libs)")
@click.option("--cflags", "with_cflags", is_flag=True, help="Print the compiler's flags.")
@click.option("--libs", "with_libs", is_flag=True, help="Print the linker's flags.")
@click.option("--path", "with_path", is_flag=True, help="Print the folder (the default).")
@click.option("--network", is_flag=True, help="Of libnnpa_network, for `nnpa network generate`.")
def libzdnn(with_cflags: bool, with_libs: bool, with_path: bool, network: bool) -> None:
    """Tell where libzdnn is: zDNN's C functions, remote. Needs the wheel nnpa-libzdnn.

    Programs compiled with these flags run on the server that ZDNN_SERVER names.
    """
    where = prefix()
    if where is None:
        raise click.ClickException(NOT_INSTALLED)
    parts = [str(where)] if with_path or not (with_cflags or with_libs) else []
    parts += [cflags(where)] if with_cflags else []
    parts += [libs(where, "nnpa_network" if network else "zdnn")] if with_libs else []
    click.echo(" ".join(parts))
