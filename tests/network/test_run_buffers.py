# SPDX-License-Identifier: Apache-2.0
"""Tensors of a finished run serve the next run of the same program, within a limit."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest
from nnpa_emulator.machine import Memory, page_memory
from nnpa_network.importing.onnx_import import import_onnx
from nnpa_network.running import run_buffers
from nnpa_network.running.executor import Executor
from onnx import TensorProto, helper, numpy_helper

from tests.server.onnx_models import Array, binary, dense

pytestmark = pytest.mark.shortcut
SHAPE = (2, 65)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    """Nothing is kept before a test, and nothing after."""
    gc.collect()
    assert run_buffers.kept_bytes() == 0
    yield
    gc.collect()
    assert run_buffers.kept_bytes() == 0


def _executor(model: bytes = b"", guest: Guest | None = None) -> Executor:
    hosted = import_onnx(model or binary("Add", ("n", "m")), guest or Guest(MACHINES["telum2"]))
    shapes = {
        port.name: tuple(
            free if size < 0 else size for free, size in zip(SHAPE, port.shape, strict=True)
        )
        for port in hosted.inputs
    }
    return hosted.executor(shapes)


def _feeds(executor: Executor, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    ports = executor.program.inputs
    return {
        port.name: rng.integers(0, 99, [abs(size) for size in port.shape]).astype(port.dtype)
        for port in ports
    }


def _matmul_integer() -> bytes:
    """Return a model whose output comes from sticks of its own type."""
    a = helper.make_tensor_value_info("a", TensorProto.UINT8, [4, 8])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [4, 8])
    weights = numpy_helper.from_array(np.arange(64, dtype=np.uint8).reshape(8, 8), "w")
    node = helper.make_node("MatMulInteger", ["a", "w"], ["y"])
    graph = helper.make_graph([node], "g", [a], [y], [weights])
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets).SerializeToString()


@pytest.mark.parametrize("name", ["add", "integers"])
def test_an_answer_does_not_change_when_its_buffers_serve_again(name: str) -> None:
    """What a run returned is the caller's: later runs over the same buffers leave it alone."""
    executor = _executor(b"" if name == "add" else _matmul_integer())
    first = [executor.run(_feeds(executor, seed)).outputs for seed in range(3)]
    copies = [{key: array.copy() for key, array in outputs.items()} for outputs in first]
    second = [executor.run(_feeds(executor, seed)).outputs for seed in range(3)]
    for outputs, copy, repeated in zip(first, copies, second, strict=True):
        for key in outputs:
            assert outputs[key].tobytes() == copy[key].tobytes() == repeated[key].tobytes()


def test_a_run_takes_the_buffers_of_an_earlier_one() -> None:
    """A second run allocates nothing."""
    sizes: list[int] = []

    def counted(size: int) -> Memory | None:
        sizes.append(size)
        return page_memory(size)

    executor = _executor()
    executor.guest.allocate = counted
    executor.run(_feeds(executor, 1))
    assert len(sizes) == 3
    executor.run(_feeds(executor, 2))
    assert len(sizes) == 3
    assert run_buffers.kept_bytes() == sum(sizes)


def test_runs_at_the_same_time_agree_with_runs_one_by_one() -> None:
    """Threads that share a program never share buffers."""
    executor, alone = _executor(dense()), _executor(dense())

    def answer(executor: Executor, seed: int) -> bytes:
        return b"".join(
            array.tobytes() for array in executor.run(_feeds(executor, seed)).outputs.values()
        )

    expected = [answer(alone, seed) for seed in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(partial(answer, executor), range(40))) == expected


def test_a_run_that_failed_keeps_nothing() -> None:
    """Only a run that ended well leaves its buffers."""
    executor = _executor()
    executor.guest.allocate = lambda _size: None
    with pytest.raises(RuntimeError, match="allocat"):
        executor.run(_feeds(executor, 1))
    assert run_buffers.kept_bytes() == 0


def test_memory_that_somebody_counts_is_not_kept() -> None:
    """A guest with an account of its own gets every tensor back when it is dead."""
    guest = Guest(MACHINES["telum2"], allocate=partial(page_memory))
    executor = _executor(guest=guest)
    executor.run(_feeds(executor, 1))
    assert run_buffers.kept_bytes() == 0


def test_the_least_recently_used_program_loses_its_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All buffers of the process stay below the limit."""
    executors = [_executor() for _ in range(3)]
    executors[0].run(_feeds(executors[0], 1))
    size = run_buffers.kept_bytes()
    monkeypatch.setattr(run_buffers, "MAX_KEPT_BYTES", 2 * size)
    executors[1].run(_feeds(executors[1], 1))
    executors[2].run(_feeds(executors[2], 1))
    assert run_buffers.kept_bytes() == 2 * size
    del executors[1:]
    gc.collect()
    assert run_buffers.kept_bytes() == 0
