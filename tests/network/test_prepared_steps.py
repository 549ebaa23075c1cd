# SPDX-License-Identifier: Apache-2.0
"""A prepared step has the results of the emulator's function."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator import MACHINES, Guest, blocks, interruption
from nnpa_emulator.kernels import table
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import AcceleratorStep
from nnpa_network.running import plain
from nnpa_network.running.executor import Executor
from nnpa_network.running.layer_normalizations import VERBS
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.results import Result
from nnpa_network.running.run_buffers import lifetimes
from onnx import TensorProto

from tests.server.onnx_models import Array, binary, dense, model

pytestmark = pytest.mark.shortcut
CLEAN = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
BINARY = ("Add", "Sub", "Mul", "Div", "Min", "Max")
PORT = (TensorProto.FLOAT, ("n", 4))
ROW = model(
    [("Add", "xy", "a"), ("Relu", "a", "b"), ("Mul", "bx", "c"), ("Div", "cy", "d"),
     ("Sub", "da", "e"), ("Max", "ex", "z")],
    {"x": PORT, "y": PORT},
    {"c": PORT, "z": PORT},
)  # fmt: skip
SCALE = np.array([1, 0.9, -2, 0.5], np.float32)
"""Weights that mul and add combine with vectors of four."""
NORM = model(
    [("Add", "xy", "a"), ("LayerNormalization", "asb", "c"), ("Add", "cx", "d"),
     ("LayerNormalization", "ds", "e"), ("MatMul", "ew", "z")],
    {"x": PORT, "y": PORT},
    {"d": PORT, "z": PORT},
    {"s": SCALE, "b": SCALE - 1, "w": np.eye(4, dtype=np.float32)},
)  # fmt: skip
MODELS = {**{op.lower(): binary(op, ("n", 4)) for op in BINARY}, "dense": dense(), "row": ROW,
          "norm": NORM}  # fmt: skip
numbers = st.floats(width=32, allow_subnormal=True) | st.sampled_from(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 8.57e9, 1e10, 3e38, 1e-30]
)


def _executor(
    name: str, *, saturate: bool = True, guest: Guest | None = None, rows: int = 3
) -> Executor:
    owner = guest or Guest(MACHINES["telum2"])
    imported = import_onnx(MODELS[name], owner, ImportOptions(saturate=saturate))
    return imported.executor({port.name: (rows, 4) for port in imported.inputs})


def _feeds(executor: Executor, values: Array) -> dict[str, Array]:
    ports = executor.program.inputs
    return {port.name: np.roll(values, number) for number, port in enumerate(ports)}


def _same(first: Result, second: Result) -> bool:
    pairs = zip(first.outputs.values(), second.outputs.values(), strict=True)
    bits = all(a.tobytes() == b.tobytes() for a, b in pairs)
    warnings = [(v.node, v.verb, v.status) for v in first.violations]
    return bits and warnings == [(v.node, v.verb, v.status) for v in second.violations]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("add", "dense", "norm") else pytest.mark.heavy)
        for name in MODELS
    ],
)
@given(values=st.lists(numbers, min_size=12, max_size=12), saturate=st.booleans())
def test_warm_steps_agree_with_cold_ones(name: str, values: list[float], saturate: bool) -> None:
    """A program that has run gives the bits, violations and calls of one that has not."""
    cold, warm = (_executor(name, saturate=saturate) for _ in range(2))
    feeds = _feeds(cold, np.array(values, np.float32).reshape(3, 4))
    first = cold.run(feeds)
    nans = {key: int(np.isnan(array).sum()) for key, array in first.outputs.items()}
    for _ in range(3):  # asked in full, bound to its tensors, taken as bound
        warm.run(_feeds(warm, CLEAN))
        second = warm.run(feeds)
        assert _same(first, second)
        assert first.calls == second.calls
        assert first.nans == second.nans == nans


@given(values=st.lists(numbers, min_size=12, max_size=12))
def test_steps_are_bound_again_after_a_value_that_is_none(values: list[float]) -> None:
    """A step that did not come out clean goes the short way again, with the bits of the long."""
    cold, warm = _executor("div"), _executor("div")
    feeds = _feeds(cold, np.array(values, np.float32).reshape(3, 4))
    clean = cold.run(_feeds(cold, CLEAN + 7))
    for _ in range(4):
        assert _same(clean, warm.run(_feeds(warm, CLEAN + 7)))
    assert _same(_executor("div").run(feeds), warm.run(feeds))
    for _ in range(2):
        assert _same(clean, warm.run(_feeds(warm, CLEAN + 7)))


def test_arrays_that_are_not_rows_are_read_as_such() -> None:
    """Where an input lies in memory, and how, makes no difference."""
    executor = _executor("add")
    expected = executor.run(_feeds(executor, CLEAN)).outputs["z"]
    feeds = _feeds(executor, CLEAN)
    wide = {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in feeds.items()}
    for given_ in (wide, {name: np.asfortranarray(array) for name, array in feeds.items()}):
        for _ in range(3):
            assert np.array_equal(executor.run(given_).outputs["z"], expected)


def test_a_clean_run_skips_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a clean run the pipeline is not called again, until a value needs it."""
    executor, verbs = _executor("div"), list[str]()
    complete: Any = vars(plain)["call"]

    def counted(guest: Guest, verb: str, arguments: dict[str, object]) -> object:
        verbs.append(verb)
        return complete(guest, verb, arguments)

    monkeypatch.setattr(plain, "call", counted)
    executor.run(_feeds(executor, CLEAN + 7))
    assert len(verbs) == 4
    executor.run(_feeds(executor, CLEAN + 7))
    assert len(verbs) == 4
    result = executor.run(_feeds(executor, np.zeros((3, 4), np.float32)))
    assert verbs[4:] == ["div", "transform_origtensor"]
    assert len(result.violations) == 2


