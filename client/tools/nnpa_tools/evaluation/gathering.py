# SPDX-License-Identifier: Apache-2.0
"""What workers measured, added up in any order, and the report of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nnpa_network.reporting.accuracy import Report, Unmeasured, WorkerKind
from nnpa_network.reporting.measurements import Measurements

from nnpa_tools.evaluation.measuring import Measured


@dataclass(slots=True)
class Gathering:
    """Exact sums over batches, the kinds of workers that measured them, and rows that are lost."""

    total: Measurements | None = None
    kinds: dict[WorkerKind, set[str]] = field(default_factory=dict[WorkerKind, set[str]])
    lost: list[Unmeasured] = field(default_factory=list[Unmeasured])

    def add(self, measured: Measured) -> None:
        """Add what a worker measured; raise `ModelRefused` for batches that were added before."""
        self.kinds.setdefault(measured.kind, set()).add(measured.machine)
        if self.total is None:
            self.total = measured.measurements
        else:
            self.total.merge(measured.measurements)

    def report(self, about: Mapping[str, str], max_drop: float | None = None) -> Report:
        """Return the report; raise ValueError where nothing was measured."""
        if self.total is None:
            raise ValueError(f"nothing was measured: {'; '.join(map(str, sorted(self.lost)))}")
        return Report(self.total, about, max_drop, self._workers(), sorted(self.lost))

    def _workers(self) -> list[WorkerKind]:
        """Return the kinds of workers, by the names of their machines where they differ."""
        if len(self.kinds) == 1:
            return list(self.kinds)
        return sorted(replace(kind, names=tuple(sorted(n))) for kind, n in self.kinds.items())
