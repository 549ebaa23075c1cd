# SPDX-License-Identifier: Apache-2.0
"""Builds libzdnn from source and puts it into the wheel."""

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "nnpa_libzdnn"
# What manylinux promises of a system, beside the loader. Source: PEP 600.
PROMISED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2"}


def platform_tag(library: Path) -> str:
    """Return manylinux with the newest glibc whose symbols a library needs, or linux.

    It is linux where the library needs more than manylinux promises, or no glibc.
    """
    command = ["objdump", "-p", str(library)]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = re.findall(r"NEEDED +(\S+)", symbols)
    needed = {name for name in names if not name.startswith("ld-linux")}
    versions = [(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)]
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not versions or needed - PROMISED:
        return plain
    major, minor = max(versions)
    return plain.replace("linux", f"manylinux_{major}_{minor}", 1)


class LibzdnnBuildHook(BuildHookInterface):  # type: ignore[type-arg] # untyped upstream
    """Runs `make install`; the wheel is for this platform and any Python 3."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Install into a folder of its own, and name its files to the builder."""
        source = Path(self.root).resolve().parent
        self._prefix = tempfile.TemporaryDirectory(prefix="nnpa-libzdnn-")
        prefix = Path(self._prefix.name)
        command = ["make", "-C", str(source), "install", f"PREFIX={prefix}"]
        subprocess.run(command, check=True, env=dict(os.environ))
        # A wheel has no links, and programs open the library by either name.
        for name in ("libzdnn", "libnnpa_network"):
            link = prefix / f"lib/{name}.so"
            link.unlink()
            shutil.copy2(prefix / f"lib/{name}.so.0", link)
        for path in sorted(prefix.rglob("*")):
            if path.is_file():
                place = f"{PACKAGE}/{path.relative_to(prefix)}"
                build_data["force_include"][str(path)] = place
        build_data["tag"] = f"py3-none-{platform_tag(prefix / 'lib/libzdnn.so.0')}"
        build_data["pure_python"] = False

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._prefix.cleanup()
