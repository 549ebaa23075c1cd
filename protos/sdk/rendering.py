# SPDX-License-Identifier: Apache-2.0
"""How the contract becomes an SDK's source: one template per file, the same model for all."""

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sdk.verbs import Contract

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Messages:
    """Committed messages and stubs of a language.

    `folder` below the SDK's home holds nothing else. `missing` returns what this machine lacks to
    make them, or "". `write` makes them in an empty folder.
    """

    folder: str
    missing: Callable[[], str]
    write: Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Sdk:
    """What is generated for one language.

    `home` is the SDK's folder, `sources` template name to the file below `home` that it makes.
    `filters` are the language's own filters for its templates. `messages` is None where the
    language's own build makes them.
    """

    name: str
    home: Path
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    filters: Mapping[str, Callable[..., str]] = field(default_factory=dict[str, Callable[..., str]])
    messages: Messages | None = None


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
        textwrap.fill(one, width - len(prefix), break_on_hyphens=False) for one in paragraphs
    ]
    lines = "\n\n".join(wrapped).splitlines()
    return "\n".join(f"{prefix}{line}".rstrip() for line in lines)


def render(sdk: Sdk, contract: Contract) -> dict[Path, str]:
    """Return the sources that an SDK's templates make of the contract, by file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = environment.filters
    filters |= {"pascal": pascal, "camel": camel, "comment": comment, **sdk.filters}
    return {
        sdk.home / path: environment.get_template(name).render(
            verbs=contract.verbs, enums=contract.enums
        )
        for name, path in sdk.sources.items()
    }
