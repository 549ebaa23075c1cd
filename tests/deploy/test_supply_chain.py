# SPDX-License-Identifier: Apache-2.0
"""The image's packages are locked by hash and listed with licences; it installs no others."""

import hashlib
import re
import tomllib
from importlib.metadata import Distribution, distribution, distributions
from os import PathLike
from pathlib import Path
from typing import Any, cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import lock, sbom

TOP = Path(__file__).parents[2]
TEXT = lock.LOCK.read_text(encoding="utf-8")
BUILD_TEXT = lock.BUILD_LOCK.read_text(encoding="utf-8")


def required() -> list[Requirement]:
    """Return what `nnpa[server,onnx]` requires."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = project["dependencies"] + extras["server"] + extras["tools"] + extras["onnx"]
    return [each for each in map(Requirement, named) if each.name != "nnpa"]


def locked(python: tuple[int, int]) -> dict[str, str]:
    """Return the versions that are locked for a Python, by name."""
    text = lock.for_python(TEXT, f"{python[0]}.{python[1]}")
    names = re.findall(r"^(\S+)==(\S+) \\$", text, re.M)
    assert len(names) == len(dict(names))
    return dict(names)


@pytest.mark.parametrize("python", lock.PYTHONS, ids=str)
def test_the_lock_has_what_the_server_requires(python: tuple[int, int]) -> None:
    """For every Python each requirement is locked once, at a version that it allows."""
    versions = locked(python)
    for requirement in required():
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_the_build_is_locked() -> None:
    """Each build requirement of pyproject.toml is locked, at the image's version."""
    versions = dict(re.findall(r"^(\S+)==(\S+) \\$", BUILD_TEXT, re.M))
    for requirement in map(Requirement, lock.build_requirements()):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])
    both = versions.keys() & locked(lock.PYTHONS[0]).keys()
    assert {name: versions[name] for name in both}.items() <= locked(lock.PYTHONS[0]).items()


