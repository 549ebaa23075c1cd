# SPDX-License-Identifier: Apache-2.0
"""Builds libzdnn from source and puts it into the wheel."""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "nnpa_libzdnn"


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
        link = prefix / "lib/libzdnn.so"
        link.unlink()
        shutil.copy2(prefix / "lib/libzdnn.so.0", link)
        for path in sorted(prefix.rglob("*")):
            if path.is_file():
                place = f"{PACKAGE}/{path.relative_to(prefix)}"
                build_data["force_include"][str(path)] = place
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False

    def finalize(self, *_build: Any) -> None:
        """Remove the folder."""
        self._prefix.cleanup()
