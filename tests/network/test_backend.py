# SPDX-License-Identifier: Apache-2.0
"""The public ONNX backend suite, node by node, on the emulated accelerator."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from nnpa_client import NnpaError, Session, connect
from nnpa_client.network import Network, Options
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.lowering.placement import ACCELERATOR
from nnpa_network.operators import OPERATORS

from tests.network.backend_cases import (
    Case,
    cases,
    claimed,
    compare,
    listed,
    unfrozen_cases,
)
from tests.network.hosting import reference
from tests.score.cases_of_pytest import CASES

# What onnx-mlir claims for NNPA, both levels. Source: its NNPA backend test list.
ONNX_MLIR = [
    "add",
    "averagepool_2d_default",
    "averagepool_2d_precomputed_pads",
    "averagepool_2d_precomputed_same_upper",
    "averagepool_2d_precomputed_strides",
    "averagepool_2d_same_upper",
    "averagepool_2d_strides",
    "batchnorm_epsilon",
    "batchnorm_example",
    "basic_conv_with_padding",
    "basic_conv_without_padding",
    "conv_with_strides_no_padding",
    "conv_with_strides_padding",
    "convtranspose",
    "convtranspose_autopad_same",
    "convtranspose_kernel_shape",
    "convtranspose_output_shape",
    "convtranspose_pad",
    "convtranspose_pads",
    "div",
    "div_example",
    "exp",
    "exp_example",
    "gemm_default_matrix_bias",
    "gemm_default_no_bias",
    "gemm_default_vector_bias",
    "gemm_default_zero_bias",
    "gemm_transposeA",
    "gemm_transposeB",
    "globalaveragepool",
    "globalaveragepool_precomputed",
    "log",
    "log_example",
    "logsoftmax_example_1",
    "lstm_defaults",
    "lstm_with_initial_bias",
    "matmul_2d",
    "matmul_3d",
    "matmul_4d",
    "max_two_inputs",
    "max_float32",
    "min_two_inputs",
    "min_float32",
    "maxpool_2d_default",
    "maxpool_2d_precomputed_pads",
    "maxpool_2d_precomputed_same_upper",
    "maxpool_2d_precomputed_strides",
    "maxpool_2d_same_upper",
    "maxpool_2d_strides",
    "mul",
    "mul_example",
    "pow_bcast_scalar",
    "relu",
    "softmax_example",
    "sub",
    "sub_example",
    "sum_example",
    "sum_two_inputs",
    "gelu_default_1",
    "gelu_default_2",
    "gelu_tanh_1",
    "gelu_tanh_2",
    "leakyrelu",
    "leakyrelu_default",
    "leakyrelu_example",
    "matmulinteger",
    "qlinearmatmul_2D_uint8_float32",
    "qlinearmatmul_3D_uint8_float32",
    "sqrt",
    "sqrt_example",
]
COMPILER = ImportOptions(offload_integer=True)
OPTIONS = replace(COMPILER, placement="all")


def _run(case: Case, options: ImportOptions = OPTIONS) -> tuple[Any, dict[str, int]]:
    """Run all data sets of a case; return its program and the calls of the last run."""
    model = import_onnx(case.model, Guest(find_machine("telum2")), options)
    calls: dict[str, int] = {}
    program = None
    for feeds, outputs in case.data:
        result = model.run(feeds)
        compare(list(result.outputs.values()), outputs)
        calls = dict(result.calls)
        program = model.specialise({name: np.shape(array) for name, array in feeds.items()})
    return program, calls


@pytest.mark.parametrize("name", claimed())
def test_a_claimed_case_passes(name: str) -> None:
    """A claimed case passes, every node of it on the accelerator, its functions really called."""
    _require_placed(*_run(cases()[name]))


@pytest.mark.parametrize("name", ONNX_MLIR)
def test_a_case_of_the_compiler_is_placed_by_its_placement(name: str) -> None:
    """A case that the compiler for the machine claims passes under the placement `compiler`."""
    _require_placed(*_run(cases()[f"test_{name}"], COMPILER))


def _require_placed(program: Any, calls: Mapping[str, int]) -> None:
    for node in program.nodes:
        assert node.device == ACCELERATOR, node.reason
        assert node.functions
        assert all(calls.get(function, 0) > 0 for function in node.functions)
        assert set(node.functions) <= set(OPERATORS[node.op_type].functions)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Open a session on a server process of its own."""
    with connect(machine="telum2") as opened:
        yield opened


