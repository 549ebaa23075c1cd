# SPDX-License-Identifier: Apache-2.0
"""Which processes compile kernels, and when; those that run on references."""

import subprocess
import sys
from pathlib import Path

import pytest
from nnpa_emulator import FUNCTIONS, ops

# Vectors of these run without a compiler: the everyday first calls of a session.
FIRST = (
    *(name for name in FUNCTIONS if hasattr(ops.elementwise, name)),
    *(name for name in FUNCTIONS if hasattr(ops.activation, name) and "softmax" not in name),
    "transform_ztensor", "transform_ztensor_with_saturation", "transform_origtensor",
    "getrange_ztensor", "allochelper_ztensor", "reshape_ztensor",
)  # fmt: skip


def lines_of(script: str) -> list[str]:
    """Run a script in a process of its own, in the root of the tree; return its lines."""
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=root
    )
    return run.stdout.splitlines()


BESIDE = """
import sys, threading
import numpy as np
from nnpa_emulator.kernels import elementwise, jit, padding

class Compiler:
    has_kernels = False
    def __init__(self): self.asked = []
    def load(self): self.asked.append("load")
    def compile(self, name, signature): self.asked.append(name)

def add(pages=1, count=1):
    codes = np.zeros(2048 * pages, np.uint16)
    for _ in range(count):
        elementwise.binary(0, codes, codes, codes, (pages, 1, 1, 32, 64), False)

compiler = Compiler()
jit.compile_by(compiler)
"""
FIRST_CALLS = f"""
{BESIDE}
from tests import vector_runner
from tests.emulator.target import emulator

def run():
    for name in {FIRST!r}:
        for vector in vector_runner.read(vector_runner.VECTORS / (name + ".jsonl")):
            if "dimension_too_large" not in str(vector):
                vector_runner.run(vector, emulator)

run()
print("numba" in sys.modules, hasattr(elementwise.binary, "py_func"))
jit.load()
run()
print(hasattr(elementwise.binary, "py_func"), len(elementwise.binary.signatures))
jit.compile_by(None)
add()
print(len(elementwise.binary.signatures))
names = [vars(one) for name, one in sys.modules.items() if name.startswith("nnpa_emulator")]
print([name for one in names for name in one if isinstance(one[name], jit.Kernel)])
"""


@pytest.fixture
def no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes of a test find no kernel that was compiled before."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


@pytest.mark.heavy
@pytest.mark.usefixtures("no_kernels")
def test_first_calls_need_no_compiler() -> None:
    """First calls neither import Numba nor compile once it is there; bits are the vectors'."""
    assert lines_of(FIRST_CALLS) == ["False False", "True 0", "1", "[]"]


OFTEN = f"""
{BESIDE}
add(count=2047)
print(compiler.asked)
add()
print(compiler.asked)
jit.load()
add(count=3)
print(compiler.asked, elementwise.binary.signatures)
padding.clear_padding(np.zeros(2048, np.uint16), (1, 1, 1, 1), (1, 1, 1))
print(compiler.asked)
"""


@pytest.mark.heavy
@pytest.mark.usefixtures("no_kernels")
def test_a_kernel_is_compiled_after_many_calls() -> None:
    """2,048 small calls ask for Numba, then for the kernel, once; calls go on by the reference."""
    requests = "['load', 'elementwise.binary']"
    assert lines_of(OFTEN) == ["[]", "['load']", f"{requests} []", requests]


BYTES = f"""
{BESIDE}
add(2000, 5)
print(compiler.asked)
add(2000)
print(compiler.asked)
jit.load()
codes = np.frombuffer(bytes(4096 * 2000), np.uint16)
for _ in range(6):
    out = np.zeros(2048 * 2000, np.uint16)
    elementwise.binary(0, codes, codes, out, (2000, 1, 1, 32, 64), False)
print(compiler.asked)
"""


@pytest.mark.heavy
@pytest.mark.usefixtures("no_kernels")
def test_a_kernel_is_compiled_after_many_bytes() -> None:
    """128 MiB of operands ask for a kernel as 2,048 small calls do."""
    assert lines_of(BYTES) == ["[]", "['load']", "['load', 'elementwise.binary']"]


