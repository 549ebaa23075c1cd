# SPDX-License-Identifier: Apache-2.0
"""One model hosted through the public client, beside ONNX Runtime on one thread."""

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import NnpaError, Session
from nnpa_client.network.calls import Options
from nnpa_client.network.hosted import Network
from nnpa_network.placements import DEFAULT_PLACEMENT, Placement

from tests.network.acceptance.builders import BUILDERS
from tests.network.acceptance.listing import Feed, Listed
from tests.network.acceptance.packages import read_model

Array = npt.NDArray[Any]
INPUTS = 3
HALF = 0.5
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8}
_TYPES = {
    **_INTEGERS,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.str_,
}


@dataclass(frozen=True)
class Outcome:
    """The result of a trial; `failure` is empty, or one of FAILURES and `text` says more.

    `share` is the part of the multiply-accumulates on the accelerator, None where there are none.
    `error` is over the range of an output, `slower` the time over ONNX Runtime's, `mebibytes` the
    size of weights and activations on the accelerator, `placement` the name of the placement.
    """

    model: str
    machine: str
    failure: str = ""
    text: str = ""
    share: float | None = None
    error: float | None = None
    slower: float | None = None
    mebibytes: float | None = None
    placement: Placement = DEFAULT_PLACEMENT


def model_bytes(listed: Listed) -> bytes:
    """Return a model's file, from its wheel or its builder."""
    if listed.package is not None:
        return read_model(listed.package, listed.source)
    return BUILDERS[listed.source]()


def run_trial(session: Session, listed: Listed, machine: str) -> Outcome:
    """Host a model in a session on a machine, and compare it on three random inputs."""
    model = model_bytes(listed)
    runtime = on_one_thread(model)
    feeds = [draw(runtime, listed, number) for number in range(INPUTS)]
    expected, theirs = _timed(partial(runtime.run, None), feeds)
    try:
        network = session.load(model, options=Options(placement=listed.placement))
    except NnpaError as error:
        return Outcome(listed.name, machine, "refused", str(error))
    with network:
        report = _report(session, network, model, listed)
        try:
            got, ours = _timed(partial(infer, network), feeds)
        except (NnpaError, TypeError, ValueError) as error:
            return Outcome(listed.name, machine, "stopped", str(error))
    far = largest_error(expected, got, listed.range)
    return _judge(listed, machine, report, far, ours / theirs)


def _report(session: Session, network: Network, model: bytes, listed: Listed) -> pb.NetworkReport:
    """Return the report at the shapes of the inputs: a network with free dims has them at 1."""
    shapes = {
        port.name: listed.inputs[port.name].shape for port in network.inputs if -1 in port.shape
    }
    if not shapes:
        return network.report()
    try:
        options = Options(shapes=shapes, placement=listed.placement)
        with session.load(model, options=options) as shaped:
            return shaped.report()
    except NnpaError:
        return network.report()


def infer(network: Network, feed: Mapping[str, Array]) -> list[Array]:
    """Run a network; its inputs may have names that are no Python names."""
    return list(network.infer(*(feed[port.name] for port in network.inputs)).outputs.values())


def surprise(listed: Listed, outcome: Outcome) -> str:
    """Return how a model differs from its entry in the list, or nothing."""
    if outcome.failure == listed.fails:
        return ""
    if not outcome.failure:
        return (
            f"{listed.name}: passes although listed as {listed.fails}; take `fails` off its entry"
        )
    expected = f"listed as {listed.fails}" if listed.fails else "must pass"
    return f"{listed.name}: {expected}, but {outcome.failure}: {outcome.text}"


def _judge(
    listed: Listed, machine: str, report: pb.NetworkReport, error: float, slower: float
) -> Outcome:
    share, mebibytes = _placed(report)
    failure = text = ""
    if not error <= listed.tolerance:
        failure, text = "inaccurate", f"error {error:.4f}, tolerance {listed.tolerance}"
    elif (share is None or share < HALF) and not listed.host:
        part = "no multiply-accumulates" if share is None else f"{share:.0%} placed"
        failure, text = "unplaced", f"{part}; {_reasons(report)}"
    return Outcome(listed.name, machine, failure, text, share, error, slower, mebibytes)


