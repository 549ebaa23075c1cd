# SPDX-License-Identifier: Apache-2.0
"""Render source files from the contract: one template per kind of file, one model for all."""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sdk.mli import kernels
from sdk.texts import texts
from sdk.verbs import Contract, Verb

ROOT = Path(__file__).resolve().parent.parent.parent
# How a generated block of a hand-written file begins and ends, by suffix; and inside a line.
_MARKERS = {
    ".md": ("<!--\n# generated: begin {}\n-->", "<!-- generated: end -->"),
    ".py": ("# generated: begin {}", "# generated: end"),
    ".h": ("// generated: begin {}", "// generated: end"),
}
_INSIDE_A_LINE = ("<!-- generated: {} -->", "<!-- /generated -->")


@dataclass(frozen=True, slots=True)
class Messages:
    """Committed messages and stubs of a language.

    `folder` below the SDK's home holds nothing else. `missing` returns what this machine lacks to
    generate them, or "". `write` generates them in an empty folder.
    """

    folder: str
    missing: Callable[[], str]
    write: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class File:
    """A file that a template generates, or a block of it between markers with the name `block`.

    `path` is below the SDK's home. `select` chooses the verbs that the template gets.
    """

    path: str
    template: str
    block: str = ""
    select: Callable[[Verb], bool] = lambda _verb: True


@dataclass(frozen=True, slots=True)
class Sdk:
    """The files to generate for one language.

    `home` is the SDK's folder. `filters` are the language's own filters for its templates,
    `spelling` its names in the texts of `sdk.texts`, if it has any. `messages` is None where the
    language's own build generates them.
    """

    name: str
    home: Path
    files: tuple[File, ...]
    filters: Mapping[str, Callable[..., object]] = field(
        default_factory=dict[str, Callable[..., object]]
    )
    messages: Messages | None = None
    spelling: Mapping[str, str] = field(default_factory=dict[str, str])


def pascal(name: str) -> str:
    """Return `matmul_op` as `MatmulOp`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def camel(name: str) -> str:
    """Return `input_a` as `inputA`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def comment(text: str | Iterable[str], prefix: str, width: int = 100) -> str:
    """Wrap one paragraph, or several with an empty comment line between, each line prefixed."""
    paragraphs = [text] if isinstance(text, str) else list(text)
    wrapped = [
        textwrap.fill(paragraph, width - len(prefix), break_on_hyphens=False)
        for paragraph in paragraphs
    ]
    lines = "\n\n".join(wrapped).splitlines()
    return "\n".join(f"{prefix}{line}".rstrip() for line in lines)


def render(sdk: Sdk, contract: Contract) -> dict[Path, str]:
    """Return the sources that an SDK's templates generate from the contract, by file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = environment.filters
    filters |= {"pascal": pascal, "camel": camel, "comment": comment, **sdk.filters}
    rendered: dict[Path, str] = {}
    spelled = texts(contract.enums, sdk.spelling)
    for file in sdk.files:
        text = environment.get_template(file.template).render(
            verbs=[verb for verb in contract.verbs if file.select(verb)],
            enums=contract.enums,
            kernels=kernels(contract.kernels),
            **spelled,
        )
        path = sdk.home / file.path
        if file.block:
            whole = rendered.get(path) or path.read_text(encoding="utf-8")
            text = _replace_block(whole, file, text)
        rendered[path] = text
    return rendered


def _replace_block(whole: str, file: File, text: str) -> str:
    """Return a hand-written file with the text between the markers of a block replaced."""
    has_lines = text.endswith("\n")
    begin, end = _MARKERS[Path(file.path).suffix] if has_lines else _INSIDE_A_LINE
    begin = begin.format(file.block) + ("\n" if has_lines else "")
    pattern = re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)
    if len(pattern.findall(whole)) != 1:
        raise SystemExit(f"{file.path}: expected one block between {begin!r} and {end!r}")
    return pattern.sub(lambda _match: text, whole)
