# SPDX-License-Identifier: Apache-2.0
"""The result of an evaluation: its report, figures side by side, and pages for people."""

import html as markup
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The effect of DLFLOAT16 on a model: the verdict, figures side by side, and the report.

    `verdict` is one sentence. `table` has a row for FP32, each machine, and INT8. `report` is the
    JSON of `nnpa network validate --json`; `text` and `html` are for people.
    """

    report: Mapping[str, Any]
    text: str = field(repr=False)
    html: str = field(repr=False)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return str(self.report["verdict"])

    @property
    def drop(self) -> float:
        """The loss of the worst machine: of accuracy, or without labels of equal answers."""
        return max((run["drop"] for run in self._machines()), default=0.0)

    @property
    def table(self) -> list[dict[str, Any]]:
        """Figures side by side: a dict for each of FP32, the machines, and INT8."""
        rows: list[dict[str, Any]] = []
        fp32 = self.report["fp32"]
        if fp32 is not None:
            rows.append({"run": "FP32", "accuracy": fp32["accuracy"], "top5": fp32["top5"],
                         "drop": 0.0, "changed": 0, "l2r": 0.0})  # fmt: skip
        for run in self.report["runs"]:
            if run["drop"] is None:
                continue
            labels = run["labels"] or {"accuracy": None, "top5": None}
            name = run["machine"] if run["numbers"] == "dlfloat16" else f"{run['machine']} int8"
            errors = [output["l2r"] for output in run["outputs"] if output["l2r"] is not None]
            rows.append({"run": name, "accuracy": labels["accuracy"], "top5": labels["top5"],
                         "drop": run["drop"], "changed": run["changed"],
                         "l2r": max(errors, default=None)})  # fmt: skip
        return rows

    @property
    def worst(self) -> list[int]:
        """The rows that any machine lists as the worst, sorted."""
        return sorted({row["row"] for run in self._machines() for row in run["worst"]})

    def to_pandas(self) -> Any:
        """Return `table` as a pandas.DataFrame, which needs pandas."""
        pandas: Any = import_module("pandas")
        return pandas.DataFrame(self.table).set_index("run")

    def _machines(self) -> list[Any]:
        runs = self.report["runs"]
        return [run for run in runs if run["drop"] is not None and run["numbers"] == "dlfloat16"]

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        names = ("run", "accuracy", "top5", "drop", "changed", "l2r")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in names) + "</tr>"
            for row in self.table
        )
        return f"<p>{markup.escape(self.verdict)}</p><table><tr>{head}</tr>{body}</table>"


def _cell(figure: object) -> str:
    if figure is None:
        return "-"
    return f"{figure:.5g}" if isinstance(figure, float) else markup.escape(str(figure))