def _placed(report: pb.NetworkReport) -> tuple[float | None, float]:
    """Return the share of the multiply-accumulates on the accelerator, and its MiB."""
    total = sum(node.macc for node in report.nodes if node.device != "folded")
    placed = sum(node.macc for node in report.nodes if node.device == "accelerator")
    size = report.params.channels + report.activations.channels
    return placed / total if total else None, size / (1 << 20)


def _reasons(report: pb.NetworkReport) -> str:
    """Return why the heaviest nodes of the host are there."""
    heavy = sorted((node for node in report.nodes if node.device == "host"), key=lambda n: -n.macc)
    return "; ".join(dict.fromkeys(f"{node.op_type}: {node.reason}" for node in heavy[:3]))


def largest_error(
    expected: Sequence[Sequence[Any]], got: Sequence[Sequence[Array]], full: float | None
) -> float:
    """Return the largest difference over all runs, over the range of the output it is in.

    Infinity for another shape or type, or a NaN that ONNX Runtime does not have; for labels
    (integers, words, truth values) the share of those that differ.
    """
    errors = [0.0]
    for output in range(len(expected[0])):
        expected_outputs = [_plain(run[output]) for run in expected]
        outputs = [_plain(run[output]) for run in got]
        if [_kind(array) for array in expected_outputs] != [_kind(array) for array in outputs]:
            return float("inf")
        errors.append(_error(_joined(expected_outputs), _joined(outputs), full))
    return float("inf") if any(np.isnan(errors)) else max(errors)


def _plain(value: Any) -> Array:
    """Return an output as an array; the dictionaries of ZipMap as rows of their values."""
    if isinstance(value, list):
        return np.array([list(row.values()) for row in value], np.float32)
    array = np.asarray(value)
    return array.astype(str) if array.dtype.kind in "OU" else array


def _kind(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, "U" if array.dtype.kind == "U" else array.dtype.name


def _joined(arrays: Sequence[Array]) -> Array:
    return np.concatenate([array.reshape(-1) for array in arrays])


def _error(expected: Array, actual: Array, full: float | None) -> float:
    if not expected.size:
        return 0.0
    if expected.dtype.kind in "Ub" or expected.dtype.name in ("int64", "int32"):
        return float(np.mean(expected != actual))
    wide, narrow = expected.astype(np.float64), actual.astype(np.float64)
    same = (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))
    finite = np.abs(wide[np.isfinite(wide)])
    scale = full or (float(finite.max()) if finite.size else 0.0) or 1.0
    return float(np.where(same, 0.0, np.abs(wide - narrow)).max()) / scale


def on_one_thread(model: bytes | str) -> Any:
    """Return ONNX Runtime's session of a model, its file's bytes or path."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _timed(run: Any, feeds: Sequence[Mapping[str, Array]]) -> tuple[list[Sequence[Any]], float]:
    """Run every feed, the first one once before; return the results and the least time."""
    run(feeds[0])
    results, seconds = list[Sequence[Any]](), list[float]()
    for feed in feeds:
        start = time.perf_counter()
        results.append(run(feed))
        seconds.append(time.perf_counter() - start)
    return results, min(seconds)


def draw(runtime: Any, listed: Listed, number: int) -> dict[str, Array]:
    """Return the inputs of a run, from a seed of the model's name and the run's number."""
    rng = np.random.default_rng([zlib.crc32(listed.name.encode()), number])
    return {
        port.name: _values(rng, listed.inputs[port.name], np.dtype(_TYPES[port.type]))
        for port in runtime.get_inputs()
    }


def _values(rng: np.random.Generator, feed: Feed, dtype: np.dtype[Any]) -> Array:
    if feed.words:
        return rng.choice(np.array(feed.words, object), feed.shape)
    if feed.value is not None:
        return np.full(feed.shape, feed.value, dtype)
    low, high = feed.low, feed.high
    if dtype.kind in "iub":
        low, high = int(low or 0), int(2 if high is None else high)
        return np.asarray(rng.integers(low, high, feed.shape), dtype)
    if low is None or high is None:
        return np.asarray(rng.normal(0, 1, feed.shape), dtype)
    return np.asarray(rng.uniform(low, high, feed.shape), dtype)
