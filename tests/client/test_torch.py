# SPDX-License-Identifier: Apache-2.0
"""`nnpa_client.torch` where its packages are absent; tests/torch has the rest."""

import subprocess
import sys

import pytest
from nnpa_wire.installation import pip_install

WITHOUT = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
sys.modules[{package!r}] = None
try:
    import nnpa_client.torch
except ModuleNotFoundError as error:
    print(error.name, error, sep=": ")
"""


@pytest.mark.parametrize("package", ["torch", "onnxscript"])
def test_a_missing_package_is_one_sentence(package: str) -> None:
    """Without a package of the extra, the import's error names it and the way to install it."""
    code = WITHOUT.format(package=package)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"nnpa_client.torch needs {package}: {pip_install('torch')}"
    assert ended.stdout == f"{package}: {expected}\n"
