# SPDX-License-Identifier: Apache-2.0
"""Output of commands: control characters of files and servers are printed as escapes."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return a text whose control characters are written out, such as \x1b; lines stay lines."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text with its control characters written out."""
    click.echo(visible(str(text)), err=err, nl=nl)


def json_option(help_text: str) -> Callable[..., Any]:
    """Return the option --json."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def print_json(document: object) -> None:
    """Print a document as JSON, which writes control characters out by itself."""
    click.echo(json.dumps(document, indent=2))


class Terminal(Console):
    """A console that takes no markup from texts, and writes out their control characters."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments to print, with control characters escaped."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)
