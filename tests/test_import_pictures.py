# SPDX-License-Identifier: Apache-2.0
"""The import contracts: pictures equal them, they cover every module, and no file imports back."""

import graphlib
import re
import tomllib

import grimp
import pytest

from tests.import_pictures import (
    ROOT,
    Contract,
    drawn,
    picture,
    read_contracts,
    stale,
)

PACKAGES = {
    "mli_emulator": "emulator",
    "nnpa_client": "client/python",
    "nnpa_emulator": "emulator",
    "nnpa_network": "emulator",
    "nnpa_server": "server",
    "nnpa_tools": "client/tools",
}
MAX_MODULES_OF_LAYER = 6
CONTRACTS = read_contracts()


def _packages_inside(package: str) -> list[str]:
    """Return the package and the packages inside it that have more than one member."""
    base = ROOT / PACKAGES[package]
    folders = [path.parent for path in sorted((base / package).rglob("__init__.py"))]
    return [
        ".".join(folder.relative_to(base).parts)
        for folder in folders
        if len([*folder.glob("[!_]*.py"), *folder.glob("*/__init__.py")]) > 1
    ]


def _covered() -> set[str]:
    """Return the packages whose members are all in an exhaustive or an independence contract."""
    with (ROOT / ".importlinter.toml").open("rb") as file:
        tables = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    covered = {
        name for contract in CONTRACTS if contract.exhaustive for name in contract.containers
    }
    for table in tables:
        if table["type"] == "independence":
            covered |= {name.removesuffix(".*") for name in table["modules"] if name.endswith(".*")}
    return covered


def _circle(imports: dict[str, set[str]]) -> list[str]:
    """Return a circle of imports, empty where there is none."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_pictures_equal_contracts() -> None:
    """The pictures in READMEs and pages show the import contracts."""
    assert stale() == []


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_layers_are_narrow(contract: Contract) -> None:
    """A layer has at most six modules that do not know each other."""
    wide = [layer for layer in contract.layers if len(layer) > MAX_MODULES_OF_LAYER]
    assert wide == []


@pytest.mark.parametrize("package", PACKAGES)
def test_contracts_cover_every_module(package: str) -> None:
    """Every package of more than one module is the container of an exhaustive contract."""
    assert sorted(set(_packages_inside(package)) - _covered()) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_imports(package: str) -> None:
    """No module imports back, not for types and not inside functions either."""
    graph = grimp.build_graph(package, cache_dir=None)
    modules = {module for module in graph.modules if not graph.find_children(module)}
    imports = {
        module: graph.find_modules_directly_imported_by(module) & modules for module in modules
    }
    assert _circle(imports) == []


def test_typescript_has_no_circle_of_imports() -> None:
    """No file of the TypeScript SDK imports back."""
    source = ROOT / "client/typescript/src"
    imports: dict[str, set[str]] = {}
    for path in source.rglob("*.ts"):
        names: list[str] = re.findall(r'from "(\.[^"]+)\.js"', path.read_text(encoding="utf-8"))
        imports[str(path)] = {str((path.parent / f"{name}.ts").resolve()) for name in names}
    assert len(imports) > 20
    assert _circle(imports) == []


CONTRACT = Contract("inside a", ("a",), (("b", "c"), ("d",)), exhaustive=True)


def test_a_picture_is_appended_renewed_and_removed() -> None:
    """A new contract gets a picture, a changed one another, a deleted one none."""
    first = drawn("# A\n", [CONTRACT])
    assert 'L0["b | c"]' in first
    assert "L0 --> L1" in first
    assert drawn(first, [CONTRACT]) == first
    changed = Contract("inside a", ("a",), (("b",), ("c",)), exhaustive=True)
    assert 'L0["b"]' in drawn(first, [changed])
    assert "mermaid" not in drawn(first, [])


def test_a_picture_stays_where_it_was_moved() -> None:
    """Text around a picture stays as it is."""
    text = f"# A\n\nBefore.\n\n{picture(CONTRACT)}\n\nAfter.\n"
    assert drawn(text, [CONTRACT]) == text
