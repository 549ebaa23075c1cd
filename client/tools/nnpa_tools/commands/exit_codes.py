# SPDX-License-Identifier: Apache-2.0
"""The exit codes of commands, and the exceptions that end with them."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

import click
from nnpa_client.errors import NetworkError, ProgramCheck, TransportError, ZdnnError
from nnpa_wire.installation import pip_install

NOT_AS_PROMISED = 1
UNREACHABLE = 3
REFUSED = 4
EXIT_CODES = (
    "Exit codes: 0 ok, 1 a result is not as promised, 2 usage, 3 server unreachable, "
    "4 refused by the accelerator."
)
EXIT_CODES_WITH_TARGET = (
    f"{EXIT_CODES} TARGET is host:port or unix:/path; without one, a private server is started."
)
# Reasons of a server that was reached and cannot host, or run, the model.
_NOT_HOSTED = frozenset(("MODEL_INVALID", "NETWORK_FAILED", "NETWORK_NOT_READY"))
# Reasons of a server that was reached and knows no such machine, library or field.
_USAGE = frozenset(
    ("FIELD_INVALID", "FIELD_UNSPECIFIED", "LIBRARY_VERSION_UNKNOWN", "MACHINE_INVALID",
     "MACHINE_NOT_FOUND")
)  # fmt: skip
_OF_ONNX = frozenset(("jinja2", "onnx", "onnxruntime"))
_KEYWORD = re.compile(
    r"connect\((token)=\.\.\.\)|(?<!\S)(tls_(?:ca|cert|key))(?=[:,]?(?:\s|$))"
    r"|(?<!\S)(labels)=(?=['\"])"
)


class Unreachable(click.ClickException):
    """The server could not be reached, or did not take the call."""

    exit_code = UNREACHABLE


class RefusedByAccelerator(click.ClickException):
    """The accelerator answered with an error."""

    exit_code = REFUSED


@contextmanager
def reported() -> Generator[None]:
    """Turn the errors of a block into exit codes."""
    try:
        yield
    except TransportError as error:
        text = in_flags(str(error)) + _missing_extra(error)
        if error.reason in _NOT_HOSTED:
            raise RefusedByAccelerator(text) from error
        if error.reason in _USAGE:
            raise click.UsageError(text) from error
        raise Unreachable(text) from error
    except (ZdnnError, ProgramCheck, NetworkError) as error:
        raise RefusedByAccelerator(str(error)) from error
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _OF_ONNX:
            raise
        raise click.UsageError(f"{name} is not installed: {pip_install('onnx')}") from error
    except (ValueError, TypeError) as error:
        raise click.UsageError(in_flags(str(error))) from error


@contextmanager
def starting(program: str) -> Generator[None]:
    """Raise UsageError for a program that the block cannot start."""
    try:
        yield
    except OSError as error:
        raise click.UsageError(f"{program}: {error.strerror}") from error


def _missing_extra(error: TransportError) -> str:
    """Return the command that installs the packages for ONNX, if this installation lacks them."""
    is_onnx = error.reason == "EXTENSION_NOT_OFFERED" and error.metadata.get("field") == "onnx"
    return f" Here: {pip_install('onnx')}" if is_onnx and find_spec("onnx") is None else ""


def in_flags(text: str) -> str:
    """Return an error's text with flags of commands for keywords of Python that are options."""

    def flag(match: re.Match[str]) -> str:
        name = match[match.lastindex or 0].replace("_", "-")
        return f"--{name} " if match[0].endswith("=") else f"--{name}"

    return _KEYWORD.sub(flag, text)