@pytest.mark.heavy
@pytest.mark.parametrize("name", claimed())
def test_a_claimed_case_passes_on_a_server(session: Session, name: str) -> None:
    """A claimed case passes on a server, which counts the accelerator's calls it promises."""
    case = cases()[name]
    options = Options(offload_integer=True, placement="all")
    with session.load(case.model, options=options) as network:
        for feeds, outputs in case.data:
            answer = network.infer(**feeds)
            compare(list(answer.outputs.values()), outputs)
            placed = network.report().nodes
            assert placed
            assert all(node.functions for node in placed)
            for node in placed:
                assert all(answer.calls.get(function, 0) > 0 for function in node.functions)


def test_claims_hold_the_compilers() -> None:
    """The allow-list contains all that the compiler for the machine claims."""
    assert {f"test_{name}" for name in ONNX_MLIR} <= set(claimed())


def test_lists_name_cases() -> None:
    """Both lists name existing cases, none twice, none in both, each listed one with a reason."""
    names, claims, reasons = set(cases()), claimed(), listed()
    assert len(set(claims)) == len(claims)
    assert set(claims) | set(reasons) <= names
    assert not set(claims) & set(reasons)
    assert all(reasons.values())


@pytest.mark.heavy
def test_every_other_case_passes(record_property: Callable[[str, object], None]) -> None:
    """Beyond the claims every node case of a mapped operator passes, or is listed and fails."""
    reasons, wrong = listed(), list[str]()
    for name in sorted(set(cases()) - set(claimed())):
        try:
            _run(cases()[name])
            passed = True
        except (AssertionError, ValueError, RuntimeError):
            passed = False
        if passed == (name in reasons):
            wrong.append(f"{name}: passes although listed" if passed else f"{name}: fails")
    print(
        f"claimed {len(claimed())}, others {len(cases()) - len(claimed())}, listed {len(reasons)}"
    )
    refused = [["refused", 1, reason] for reason in reasons.values()]
    passed_cases = len(cases()) - len(claimed()) - len(reasons)
    record_property(CASES, [["passed", passed_cases, ""], *refused])
    assert not wrong, "\n".join(wrong)


@pytest.mark.heavy
@pytest.mark.models
def test_a_server_runs_what_onnx_runtime_runs(
    session: Session, record_property: Callable[[str, object], None]
) -> None:
    """All cases that ONNX Runtime passes pass on a server, unfrozen, but for those listed."""
    reasons, wrong, ran = listed(), list[str](), 0
    for case in unfrozen_cases().values():
        if case.name in reasons or not _passes(case, partial(reference, case.model)):
            continue
        ran += 1
        try:
            with session.load(case.model) as network:
                passed = _passes(case, partial(_infer, network))
        except NnpaError as error:
            passed = False
            print(case.name, error)
        wrong += [] if passed else [case.name]
    print(f"{ran} cases ran on a server")
    record_property(CASES, [["passed", ran, ""]])
    assert ran > 600
    assert not wrong, "\n".join(wrong)


def _infer(network: Network, feeds: dict[str, Any]) -> Iterable[Any]:
    return network.infer(**feeds).outputs.values()


def _passes(case: Case, run: Callable[[dict[str, Any]], Iterable[Any]]) -> bool:
    try:
        for feeds, outputs in case.data:
            arrays = {name: np.asarray(array) for name, array in feeds.items()}
            compare(list(run(arrays)), outputs)
    except Exception:  # of any kind, as ONNX Runtime raises what it likes
        return False
    return True
