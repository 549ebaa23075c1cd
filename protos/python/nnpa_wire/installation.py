# SPDX-License-Identifier: Apache-2.0
"""The command that adds an extra to this installation, from where that came.

An installation from a clone, an archive or a repository has that in `direct_url.json`; one from an
index has none. Source: PyPA, "Recording the Direct URL Origin of installed distributions".
"""

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname


def pip_install(*extras: str) -> str:
    """Return the command that installs the package with these extras, as it can be pasted."""
    from importlib import metadata  # imports much, for a message that is hardly ever needed

    try:
        origin = metadata.distribution("nnpa").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    return f"pip install {_requirement(json.loads(origin or '{}'), ','.join(extras))}"


def _requirement(origin: dict[str, Any], extras: str) -> str:
    address = str(origin.get("url", ""))
    if not address:
        return shlex.quote(f"nnpa[{extras}]")
    if vcs := origin.get("vcs_info"):
        source = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
        return shlex.quote(f"nnpa[{extras}] @ {source}")
    parts = urlsplit(address)
    if parts.scheme != "file":
        return shlex.quote(f"nnpa[{extras}] @ {address}")
    path = url2pathname(parts.path)
    if not Path(path).exists():
        return f"{shlex.quote(f'.[{extras}]')} in a clone of nnpa"
    option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return option + shlex.quote(f"{path}[{extras}]")