SOON = f"""
{BESIDE}
compiler.has_kernels = True
add(count=255)
print(compiler.asked)
add()
print(compiler.asked)
"""


@pytest.mark.heavy
def test_kernels_on_disk_are_loaded_sooner() -> None:
    """Where kernels are compiled already, Numba is imported after 256 small calls."""
    assert lines_of(SOON) == ["[]", "['load']"]


CACHED_KERNEL = f"""
from nnpa_server.config import kernel_cache
kernel_cache()
{BESIDE}
jit.load()
add()
print(len(elementwise.binary.signatures))
jit.compile_by(None)
add()
print(len(elementwise.binary.signatures))
"""


@pytest.mark.heavy
@pytest.mark.usefixtures("no_kernels")
def test_a_kernel_on_disk_is_loaded_at_once() -> None:
    """A process with Numba loads a cached kernel at its first call, without an order to compile."""
    assert lines_of(CACHED_KERNEL) == ["0", "1"]
    assert lines_of(CACHED_KERNEL) == ["1", "1"]


LARGE = f"""
{BESIDE}
for pages in (2000, 3000):
    add(pages)
    print("numba" in sys.modules)
print(len(elementwise.binary.signatures))
"""


@pytest.mark.heavy
def test_large_operands_are_for_the_compiled_kernel() -> None:
    """Operands of more than 32 MiB together do not take a reference's time and memory."""
    assert lines_of(LARGE) == ["False", "True", "1"]


EVERY_VECTOR = """
import sys
from tests import vector_runner
from tests.emulator.target import emulator

for path in vector_runner.VECTORS.glob("*.jsonl"):
    for vector in vector_runner.read(path):
        vector_runner.run(vector, emulator)
print([name for name in ("numba", "llvmlite") if name in sys.modules])
"""
WITHOUT_NUMBA = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
{EVERY_VECTOR}
"""
BY_REFERENCE = f"""
from nnpa_emulator.kernels import use_reference

use_reference()
{EVERY_VECTOR}
"""


@pytest.mark.heavy
@pytest.mark.parametrize("script", [WITHOUT_NUMBA, BY_REFERENCE], ids=["without", "unused"])
def test_no_compiler_is_needed(script: str) -> None:
    """Where Numba is missing, or references are to be used, every vector keeps its bits."""
    assert lines_of(script) == ["[]"]


SWITCHED = """
import numpy as np
from nnpa_emulator import kernels
from nnpa_emulator.kernels import elementwise
from nnpa_emulator.reference import elementwise as reference

codes = np.zeros(2048, np.uint16)
elementwise.binary(0, codes, codes, codes, (1, 1, 1, 32, 64), False)
print(elementwise.binary is reference.binary)
kernels.use_reference()
from nnpa_emulator.kernels import pooling
print(elementwise.binary is reference.binary, pooling.average.__module__)
"""


@pytest.mark.heavy
def test_references_take_the_places_of_kernels() -> None:
    """The switch holds for kernels that are compiled already, and for those imported later."""
    assert lines_of(SWITCHED) == ["False", "True nnpa_emulator.reference.pooling"]


NARROW = """
import numpy as np
from nnpa_emulator.kernels import jit, registers, sticks
from nnpa_server.tuning import warmup

jit.load()
for name in ("transform FP32", "matmul_op"):
    warmup.steps()[name]()
print(len(sticks.stickify_fp32.signatures))
signatures = registers.accumulate.signatures + sticks.encode_page.signatures
print(len(signatures) > 1, [one for one in signatures if "Literal" in str(one)])
"""


@pytest.mark.heavy
@pytest.mark.usefixtures("no_kernels")
def test_a_kernel_is_compiled_for_types_and_not_for_values() -> None:
    """Constants of callers, and whether an array may be written, are no kernels of their own."""
    assert lines_of(NARROW) == ["1", "True []"]
