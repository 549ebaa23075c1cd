# SPDX-License-Identifier: Apache-2.0
"""The site's pages: Markdown, notebooks and the wire contract, each at its path, so links hold.

MkDocs calls `on_files`. A link of a page to a folder leads to the folder's README, one to a
notebook or a .proto to its page, one to another file of the repository to a copy of that file;
strict mode refuses a link that leads nowhere. NNPA_MERMAID names the script that draws pictures,
`mermaid.min.js`, which the site then serves itself; else readers load it from the theme's source.
"""

import os
import posixpath
import re
import subprocess
from pathlib import Path

import contract
import notebook
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

TOP = Path(__file__).resolve().parents[2]
PICTURES = "mermaid.min.js"
_PAGES = (".ipynb", ".proto")
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", re.M | re.S)


def tracked() -> list[str]:
    """Return the paths of the repository's files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (TOP / name).is_file()]


def page_of(path: str) -> str:
    """Return the page that shows a path of the repository: of a folder its README."""
    if (TOP / path).is_dir():
        return f"{path.rstrip('/')}/README.md"
    stem, suffix = posixpath.splitext(path)
    return f"{stem}.md" if suffix in _PAGES else path


def target(page: str, link: str) -> str:
    """Return the path in the repository that a page's link names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def linked(page: str, text: str) -> str:
    """Return a page's text with each link leading to the page that shows its target."""

    def lead(match: re.Match[str]) -> str:
        named = target(page, match[1])
        shown = posixpath.relpath(page_of(named), posixpath.dirname(page))
        return f"]({shown}{match[2] or ''})" if shown != match[1] else match[0]

    return _LINK.sub(lead, text)


def written(name: str) -> str:
    """Return a page of the repository as Markdown."""
    match posixpath.splitext(name)[1]:
        case ".ipynb":
            return notebook.executed(TOP / name)
        case ".proto":
            return contract.text(posixpath.relpath(name, "protos"))
    return (TOP / name).read_text(encoding="utf-8")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Return the configuration, with the script that draws pictures where it is at hand."""
    if os.environ.get("NNPA_MERMAID"):
        config.extra_javascript.append(PICTURES)
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Return the pages of the repository, the files that they link to, and the theme's files."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    names = tracked()
    sources = {page_of(name): name for name in names if name.endswith((".md", *_PAGES))}
    pages = {page: written(name) for page, name in sources.items()}
    named = {
        target(page, match[1])
        for page, text in pages.items()
        for match in _LINK.finditer(_CODE.sub("", text))
    }
    named |= {*config.extra_css}
    copies = sorted(named & set(names) - set(sources.values()))
    generated = [
        File.generated(config, page, content=linked(page, text)) for page, text in pages.items()
    ]
    generated += [File.generated(config, name, abs_src_path=str(TOP / name)) for name in copies]
    if script := os.environ.get("NNPA_MERMAID"):
        generated.append(File.generated(config, PICTURES, abs_src_path=script))
    return Files([*theme, *generated])
