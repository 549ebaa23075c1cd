# SPDX-License-Identifier: Apache-2.0
"""The view Models of the page: a graph with placement, estimates, and errors of nodes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1.program_pb2 import Node, Program
from nnpa_page import Query, View, Visitor

from nnpa_tools.estimates.coefficients import machines, model_of
from nnpa_tools.estimates.dominance import dominant
from nnpa_tools.estimates.estimator import estimate
from nnpa_tools.estimates.programs import calls_of, network_times
from nnpa_tools.models.accuracy import AccuracyReport, AccuracyRun
from nnpa_tools.models.analysis import headline, machine_title

_FOLDED = "folded"


class Placed(NamedTuple):
    """A model on a machine: its report, and its compiled program."""

    report: pb.NetworkReport
    program: Program


def model_views(
    model: str, placed: Sequence[Placed], accuracy: str, report: AccuracyReport | None
) -> Mapping[str, View]:
    """Return the view of a model as machines host it, of an accuracy report, or of both.

    `model` and `accuracy` are the names of their files, "" for none. Errors of the report are shown
    at the model's nodes, which are found by the names of their outputs.
    """
    answer = {
        "model": model,
        "machines": [_machine(model, entry, _run_on(report, entry)) for entry in placed],
        "accuracy": accuracy,
        "report": None if report is None else _report(Path(accuracy).name, report),
    }

    def models(_visitor: Visitor, _query: Query) -> Mapping[str, object]:
        return answer

    return {"models": models}


def _run_on(report: AccuracyReport | None, placed: Placed) -> AccuracyRun | None:
    """Return the report's run in DLFLOAT16 on the machine of a model."""
    runs = () if report is None else report.runs
    key = placed.report.machine, "dlfloat16"
    return next((run for run in runs
                 if (run.totals["machine"], run.totals["numbers"]) == key), None)  # fmt: skip


def _machine(model: str, placed: Placed, run: AccuracyRun | None) -> Mapping[str, object]:
    report, program = placed
    times = network_times(program)
    by_node = {} if times is None else times.by_node
    errors = {} if run is None else {entry["value"]: entry for entry in run.nodes}
    return {
        "machine": report.machine,
        "title": f"{Path(model).name} on {machine_title(report.machine)}",
        "placed": headline(report),
        "macc": report.n_macc_64,
        "estimate": _estimate(program),
        "nodes": [
            {
                **_describe(node),
                "sources": sources,
                "rank": rank,
                "time": by_node[node.index].graded if node.index in by_node else "",
                "errors": [errors[name] for name in node.outputs if name in errors],
            }
            for node, sources, rank in _ranked(report.nodes)
        ],
    }


def _ranked(nodes: Iterable[Node]) -> Iterable[tuple[Node, Sequence[int], int]]:
    """Yield nodes with the places of their sources, and their ranks in the picture.

    A node lies below all of its sources. A folded node is left out, and its sources become the
    sources of the nodes that use its outputs.
    """
    makers: dict[str, list[int]] = {}
    ranks: list[int] = []
    for node in nodes:
        sources = sorted({place for name in node.inputs for place in makers.get(name, ())})
        if node.device == _FOLDED:
            makers.update((name, sources) for name in node.outputs)
            continue
        rank = 1 + max((ranks[place] for place in sources), default=-1)
        makers.update((name, [len(ranks)]) for name in node.outputs)
        ranks.append(rank)
        yield node, sources, rank


def _describe(node: Node) -> Mapping[str, object]:
    return {
        "name": node.name,
        "op_type": f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
        "device": node.device,
        "functions": list(node.functions),
        "reason": node.reason,
        "shapes": [" x ".join("?" if dim < 0 else str(dim) for dim in shape.dims) or "scalar"
                   for shape in node.output_shapes],
        "macc": node.macc,
        "weights": node.weights,
    }  # fmt: skip


def _estimate(program: Program) -> Mapping[str, object] | None:
    """Return the estimate of a program as in `nnpa estimate`; None for a machine without."""
    machine = model_of(program.machine)
    if machine not in machines():
        return None
    counted = calls_of(program)
    of = estimate(counted.calls, machine)
    missing = [f"Not in it: {count} of {why}." for why, count in of.missing.items()]
    if counted.host_nodes:
        host = f"{counted.host_nodes} of the model's nodes"
        missing.append(f"Not in it: what runs on the host, {host}.")
    return {
        "total": of.total.graded if of.lines else "nothing to estimate",
        "dominant": dominant(of),
        "missing": missing,
        "lines": [
            {"function": line.function, "calls": line.count, "time": str(line.interval),
             "grade": line.interval.grade}
            for line in of.lines
        ],
    }  # fmt: skip


def _report(title: str, report: AccuracyReport) -> Mapping[str, object]:
    return {
        "title": title,
        **report.totals,
        "about": report.about,
        "runs": [{**run.totals, "outputs": run.outputs, "nodes": run.nodes} for run in report.runs],
    }
