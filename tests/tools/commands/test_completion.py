# SPDX-License-Identifier: Apache-2.0
"""`nnpa completion`: scripts for shells, and their completions."""

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner
from nnpa_tools.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_one_of_its_shell(shell: str) -> None:
    """The script registers the completion of `nnpa`, and its shell can read it."""
    ended = CliRunner().invoke(main, ["completion", shell])
    assert ended.exit_code == 0, ended.output
    assert "_NNPA_COMPLETE" in ended.output
    if shutil.which(shell) is not None:
        read = subprocess.run([shell, "-n"], input=ended.output, text=True, check=False)
        assert read.returncode == 0


@pytest.mark.heavy
def test_commands_and_options_are_completed() -> None:
    """A shell gets the names of commands, and the options of a command."""
    for words, expected in (("nnpa de", "demo"), ("nnpa info --tls", "--tls-ca")):
        variables = {"_NNPA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}
        if words.count(" ") == 2:
            variables["COMP_CWORD"] = "2"
        ended = subprocess.run(
            [sys.executable, "-c", "from nnpa_tools.cli import main; main(prog_name='nnpa')"],
            env={**os.environ, **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert f"plain,{expected}" in ended.stdout.split()
