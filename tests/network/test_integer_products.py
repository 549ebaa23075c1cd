# SPDX-License-Identifier: Apache-2.0
"""UINT8 times INT8 in the FP32 baseline and on the host, on processors with VNNI and without."""

import json
import platform
import shutil
import subprocess
import sys

import pytest

from tests.network.integer_products import errors

PROGRAM = "tests.network.integer_products"


def test_products_are_exact_here() -> None:
    """Integer products at full scale are NumPy's on this processor, wherever they run."""
    assert set(errors().values()) == {0.0}


@pytest.mark.heavy
@pytest.mark.parametrize("processor", ["Haswell-noTSX", "Nehalem"])
def test_products_are_exact_without_vnni(processor: str) -> None:
    """On a processor without VNNI, which AVX2 and SSE4 then stand in for, they are exact, too."""
    if platform.machine() != "x86_64" or shutil.which("qemu-x86_64") is None:
        pytest.skip("takes an x86-64 host with qemu-x86_64")
    command = ["qemu-x86_64", "-cpu", processor, sys.executable, "-m", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert len(result) == 21
    assert {where: error for where, error in result.items() if error} == {}
