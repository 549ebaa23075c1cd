# SPDX-License-Identifier: Apache-2.0
"""The node cases of the public ONNX backend suite, and the promises about them.

`claimed.txt` holds the names that run on the accelerator as a whole; `listed.tsv` the cases of
mapped operators that do not pass, each with its reason. All other cases of mapped operators pass.
Both say for which versions of onnx and onnxruntime a line holds.
Source: onnx.backend.test, node cases.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from nnpa_network.operators import OPERATORS
from onnx import numpy_helper
from packaging.requirements import Requirement

HERE = Path(__file__).parent
RTOL, ATOL = 0.05, 0.01  # what the compiler for the machine is tested with
# Inputs that a deployed model has as initializers, by operator: axes, exponents, limits.
_PARAMETERS = {
    "Clip": (1, 2), "Pow": (1,), "ReduceMax": (1,), "ReduceMean": (1,), "ReduceMin": (1,),
    "BatchNormalization": (1, 2, 3, 4), "Reshape": (1,), "Unsqueeze": (1,), "Squeeze": (1,),
    "LSTM": (4,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One node case: its model, and data sets of inputs and outputs."""

    name: str
    model: bytes
    data: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...]


@lru_cache(maxsize=1)
def cases() -> dict[str, Case]:
    """Return the cases whose model has a mapped operator, by name, with parameters frozen."""
    mapped = [case for case in _collected() if _operators(case.model) & set(OPERATORS)]
    return {case.name: _case(case) for case in mapped}


@lru_cache(maxsize=1)
def unfrozen_cases() -> dict[str, Case]:
    """Return the same cases as ONNX has them: parameters are inputs."""
    return {case.name: _unfrozen(case) for case in _collected() if case.name in cases()}


def cases_by_operator() -> dict[str, list[Case]]:
    """Return the cases of one node by its operator, mapped or not."""
    by_operator: dict[str, list[Case]] = {}
    for case in _collected():
        if len(case.model.graph.node) == 1:
            by_operator.setdefault(case.model.graph.node[0].op_type, []).append(_case(case))
    return by_operator


@lru_cache(maxsize=1)
def _collected() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes infinities on purpose
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases(None) if case.model is not None]


def _operators(model: Any) -> set[str]:
    return {node.op_type for node in model.graph.node}


def _unfrozen(case: Any) -> Case:
    names = [info.name for info in case.model.graph.input]
    data = tuple(
        (dict(zip(names, inputs, strict=True)), tuple(outputs))
        for inputs, outputs in case.data_sets
    )
    return Case(case.name, case.model.SerializeToString(), data)


def _case(case: Any) -> Case:
    """Turn parameters of a single-node model into initializers."""
    unfrozen = _unfrozen(case)
    model, data = onnx.ModelProto.FromString(unfrozen.model), unfrozen.data
    for name in _parameters(model):
        if all(np.array_equal(sample[0][name], data[0][0][name]) for sample in data):
            _freeze(model, name, [sample[0] for sample in data])
    return Case(unfrozen.name, model.SerializeToString(), data)


def _parameters(model: onnx.ModelProto) -> list[str]:
    inputs = {info.name for info in model.graph.input}
    return [
        node.input[index]
        for node in model.graph.node
        for index in _PARAMETERS.get(node.op_type, ())
        if index < len(node.input) and node.input[index] in inputs
    ]


def _freeze(model: onnx.ModelProto, name: str, feeds: Sequence[dict[str, Any]]) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(feeds[0][name]), name))
    kept = [info for info in model.graph.input if info.name != name]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for sample in feeds:
        del sample[name]


def claimed() -> list[str]:
    """Return the names that must run on the accelerator as a whole."""
    return [name for name, *_ in _rows("claimed.txt", versions=1)]


def listed() -> dict[str, str]:
    """Return the names that do not pass, with the reasons."""
    return {name: reason for name, _, reason in _rows("listed.tsv", versions=1)}


def _rows(file: str, versions: int) -> list[list[str]]:
    """Return the rows of a list that are about the installed versions.

    Column `versions` says which: "any", nothing, or requirements such as "onnx>=1.23".
    """
    lines = (HERE / file).read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [row for row in rows if len(row) <= versions or _is_installed(row[versions])]


def _is_installed(requirements: str) -> bool:
    if requirements == "any":
        return True
    return all(
        requirement.specifier.contains(version(requirement.name), prereleases=True)
        for requirement in map(Requirement, requirements.split())
    )


def compare(got: Sequence[Any], exact_outputs: Sequence[Any]) -> None:
    """Assert equal element types and shapes, and values within the tolerances."""
    assert len(got) == len(exact_outputs)
    for actual, exact in zip(got, exact_outputs, strict=True):
        expected = np.asarray(exact)
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind in "OUS":
            np.testing.assert_array_equal(actual, expected)
        else:
            a, b = (np.asarray(array).astype(np.float64) for array in (actual, expected))
            np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)