@pytest.mark.parametrize("text", [TEXT, BUILD_TEXT], ids=["requirements", "build"])
def test_every_locked_package_has_hashes_and_no_address(text: str) -> None:
    """Each line of a lock is a version or a SHA-256; no index, host or file is named."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    version = re.compile(r"[a-z0-9-]+==[0-9a-z.]+( ; python_full_version [<>=]+ '[0-9.*]+')? \\")
    digest = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    for line, following in zip(lines, [*lines[1:], "end"], strict=True):
        assert version.fullmatch(line) or digest.fullmatch(line), line
        assert line.endswith("\\") == following.startswith("    --hash"), line
    assert any(map(version.fullmatch, lines))
    assert not re.search(r"://|index|host|find-links", text)


def test_wheels_for_both_machines_are_locked() -> None:
    """A package of native code has a wheel for each Python and machine; any other has one."""
    counts = {
        match[1]: match[0].count("--hash")
        for match in re.finditer(r"^(\S+==\S+).*\n(?:    --hash.*\n)+", TEXT, re.M)
    }
    native = {"grpcio", "numba", "onnxruntime", "markupsafe"}
    for requirement, count in counts.items():
        if requirement.partition("==")[0] in native:
            assert count >= len(lock.PYTHONS) * len(lock.MACHINES), requirement
    assert counts[next(name for name in counts if name.startswith("click=="))] == 1


def test_the_image_is_made_of_the_lock() -> None:
    """The image installs by hash, and no digest or index of ours is in its files."""
    dockerfile = (TOP / "deploy/Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install [^&]*", dockerfile.replace("\\\n", ""))
    assert len(installs) == 3
    for install, name in zip(installs, ("build", "requirements"), strict=False):
        assert "--require-hashes" in install
        assert f"-r /deploy/{name}.lock" in install
    assert "--no-index --no-deps" in installs[2]
    for path in (TOP / "deploy").glob("*ockerfile"):
        assert "@sha256:" not in path.read_text(encoding="utf-8")
    assert re.findall(r"^FROM (\S+)", dockerfile, re.M) == ["${BASE}", "${BASE}", "bare", "bare"]


def test_hashes_are_those_of_what_was_installed(tmp_path: Path) -> None:
    """The hash of a package is its wheel's, found by the package's name."""
    wheel = tmp_path / "ml_dtypes-0.6.0-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"wheel")
    assert sbom.digests([wheel]) == {"ml-dtypes": hashlib.sha256(b"wheel").hexdigest()}


@pytest.mark.heavy
def test_the_bill_of_materials_lists_this_environment() -> None:
    """Every package is a component with licences and hash; dependencies are components."""
    packages = {package.name: package.version for package in distributions()}
    wheels = {sbom.normalized(name): "0" * 64 for name in packages}
    bill: Any = sbom.bill(wheels)
    parts = [bill["metadata"]["component"], *bill["components"]]
    python = [part for part in parts if str(part.get("purl")).startswith("pkg:pypi/")]
    assert {part["name"]: part["version"] for part in python} == packages
    parts += [inner for part in python for inner in part.get("components", ())]
    assert all(part["licenses"] for part in parts)
    assert all(part["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}] for part in python)
    references = [part["bom-ref"] for part in parts]
    assert len(references) == len(set(references))
    for dependency in bill["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= set(references)
    assert parts[0]["name"] == "nnpa"
    numba = next(entry for entry in bill["dependencies"] if "/numba@" in entry["ref"])
    assert any("/llvmlite@" in name for name in numba["dependsOn"])
    assert sbom.bill(wheels) == bill


def test_what_wheels_bring_along_is_listed() -> None:
    """Libraries inside a wheel are named with the licences that the wheel states for them."""
    inside = {part["name"]: part["licenses"] for part in sbom.bundled(distribution("numpy"))}
    assert inside["OpenBLAS"] == [{"license": {"name": "BSD-3-Clause"}}]
    inside = {part["name"]: part["licenses"] for part in sbom.bundled(distribution("onnx"))}
    assert inside["protobuf"] == [{"license": {"id": "BSD-3-Clause"}}]
    notices = map(str, sbom.notices(distribution("onnxruntime")))
    assert "onnxruntime/ThirdPartyNotices.txt" in notices


class Wheel(Distribution):
    """A package of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        """Return the text of a file of metadata."""
        path = self._folder / "wheel.dist-info" / filename
        return path.read_text(encoding="utf-8") if path.exists() else None

    def locate_file(self, path: str | PathLike[str]) -> Path:
        """Return where a file of the package is."""
        return self._folder / path


def test_libraries_that_no_notice_names(tmp_path: Path) -> None:
    """A library beside a wheel's own files is listed, even if no notice names it."""
    contents = {
        "wheel.dist-info/METADATA": "Name: wheel\nVersion: 1\n",
        "wheel.dist-info/LICENSE": "Name: A\nFiles: wheel.libs/liba*.so\nText\nLicense: MIT\n",
        "wheel.libs/liba-1.so.2": "",
        "wheel.libs/libb.so": "",
    }
    names = [*contents, "wheel.dist-info/RECORD", "wheel.libs/removed.so"]
    contents["wheel.dist-info/RECORD"] = "".join(f"{name},,\n" for name in names)
    for name, text in contents.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    noted = [{"license": {"name": "see the wheel's notices"}}]
    assert [(part["name"], part["licenses"]) for part in sbom.bundled(Wheel(tmp_path))] == [
        ("A", [{"license": {"name": "MIT"}}]),
        ("libb.so", noted),
    ]


def test_licences_of_debians_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copyright file that programs can read gives names; of any other its place is told."""
    texts = {
        "readable": "Format: 1.0\n\nFiles: *\nLicense: GPL-2+\n text\n\nLicense: Expat\n text\n",
        "prose": "This package was put together by hand.\nLicense: see below\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "copyright").write_text(text)
    monkeypatch.setattr(sbom, "_DOCUMENTS", tmp_path)

    def names(package: str) -> list[str]:
        return [entry["license"]["name"] for entry in cast("Any", sbom.debian_licences(package))]

    assert names("readable") == ["Expat", "GPL-2+"]
    assert names("prose") == [f"see {tmp_path}/prose/copyright"]
    assert names("missing") == [f"see {tmp_path}/missing/copyright"]
