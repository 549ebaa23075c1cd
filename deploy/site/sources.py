# SPDX-License-Identifier: Apache-2.0
"""The site's pages: the repository's Markdown files, each at its path, so that links hold.

MkDocs calls `on_files`. A link of a page to a folder leads to the folder's README, one to another
file of the repository to a copy of that file; strict mode refuses a link that leads nowhere.
"""

import posixpath
import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", re.M | re.S)


def tracked() -> list[str]:
    """Return the paths of the repository's files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (TOP / name).is_file()]


def target(page: str, link: str) -> str:
    """Return the path in the repository that a page's link names; a folder is its README."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return f"{path}/README.md" if (TOP / path).is_dir() else path


def with_folders(page: str, text: str) -> str:
    """Return a page's text with each link to a folder leading to the folder's README."""

    def lead(match: re.Match[str]) -> str:
        link, anchor = match[1], match[2] or ""
        is_folder = (TOP / posixpath.dirname(page) / link).is_dir()
        return f"]({link.rstrip('/')}/README.md{anchor})" if is_folder else match[0]

    return _LINK.sub(lead, text)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return the Markdown files of the repository, the files that they link to, and the theme's."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    names = tracked()
    pages = [name for name in names if name.endswith(".md")]
    texts = {page: with_folders(page, (TOP / page).read_text(encoding="utf-8")) for page in pages}
    linked = {
        target(page, match[1])
        for page, text in texts.items()
        for match in _LINK.finditer(_CODE.sub("", text))
    }
    copies = sorted(linked & set(names) - set(pages))
    generated = [File.generated(config, page, content=text) for page, text in texts.items()]
    generated += [File.generated(config, name, abs_src_path=str(TOP / name)) for name in copies]
    return Files([*theme, *generated])
