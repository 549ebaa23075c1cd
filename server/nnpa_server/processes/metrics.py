# SPDX-License-Identifier: Apache-2.0
"""Expose the metrics of several processes at one endpoint, with the label `process`."""

import urllib.request
from collections.abc import Generator, Sequence
from contextlib import suppress

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from nnpa_server.processes.members import Member

_SCRAPE_SECONDS = 5.0


class MembersCollector:
    """Collects the metrics of all processes except those that restart."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members

    def collect(self) -> Generator[Metric]:
        """Yield every family, with the samples of all processes."""
        families: dict[str, Metric] = {}
        for member in self._members:
            for family in _families(member.metrics):
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                label = {"process": str(member.number)}
                merged.samples += [
                    sample._replace(labels={**sample.labels, **label}) for sample in family.samples
                ]
        yield from families.values()


def _families(address: str) -> list[Metric]:
    with suppress(OSError):
        url = f"http://{address}/metrics"
        with urllib.request.urlopen(url, timeout=_SCRAPE_SECONDS) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))
    return []
