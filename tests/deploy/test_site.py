# SPDX-License-Identifier: Apache-2.0
"""The site: tutorials and notebooks run as they stand, and its pages hold what they promise."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from google.protobuf.descriptor import Descriptor, FileDescriptor
from nnpa_server.__main__ import main as server
from nnpa_tools.cli import main as command

TOP = Path(__file__).parents[2]
SITE = TOP / "deploy/docs"
TUTORIALS = sorted((SITE / "tutorials").glob("*.md"))
NOTEBOOKS = sorted((SITE / "notebooks").glob("*.ipynb"))
SOURCES = sorted(
    str(path.relative_to(TOP / "protos")) for path in TOP.glob("protos/nnpa/**/*.proto")
)
_BLOCK = re.compile(r'^```(python|console)(?: title="(\S+)")?\n(.*?)^```$', re.M | re.S)


def program(language: str, text: str) -> list[str]:
    """Return the command that runs a block: Python, or the lines of a shell after "$ "."""
    if language == "python":
        return [sys.executable, "-W", "error", "-c", text]
    commands = re.findall(r"^\$ (.*)$", text, re.M)
    assert len(commands) == len(text.splitlines()), "a console shows commands alone"
    return ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]


@pytest.mark.heavy
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    """Blocks of a tutorial run in their order in an empty folder; one with a title is a file."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    blocks = _BLOCK.findall(path.read_text(encoding="utf-8"))
    assert blocks
    for language, title, text in blocks:
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
            continue
        ended = subprocess.run(
            program(language, text), cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"


@pytest.mark.heavy
def test_the_picture_of_the_front_page_is_the_demo_s_report() -> None:
    """The picture shows what `nnpa demo` prints today; deploy/docs/picture.py draws it."""
    demo = [sys.executable, "-m", "nnpa_tools", "demo"]
    report = subprocess.run(demo, capture_output=True, check=True, timeout=600)
    draw = [sys.executable, str(SITE / "picture.py")]
    drawn = subprocess.run(draw, input=report.stdout, capture_output=True, check=True)
    assert drawn.stdout == (SITE / "demo.svg").read_bytes()


def cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook that hold code."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def imported(path: Path) -> set[str]:
    """Return the packages that a notebook imports, without Python's own."""
    text = "\n".join("".join(cell["source"]) for cell in cells(path))
    nodes = [node for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_notebook_takes_is_said(path: Path) -> None:
    """A package that the README's first command does not bring is named before the notebook."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (*project["dependencies"], *extras["server"], *extras["onnx"])
    brought = {re.split(r"[^\w]", line)[0].lower() for line in lines} | {"nnpa_client"}
    text = (SITE / "ways.md").read_text(encoding="utf-8")
    before = text[text.index("Notebooks, which take") : text.index(path.name)]
    assert [name for name in sorted(imported(path) - brought)
            if f"pip install {name}" not in before] == []  # fmt: skip


def test_a_link_to_a_folder_leads_to_its_manual() -> None:
    """The site shows a folder by its README: a link to a folder without one leads nowhere."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=True
    )
    links = [
        (name, link)
        for name in listed.stdout.splitlines()
        for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", (TOP / name).read_text("utf-8"))
    ]
    assert links
    folders = [(name, link) for name, link in links if ((TOP / name).parent / link).is_dir()]
    lost = [pair for pair in folders
            if not ((TOP / pair[0]).parent / pair[1] / "README.md").is_file()]  # fmt: skip
    assert lost == []


def test_the_site_is_not_built_quietly() -> None:
    """MkDocs counts no warning that it does not print, so that --strict holds without -q alone."""
    builds = [line for line in (TOP / ".ci/run").read_text().splitlines() if "mkdocs" in line]
    assert [line for line in builds if re.search(r"build .*(-q|--quiet)\b", line)] == []
    assert any("--strict" in line for line in builds)


@pytest.mark.heavy
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """The cells of a notebook run in their order, without an exception or a warning."""
    for name in imported(path):
        pytest.importorskip(name)
    text = "\n".join("".join(cell["source"]) for cell in cells(path))
    environment = {**os.environ, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)}
    ended = subprocess.run(
        program("python", text), cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """A stored notebook holds no outputs: the build of the site makes them, so none is stale."""
    assert cells(path)
    assert [cell["id"] for cell in cells(path) if cell["outputs"] or cell["execution_count"]] == []


def contract() -> ModuleType:
    """Return the module that writes the pages of the wire contract."""
    spec = importlib.util.spec_from_file_location("contract", SITE / "contract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def messages(declared: FileDescriptor | Descriptor) -> Iterator[Descriptor]:
    """Yield the messages of a file and those inside them, less the entries of maps."""
    inner = (
        declared.message_types_by_name
        if isinstance(declared, FileDescriptor)
        else declared.nested_types_by_name
    )
    for message in inner.values():
        if not message.GetOptions().map_entry:
            yield message
            yield from messages(message)


def declared_names(file: FileDescriptor) -> Iterator[str]:
    """Yield what a page must hold of a file: headings of its declarations, cells of their parts."""
    for service in file.services_by_name.values():
        yield f"## {service.name} {{ #{service.full_name} }}"
        for method in service.methods:
            yield f"### {method.name} {{ #{method.full_name} }}"
    enums = list(file.enum_types_by_name.values())
    for message in messages(file):
        yield f"{{ #{message.full_name} }}"
        yield from (f"| `{field.name}` | {field.number} |" for field in message.fields)
        enums += message.enum_types_by_name.values()
    for enum in enums:
        yield f"{{ #{enum.full_name} }}"
        yield from (f"| `{value.name}` | {value.number} |" for value in enum.values)


@pytest.fixture(scope="module")
def wire_pages() -> dict[str, str]:
    """The pages of the wire contract by the names of their sources."""
    writer = contract()
    return {name: writer.text(name) for name in SOURCES}


@pytest.mark.parametrize("name", SOURCES)
def test_a_page_of_the_wire_contract_is_complete(name: str, wire_pages: dict[str, str]) -> None:
    """Each service, method, message, field, enum and value is there, with the source's comments."""
    page = wire_pages[name]
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    file: FileDescriptor = import_module(module).DESCRIPTOR
    assert [text for text in declared_names(file) if text not in page] == []
    source = (TOP / "protos" / name).read_text(encoding="utf-8").partition("syntax =")[2]
    comments = " ".join(re.findall(r"^ *// ?(.*)$", source, re.M))
    words = set(re.findall(r"[a-z]{4,}", comments))
    assert words <= set(re.findall(r"[a-z]{4,}", page))


def test_links_of_the_wire_contract_lead_to_declarations(wire_pages: dict[str, str]) -> None:
    """A type of a field or a method is a link to the heading of that type."""
    anchors = {
        (name, anchor)
        for name, page in wire_pages.items()
        for anchor in re.findall(r"\{ #(\S+) \}", page)
    }
    links = {
        (os.path.normpath(Path(name).parent / file) if file else name, anchor)
        for name, page in wire_pages.items()
        for file, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page)
    }
    assert links
    assert links <= anchors


def test_every_page_is_in_the_table_of_contents() -> None:
    """The table of contents names each page of the site's own once, and pages that exist."""
    text = (SITE / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"[\w./-]+\.md", text.partition("\nnav:\n")[2])
    own = {str(page.relative_to(TOP)) for page in SITE.rglob("*.md")}
    shown = [*NOTEBOOKS, *((TOP / "protos" / name) for name in SOURCES)]
    own |= {str(path.relative_to(TOP).with_suffix(".md")) for path in shown}
    assert own <= set(named)
    assert len(named) == len(set(named))
    assert [name for name in named if not (TOP / name).is_file() and name not in own] == []


def test_the_site_has_the_reader_s_scheme_and_whole_commands() -> None:
    """Light or dark as the reader's system says; a long command wraps instead of being cut."""
    text = (SITE / "mkdocs.yml").read_text(encoding="utf-8")
    schemes = dict(re.findall(r'prefers-color-scheme: (\w+)\)", scheme: (\w+)', text))
    assert schemes == {"light": "default", "dark": "slate"}
    (sheet,) = re.findall(r"^extra_css: \[(\S+)\]$", text, re.M)
    assert "white-space: pre-wrap" in (TOP / sheet).read_text(encoding="utf-8")


def test_the_manual_lists_every_flag_of_the_server() -> None:
    """Each flag of `nnpa-server --help` has a row on the page of flags, and each row a flag."""
    flags = {name for parameter in server.params for name in parameter.opts}
    rows = re.findall(r"^\| (`--.*?) \|", (SITE / "server/flags.md").read_text("utf-8"), re.M)
    documented = {name for row in rows for name in re.findall(r"--[a-z-]+", row)}
    assert documented == flags - {"--help", "-h", "--version"}


def test_the_manual_lists_every_command() -> None:
    """Each command of `nnpa` has a row on the page of commands, and each row a command."""
    page = (SITE / "tools/commands.md").read_text("utf-8")
    rows = re.findall(r"^\| \[?`nnpa (\w+)", page, re.M)
    assert sorted(rows) == sorted(command.list_commands(click.Context(command)))
