# SPDX-License-Identifier: Apache-2.0
"""The soak: a leak and a slowdown are seen, a graph is drawn, a run goes on."""

from pathlib import Path

import pytest

from tests.hostile import soak, state
from tests.hostile.gauges import MIB
from tests.hostile.soak import Sample, Soak
from tests.hostile.target import OWN_SERVER

SAMPLES = 240


def _sample(number: int, memory: float = 300.0, p99: float = 20.0, workers: float = 0.0) -> Sample:
    own, family = round(memory * MIB), round((memory + workers) * MIB)
    return Sample(5.0 * number, own, family, 90, 60, 0, 500, 0, 3.0, p99)


def test_a_flat_run_holds() -> None:
    """Memory that grows in the first minutes, and noise, are no complaint."""
    run = [_sample(at, 200 + min(at, 30) * 3 + at % 3, 20 + at % 5) for at in range(SAMPLES)]
    assert Soak([run]).complaints() == []


def test_a_leak_is_seen() -> None:
    """A tenth more memory over the run is a complaint."""
    run = [_sample(at, 300 + 40 * at / SAMPLES) for at in range(SAMPLES)]
    (complaint,) = Soak([run]).complaints()
    assert complaint.startswith("memory: ")


def test_workers_may_come_and_go_and_not_grow() -> None:
    """Workers' memory may double for a while; a quarter more in the later half is a complaint."""
    restless = [_sample(at, workers=300 * (at // 20 % 2)) for at in range(SAMPLES)]
    assert Soak([restless]).complaints() == []
    growing = [_sample(at, workers=300 * at / SAMPLES) for at in range(SAMPLES)]
    (complaint,) = Soak([growing]).complaints()
    assert complaint.startswith("memory with workers: ")


def test_a_slowdown_is_seen() -> None:
    """A p99 that doubles is a complaint."""
    run = [_sample(at, p99=20 if at < SAMPLES * 3 // 4 else 40) for at in range(SAMPLES)]
    assert Soak([run]).complaints() == ["p99: 20.0 ms in the second quarter, 40.0 in the last"]


def test_failures_are_complaints() -> None:
    """A wrong answer is a complaint, however short the run was."""
    assert Soak([[]], ["wrong answer"]).complaints() == ["failed: wrong answer"]


def test_a_run_goes_on_and_is_drawn(tmp_path: Path) -> None:
    """A file of state has earlier runs, to which one is added; all are drawn."""
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "soak.json", tmp_path / "soak.png"
    state.save(path, Soak([[_sample(at) for at in range(9)]]).to_json())
    progress = soak.soak(OWN_SERVER, 0.5, 6, path)  # no time is left
    assert [len(run) for run in progress.runs] == [9]
    assert progress.seconds == 40.0
    soak.draw(progress, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.heavy
def test_a_short_soak() -> None:
    """Clients work in every way for a while; all of their answers are right."""
    progress = soak.soak(OWN_SERVER, 0.35, 6)
    assert progress.failures == []
    assert sum(sample.calls for sample in progress.runs[-1]) > 100
