# SPDX-License-Identifier: Apache-2.0
"""Evaluations as `nnpa network validate` asks for them, for tests and the bench."""

from pathlib import Path
from typing import Any

from nnpa_client.network.calls import Options
from nnpa_tools.evaluation.datasets import Preprocessing
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.engine import Measuring, Progress, evaluate
from nnpa_tools.evaluation.hosted import LocalEngine, RayEngine
from nnpa_tools.evaluation.results import Accuracy


def evaluation(model: Path, data: Path, **changes: object) -> dict[str, Any]:
    """Return an evaluation of a model over a file of rows by this process, less what changes."""
    return {
        "model": model, "data": data, "labels": None, "preprocessing": Preprocessing(),
        "batch": None, "node_rows": 16, "int8": True, "max_drop": None, "html": False,
        "about": {"model": model.name}, "jobs": 1, "ray": None, **changes,
    }  # fmt: skip


def evaluate_rows(job: dict[str, Any], progress: Progress | None = None) -> Accuracy:
    """Do an evaluation here, or on the cluster at `ray`."""
    source = Source(job["data"], job["labels"], preprocessing=job["preprocessing"])
    hosted = job["model"], source, "telum2", Options(), job["jobs"]
    ray = job["ray"]
    engine = LocalEngine(*hosted) if ray is None else RayEngine(*hosted, address=ray)
    names = ("batch", "node_rows", "int8", "max_drop", "html")
    choice = Measuring(**{name: job[name] for name in names})
    dataset = source.open(engine.inputs, engine.outputs)
    return evaluate(engine, dataset, choice, job["about"], progress)
