# SPDX-License-Identifier: Apache-2.0
"""The promise of versions in pyproject.toml, and the file that `.ci/run` keeps it with."""

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
    """Return what an extra requires, with the extras it names, less the project itself."""
    requirements: dict[NormalizedName, Requirement] = {}
    for requirement in map(Requirement, project["optional-dependencies"][extra]):
        if requirement.name == "nnpa":
            for inner in requirement.extras:
                requirements |= _requirements(project, inner)
        else:
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


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
