# SPDX-License-Identifier: Apache-2.0
"""Builds a C library from source and puts it into its wheel: libzdnn, libmli or nnpa-trap."""

import re
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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


class LibraryBuildHook(BuildHookInterface):  # type: ignore[type-arg] # untyped upstream
    """Runs `make install`; the wheel is for any Python 3.

    `folder` is the part of the prefix that goes into the package, all of it by default. `library`
    is a file of it that runs on the host: the wheel is for its platform, without it for any.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        """Install into a folder of its own, and name its files to the builder."""
        source = Path(self.root).resolve().parent
        (package,) = self.build_config.packages
        self._temporary = tempfile.TemporaryDirectory(prefix=f"{package}-")
        prefix, out = (Path(self._temporary.name) / name for name in ("prefix", "out"))
        places = "DESTDIR=", f"PREFIX={prefix}", f"OUT={out}"
        command = ["make", "-C", str(source), "install", *places]
        subprocess.run(command, check=True)
        folder = prefix / self.config.get("folder", "")
        for path in sorted(folder.rglob("*")):  # links become copies: programs open either name
            if path.is_file():
                build_data["force_include"][str(path)] = f"{package}/{path.relative_to(folder)}"
        if not build_data["force_include"]:
            raise FileNotFoundError(f"{folder}: `make install` of {source} put no file there")
        if "library" in self.config:
            build_data["tag"] = f"py3-none-{platform_tag(folder / self.config['library'])}"
            build_data["pure_python"] = False

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._temporary.cleanup()
