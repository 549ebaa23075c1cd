# SPDX-License-Identifier: Apache-2.0
"""Builds libmli from source and puts it into the wheel."""

import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "nnpa_libmli"


def platform_tag(library: Path) -> str:
    """Return manylinux with the newest glibc whose symbols the library needs, or linux."""
    command = ["objdump", "-p", str(library)]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions = [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)]
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not versions:
        return plain
    major, minor = max(versions)
    return plain.replace("linux", f"manylinux_{major}_{minor}", 1)


class LibmliBuildHook(BuildHookInterface):  # type: ignore[type-arg] # untyped upstream
    """Runs `make install`; the wheel is for this platform and any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Install into a folder of its own, and name its files to the builder."""
        source = Path(self.root).resolve().parent
        self._folder = tempfile.TemporaryDirectory(prefix="nnpa-libmli-")
        prefix, out = (Path(self._folder.name) / name for name in ("prefix", "out"))
        command = ["make", "-C", str(source), "install", f"PREFIX={prefix}", f"OUT={out}"]
        subprocess.run(command, check=True)
        link = prefix / "lib/libmli.so"  # a wheel has no links
        link.unlink()
        shutil.copy2(prefix / "lib/libmli.so.0", link)
        for path in sorted(prefix.rglob("*")):
            if path.is_file():
                place = f"{PACKAGE}/{path.relative_to(prefix)}"
                build_data["force_include"][str(path)] = place
        build_data["tag"] = f"py3-none-{platform_tag(prefix / 'lib/libmli.so.0')}"
        build_data["pure_python"] = False

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._folder.cleanup()
