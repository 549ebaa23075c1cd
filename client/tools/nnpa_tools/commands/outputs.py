# SPDX-License-Identifier: Apache-2.0
"""The options that name a file or folder to write; a wrong place is refused before any work."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click


def new_file_option(*names: str, allow_dash: bool = False, **attributes: Any) -> Callable[..., Any]:
    """Return an option that names a file to write; with `allow_dash`, "-" is standard output."""
    kind = click.Path(dir_okay=False, writable=True, allow_dash=allow_dash, path_type=Path)
    return click.option(*names, type=kind, callback=_require_file, **attributes)


def new_folder_option(*names: str, **attributes: Any) -> Callable[..., Any]:
    """Return an option that names a folder to write files in; a missing folder is created later."""
    kind = click.Path(file_okay=False, writable=True, path_type=Path)
    return click.option(*names, type=kind, callback=_require_folder, **attributes)


def _require_file(
    _context: click.Context, parameter: click.Parameter, file: Path | None
) -> Path | None:
    """Return a file that exists or can be created; "-" is no file."""
    if file is not None and str(file) != "-" and not os.access(file, os.F_OK):
        _require_writable(file.parent, file, parameter)
    return file


def _require_folder(
    _context: click.Context, parameter: click.Parameter, folder: Path | None
) -> Path | None:
    """Return a folder in which files can be created."""
    if folder is not None:
        places = (folder, *folder.absolute().parents)
        nearest = next(place for place in places if os.access(place, os.F_OK))
        _require_writable(nearest, folder, parameter)
    return folder


def _require_writable(folder: Path, path: Path, parameter: click.Parameter) -> None:
    """Raise BadParameter unless a nameless file can be created in a folder."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        advice = "Name a place that can be written."
        message = f"{path} cannot be written: {error.strerror}. {advice}"
        raise click.BadParameter(message, param=parameter) from error
