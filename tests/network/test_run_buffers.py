# SPDX-License-Identifier: Apache-2.0
"""Tensors of a run share an arena, which serves the next run of the same program."""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnpa_emulator import MACHINES, Guest, interruption
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.machine import Memory, page_memory
from nnpa_emulator.ztensor import PAGE
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.running import run_buffers
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import Result
from nnpa_network.shortcuts import SHORTCUTS
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.network import small_models
from tests.server.onnx_models import Array, binary, dense

pytestmark = pytest.mark.shortcut
SHAPE = (2, 65)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test keeps arenas of its own, and leaves nothing: models of others may still live."""
    monkeypatch.setattr(run_buffers, "_kept", type(vars(run_buffers)["_kept"])())
    yield
    gc.collect()
    assert run_buffers.kept_bytes() == 0


def _executor(
    model: bytes = b"", guest: Guest | None = None, shortcuts: frozenset[str] = SHORTCUTS
) -> Executor:
    hosted = import_onnx(
        model or binary("Add", ("n", "m")),
        guest or Guest(MACHINES["telum2"]),
        ImportOptions(shortcuts=shortcuts),
    )
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


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["add", "integers"])
def test_an_answer_does_not_change_when_its_buffers_serve_again(name: str) -> None:
    """A run's outputs belong to the caller: later runs over the same buffers leave them alone."""
    executor = _executor(b"" if name == "add" else _matmul_integer())
    first = [executor.run(_feeds(executor, seed)).outputs for seed in range(3)]
    copies = [{key: array.copy() for key, array in outputs.items()} for outputs in first]
    second = [executor.run(_feeds(executor, seed)).outputs for seed in range(3)]
    for outputs, copy, repeated in zip(first, copies, second, strict=True):
        for key in outputs:
            assert outputs[key].tobytes() == copy[key].tobytes() == repeated[key].tobytes()


class Arenas:
    """Memory for arenas, full of NINF whenever a run begins; sticks of constants are zero first."""

    def __init__(self) -> None:
        self.made: list[Memory] = []
        self.allocate = self._allocate  # one object, as `page_memory` is

    def guest(self, machine: str = "telum2") -> Guest:
        """Return a guest whose memory is not counted."""
        return Guest(MACHINES[machine], allocate=self.allocate)

    def _allocate(self, size: int, *, zeroed: bool = True) -> Memory | None:
        memory = page_memory(size)
        if not zeroed and memory is not None:
            self.made.append(memory)
            self.poison()
        return memory

    def poison(self) -> None:
        """Fill the arenas with numbers that no later run may read."""
        for memory in self.made:
            memory.view(np.uint16).fill(NINF)


@pytest.fixture
def arenas(monkeypatch: pytest.MonkeyPatch) -> Arenas:
    """Every arena of the test."""
    memory = Arenas()
    monkeypatch.setattr(run_buffers, "page_memory", memory.allocate)
    return memory


def _facts(result: Result) -> list[object]:
    """Return everything that a run tells."""
    outputs = [(name, array.dtype, array.tobytes()) for name, array in result.outputs.items()]
    warnings = [
        (each.node, each.verb, each.status, repr(each.violation)) for each in result.violations
    ]
    return [outputs, warnings, result.nans, result.calls]


