# SPDX-License-Identifier: Apache-2.0
"""How programs of the TypeScript SDK are built and started."""

import subprocess
from functools import cache
from pathlib import Path

TOOLS = ("node", "npm")
HOME = Path(__file__).parents[2] / "client/typescript"


@cache
def _built() -> Path:
    """Compile the SDK, its testee and its examples; return where they are."""
    if not (HOME / "node_modules").is_dir():
        subprocess.run(["npm", "ci"], cwd=HOME, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=HOME, check=True)
    return HOME / "dist"


def program(script: str) -> list[str]:
    """Return the command that runs a compiled script, such as "testee/main.js"."""
    return ["node", str(_built() / script)]
