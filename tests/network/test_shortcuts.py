# SPDX-License-Identifier: Apache-2.0
"""Networks give the same bytes with and without their shortcuts."""

from itertools import chain, combinations

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import ModelRefused
from nnpa_network.running import composition
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import Result, StepFailed
from nnpa_network.shortcuts import SHORTCUTS

from tests.network import small_models
from tests.network.random_graphs import RandomGraph, random_graph
from tests.server.onnx_models import Array, binary

pytestmark = pytest.mark.shortcut
MODELS = {
    "div": binary("Div", ("n", 4)),
    **{
        name: getattr(small_models, name)().SerializeToString()
        for name in (
            "dense",
            "two_ends",
            "image",
            "quantised",
            "depthwise",
            "recurrent",
            "normalised",
        )
    },
}
SUBSETS = [
    frozenset(names)
    for names in chain.from_iterable(
        combinations(sorted(SHORTCUTS), size) for size in range(1, len(SHORTCUTS) + 1)
    )
]
SPECIAL = np.array([0, -0.0, np.nan, np.inf, -np.inf, 8.57e9, 1e10, 3e38, 1e-30], np.float32)


def _executor(name: str, machine: str, shortcuts: frozenset[str]) -> Executor:
    options = ImportOptions(shortcuts=shortcuts)
    model = import_onnx(MODELS[name], Guest(MACHINES[machine]), options)
    return model.executor({})


def _inputs(executor: Executor, rng: np.random.Generator) -> dict[str, Array]:
    """Return random inputs, in every third run with values that are no numbers or too large."""
    inputs: dict[str, Array] = {}
    for port in executor.program.inputs:
        array = (4 * rng.standard_normal(port.shape)).astype(port.dtype)
        if port.dtype == np.float32 and not rng.integers(3):
            array = np.where(rng.random(port.shape) < 0.2, rng.choice(SPECIAL, port.shape), array)
        inputs[port.name] = array
    return inputs


def _facts(result: Result) -> tuple[object, ...]:
    """Return everything that a run tells."""
    outputs = [
        (name, array.dtype, array.shape, array.tobytes()) for name, array in result.outputs.items()
    ]
    warnings = [(each.node, each.verb, each.status) for each in result.violations]
    return outputs, warnings, dict(result.nans), dict(result.calls)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("name", MODELS)
def test_every_subset_of_shortcuts_gives_the_plain_bytes(name: str, machine: str) -> None:
    """Outputs, warnings, NaN and calls of run after run equal the plain path's."""
    plain = _executor(name, machine, frozenset())
    shortened = [_executor(name, machine, names) for names in SUBSETS]
    rng = np.random.default_rng(7)
    for _ in range(12):
        inputs = _inputs(plain, rng)
        expected = _facts(plain.run(inputs))
        for executor in shortened:
            assert _facts(executor.run(inputs)) == expected


def test_the_list_of_wrappers_has_the_names() -> None:
    """The names that a server knows are those that are composed, and that of a model's programs."""
    assert vars(composition)["_WRAPPERS"].keys() | {"further-sizes"} == SHORTCUTS


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("first", [pytest.param(1000, marks=pytest.mark.heavy), 2000])
def test_random_graphs_have_the_plain_bytes(first: int, machine: str) -> None:
    """Random graphs, bound and walked, give the plain bytes, warnings and errors, or none do."""
    compared = 0
    for number in range(first, first + (400 if first == 1000 else 40)):
        graph = random_graph(number)
        runs = [_run_often(graph, machine, shortcuts) for shortcuts in (frozenset(), SHORTCUTS)]
        assert runs[0] == runs[1], number
        compared += isinstance(runs[0], list)
    assert compared > 20


def _run_often(graph: RandomGraph, machine: str, shortcuts: frozenset[str]) -> object:
    """Return everything that four runs tell, the last one over values of which some are none."""
    shapes = {name: array.shape for name, array in graph.feeds.items()}
    options = ImportOptions(shortcuts=shortcuts, placement="all")
    try:
        model = import_onnx(graph.data, Guest(MACHINES[machine]), options)
        executor = model.executor(shapes)
        facts = [_facts(executor.run(graph.feeds)) for _ in range(3)]
        feeds = {
            name: np.where(array > 1, np.inf, array).astype(array.dtype)
            if array.dtype.kind == "f" else array
            for name, array in graph.feeds.items()
        }  # fmt: skip
        return [*facts, _facts(executor.run(feeds))]
    except (ModelRefused, StepFailed) as refused:
        return str(refused)
