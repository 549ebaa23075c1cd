# SPDX-License-Identifier: Apache-2.0
"""The promise of versions in pyproject.toml, and the file that `.ci/run` keeps it with."""

import json
import re
import tomllib
from pathlib import Path
from typing import TypedDict

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
_Project = TypedDict(
    "_Project", {"dependencies": list[str], "optional-dependencies": dict[str, list[str]]}
)


def _requirements(project: _Project, extra: str) -> dict[NormalizedName, Requirement]:
    """Return the requirements of an extra and of the extras it names, less the project itself."""
    requirements: dict[NormalizedName, Requirement] = {}
    for requirement in map(Requirement, project["optional-dependencies"][extra]):
        if requirement.name == "nnpa":
            for inner in requirement.extras:
                requirements |= _requirements(project, inner)
        else:
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


def test_the_core_needs_seven_packages() -> None:
    """A client needs gRPC, protobuf, arrays and YAML; all other packages come with an extra."""
    project: _Project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(each).name for each in project["dependencies"]} == {
        "googleapis-common-protos",
        "grpcio",
        "grpcio-status",
        "ml_dtypes",
        "numpy",
        "protobuf",
        "PyYAML",
    }


def test_lowest_versions_are_the_lower_bounds() -> None:
    """Every lower bound stands in .ci/lowest.txt and so is tested."""
    project: _Project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {
        canonicalize_name(requirement.name): requirement
        for requirement in map(Requirement, project["dependencies"])
    }
    direct |= _requirements(project, "test-core")
    lines = (ROOT / ".ci/lowest.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name, requirement in direct.items():
        bounds = re.findall(r">=\s*([0-9.]+)", str(requirement.specifier))
        assert bounds, f"{name} has no lower bound"
        assert _padded(pins[name]) == _padded(bounds[0]), f"{name}: {pins[name]}, not {bounds}"


def _padded(version: str) -> tuple[int, ...]:
    numbers = tuple(map(int, version.split(".")))
    return numbers + (0,) * (4 - len(numbers))


def _floor(text: str) -> tuple[int, ...]:
    """Return the least version of Node that a range of npm allows; none for any."""
    ends = [tuple(map(int, re.findall(r"[0-9]+", end))) for end in text.split("||")]
    return min((*end, 0, 0)[:3] for end in ends)


def test_floors_of_other_languages_are_true() -> None:
    """The manuals name the versions that the files of each language require."""
    readme = (ROOT / "README.md").read_text()
    typescript = ROOT / "client/typescript"
    manual = (typescript / "README.md").read_text()
    (to_run,) = re.findall(r"Node\.js ([0-9.]+) or newer, with types", manual)
    (to_build,) = re.findall(r"tools take Node\.js ([0-9.]+) or newer", manual)
    lock = json.loads((typescript / "package-lock.json").read_text())["packages"]
    floors = {name: _floor(package["engines"]["node"]) for name, package in lock.items()
              if "engines" in package and "node" in package["engines"]}  # fmt: skip
    used = {name: floor for name, floor in floors.items() if not lock[name].get("dev")}
    assert max(used.values()) == _floor(to_run) == _floor(lock[""]["engines"]["node"])
    assert max(floors.values()) <= _floor(to_build)
    assert f"Node {to_run}+" in readme
    (go,) = re.findall(r"^go ([0-9]+\.[0-9]+)", (ROOT / "client/go/go.mod").read_text(), re.M)
    assert f"[Go](client/go/README.md) {go}+" in readme
    (java,) = re.findall(r"compiler.release>([0-9]+)<", (ROOT / "client/java/pom.xml").read_text())
    assert f"[Java](client/java/README.md) {java}+" in readme
    cargo = tomllib.loads((ROOT / "client/libzdnn/Cargo.toml").read_text())["package"]
    assert f"Rust {cargo['rust-version']} and a C compiler" in readme
    assert (
        f"Rust {cargo['rust-version']} or newer" in (ROOT / "client/libzdnn/README.md").read_text()
    )