def _walked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that grows by each walk, with whether all of its rows came out clean."""
    walks, walk = list[bool](), table.walk

    def counted(cells: Array, first: int, end: int) -> int:
        reached = walk(cells, first, end)
        walks.append(reached == end)
        return reached

    monkeypatch.setattr(table, "walk", counted)
    return walks


@pytest.mark.parametrize("name", ["row", "norm"])
def test_steps_without_a_host_node_between_them_are_one_walk(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All of a program's calls are one walk; a step that is not clean parts it in two."""
    executor, walks = _executor(name), _walked(monkeypatch)
    feeds = _feeds(executor, CLEAN + 7)
    executor.run(feeds)
    executor.run(feeds)
    assert walks == []  # asked in full, then bound
    executor.run(feeds)
    assert walks == [True]
    if name == "row":
        feeds["y"] = np.zeros_like(CLEAN)
        assert executor.run(feeds).violations[0].verb == "div"
        assert walks[1] is False
        assert len(walks) > 2


def test_a_layer_normalization_is_one_row() -> None:
    """Between its reshapes it is done where the vectors lie, which it reads until it ends."""
    loaded = LoadedProgram(_executor("norm").program, Guest(MACHINES["telum2"]))
    lives = lifetimes(loaded)
    assert len(loaded.normalizations) == 2
    for first in loaded.normalizations:
        steps = loaded.program.steps[first : first + 4]
        calls = [step for step in steps if isinstance(step, AcceleratorStep)]
        assert [step.verb for step in calls] == [*VERBS]
        source, output = calls[0].arguments["src"], calls[3].arguments["dest"]
        assert lives[source].last >= lives[output].born


def _many_nodes(count: int) -> bytes:
    """Return a model of random small nodes, one behind the other, whose values stay small."""
    rng, nodes = np.random.default_rng(5), list[tuple[str, list[str], list[str]]]()
    shapes = {"w": (64, 64), "v": (64,)}
    constants = {
        name: rng.normal(size=shape).astype(np.float32) / 16 for name, shape in shapes.items()
    }
    for number in range(count):
        op = str(rng.choice(["MatMul", "Add", "Tanh", "Softmax", "Relu", "Mul"]))
        operand = {"MatMul": ["w"], "Add": ["v"], "Mul": ["v"]}.get(op, [])
        nodes.append((op, [f"n{number}", *operand], [f"n{number + 1}"]))
    port = (TensorProto.FLOAT, ("n", 64))
    return model(nodes, {"n0": port}, {f"n{count}": port}, constants)


@pytest.mark.heavy
def test_a_model_of_many_small_nodes_ends_at_its_deadline() -> None:
    """A run that is past its deadline ends within 50 ms of processor time, cold and warm."""
    imported = import_onnx(_many_nodes(2000), Guest(MACHINES["telum2"]))
    executor = imported.executor({"n0": (64, 64)})
    feeds, late = {"n0": np.ones((64, 64), np.float32)}, list[float]()
    for _ in range(4):
        executor.run(feeds)
    start = time.thread_time()
    executor.run(feeds)
    whole = time.thread_time() - start
    for part in (0.1, 0.5, 0.9):
        deadline = time.thread_time() + part * whole

        def check(deadline: float = deadline) -> None:
            if time.thread_time() > deadline:
                raise TimeoutError

        interruption.thread.check = check
        try:
            with pytest.raises(TimeoutError):
                executor.run(feeds)
        finally:
            interruption.thread.check = None
        late.append(time.thread_time() - deadline)
    assert max(late) < 0.05
    assert executor.run(feeds).outputs.keys() == {"n2000"}


@pytest.mark.parametrize("name", MODELS)
def test_large_tensors_are_cut_by_warm_steps_too(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With bound steps as without, a run calls the check between blocks; its bits stay."""
    checks, counts, rows = list[bool](), list[int](), 640
    whole, executor = _executor(name, rows=rows), _executor(name, rows=rows)
    feeds = _feeds(executor, np.tile(CLEAN + 7, (rows // 3 + 1, 1))[:rows])
    expected = whole.run(feeds)
    monkeypatch.setattr(blocks, "ELEMENTS", 1)
    blocks.regions_of.cache_clear()  # the parts of tensors that were whole
    interruption.thread.check = lambda: checks.append(True)
    try:
        for _ in range(4):
            assert _same(executor.run(feeds), expected)
            counts.append(len(checks))
            checks.clear()
    finally:
        interruption.thread.check = None
    assert min(counts) >= 2 * rows // 32  # at each page on the way into sticks, and out of them


def test_a_guest_that_moves_is_asked_again() -> None:
    """Options and machine of the guest decide at each run, not at the first."""
    guest = Guest(MACHINES["telum2"])
    executor = _executor("add", guest=guest)
    feeds = _feeds(executor, CLEAN)
    exact = executor.run(feeds)
    assert _same(exact, executor.run(feeds))
    guest.numerics, guest.jitter_seed = "jitter", 7
    assert not _same(exact, executor.run(feeds))
    guest.numerics = "exact"
    assert _same(exact, executor.run(feeds))
    guest.machine = replace(guest.machine)
    assert _same(exact, executor.run(feeds))