def _chain(steps: Sequence[tuple[str, int, int]]) -> bytes:
    """Return a model of steps, each of an operator and the values that it reads, modulo."""
    names = ["a", "b"]
    nodes = list[NodeProto]()
    for number, (op_type, first, second) in enumerate(steps):
        inputs = [names[first % len(names)]]
        if op_type in TWO_INPUTS:
            inputs.append(names[second % len(names)])
        inputs += ["w"] if op_type == "MatMul" else []
        nodes.append(helper.make_node(op_type, inputs, [f"v{number}"], f"n{number}"))
        names.append(f"v{number}")
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in names}
    weights = np.linspace(-1, 1, SHAPE[1] ** 2, dtype=np.float32).reshape(SHAPE[1], SHAPE[1])
    graph = helper.make_graph(
        nodes, "chain", [ends["a"], ends["b"]], [ends[name] for name in names[2:][-3:]],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


TWO_INPUTS = ("Add", "Sub", "Mul", "Div", "Max")
chains = st.lists(
    st.tuples(
        st.sampled_from([*TWO_INPUTS, "MatMul", "Relu", "Exp", "Softmax", "Sin"]),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.heavy
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=chains, seed=st.integers(0, 99))
def test_what_lay_in_the_arena_before_makes_no_difference(
    arenas: Arenas, steps: list[tuple[str, int, int]], seed: int
) -> None:
    """Run after run over NINF gives outputs, warnings and NaN of the plain path."""
    arenas.made.clear()
    model, rng = _chain(steps), np.random.default_rng(seed)
    plain = _executor(model, shortcuts=frozenset())
    arena = _executor(model, arenas.guest())
    for special in (False, False, True, False):
        feeds = {name: rng.normal(size=SHAPE).astype(np.float32) for name in "ab"}
        if special:
            feeds["a"][0, :4] = 0, np.inf, np.nan, 3e38
        arenas.poison()
        assert _facts(arena.run(feeds)) == _facts(plain.run(feeds))


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["dense", "image", "quantised", "two_ends"])
@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_networks_run_over_anything(arenas: Arenas, name: str, machine: str) -> None:
    """Networks with convolutions, INT8 sticks and host steps give the plain path's results, too."""
    model = getattr(small_models, name)().SerializeToString()
    guests = Guest(MACHINES[machine]), arenas.guest(machine)
    plain, arena = (
        import_onnx(model, guest, ImportOptions(shortcuts=names)).executor({})
        for guest, names in zip(guests, (frozenset[str](), SHORTCUTS), strict=True)
    )
    for seed in range(4):
        arenas.poison()
        feeds = _feeds(plain, seed)
        assert _facts(arena.run(feeds)) == _facts(plain.run(feeds))
    assert arenas.made


def test_a_run_takes_the_arena_of_an_earlier_one(arenas: Arenas) -> None:
    """A second run allocates nothing."""
    executor = _executor(guest=arenas.guest())
    executor.run(_feeds(executor, 1))
    executor.run(_feeds(executor, 2))
    assert [memory.nbytes for memory in arenas.made] == [run_buffers.kept_bytes()]


@pytest.mark.heavy
def test_an_arena_is_as_large_as_what_lives_at_once(arenas: Arenas) -> None:
    """A chain of 20 steps takes two tensors at a time, and one more that it begins with."""
    steps = [("Relu", 1, 0), *(("Exp", number, 0) for number in range(2, 20))]
    executor = _executor(_chain(steps), arenas.guest())
    executor.run({name: np.zeros(SHAPE, np.float32) for name in "ab"})
    assert arenas.made[0].nbytes <= 5 * 2 * PAGE


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


@pytest.mark.heavy
def test_a_run_that_failed_keeps_nothing() -> None:
    """Only a run that ended well leaves its arena."""
    executor = _executor()

    def fail() -> None:
        raise InterruptedError

    interruption.thread.check = fail
    try:
        with pytest.raises(InterruptedError):
            executor.run(_feeds(executor, 1))
    finally:
        interruption.thread.check = None
    assert run_buffers.kept_bytes() == 0


@pytest.mark.heavy
def test_memory_that_somebody_counts_is_counted_again() -> None:
    """A guest with an account of its own gives one arena, and is told when a run reuses it."""
    guest = Guest(MACHINES["telum2"])
    executor = _executor(guest=guest)
    allocated, reserved = list[int](), list[int]()

    def counted(size: int) -> Memory | None:
        allocated.append(size)
        return page_memory(size)

    guest.allocate, guest.reserve = counted, reserved.append
    for _ in range(3):
        executor.run(_feeds(executor, 1))
    assert (allocated, reserved) == ([6 * PAGE], [6 * PAGE] * 2)
    assert run_buffers.kept_bytes() == 6 * PAGE


@pytest.mark.heavy
def test_a_guest_that_refuses_the_arena_again_gives_tensors_one_by_one() -> None:
    """An arena that the guest's account no longer fits is freed, and the run is not refused."""
    guest = Guest(MACHINES["telum2"])
    executor = _executor(guest=guest)
    expected = executor.run(_feeds(executor, 1))
    sizes = list[int]()

    def refuse(_size: int) -> None:
        raise ConnectionRefusedError

    def counted(size: int) -> Memory | None:
        sizes.append(size)
        return page_memory(size)

    guest.allocate, guest.reserve = counted, refuse
    assert _facts(executor.run(_feeds(executor, 1))) == _facts(expected)
    assert len(sizes) > 1
    assert max(sizes) < 6 * PAGE
    assert run_buffers.kept_bytes() == 0


@pytest.mark.heavy
@pytest.mark.parametrize("refuses", ["by None", "by an error"])
def test_a_guest_that_has_no_arena_gives_tensors_one_by_one(refuses: str) -> None:
    """A quota in which tensors fit and not the arena refuses nothing that it did not before."""
    guest = Guest(MACHINES["telum2"])
    executor = _executor(guest=guest)
    expected = executor.run(_feeds(executor, 1))

    def small(size: int) -> Memory | None:
        if size <= 2 * PAGE:
            return page_memory(size)
        if refuses == "by None":
            return None
        raise ConnectionRefusedError

    guest.allocate = small
    assert _facts(executor.run(_feeds(executor, 1))) == _facts(expected)


@pytest.mark.heavy
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
