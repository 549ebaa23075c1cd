# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`; it says how to install packages that are missing."""

import sys

from nnpa_wire.installation import pip_install

_EXTRA = ("click", "elftools", "jinja2", "rich")
"""Modules of the extra `tools`."""


def main() -> int:
    """Run the command; return 2 where the extra `tools` is not installed."""
    try:
        from nnpa_tools.cli import main as command
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(f"nnpa: {error.name} is not installed: {pip_install('tools')}", file=sys.stderr)
        return 2
    command(prog_name="nnpa")
    return 0


if __name__ == "__main__":
    sys.exit(main())
