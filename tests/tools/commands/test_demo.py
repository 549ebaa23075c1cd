# SPDX-License-Identifier: Apache-2.0
"""`nnpa demo`: digits read by two networks on both Telums, and by a hosted ONNX model."""

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nnpa_tools.cli import main
from nnpa_tools.commands import demo


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure each time once: these tests compare no times."""
    monkeypatch.setattr(demo, "ROUNDS", 1)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


@pytest.mark.heavy
def test_networks_reach_the_promised_accuracy(server_target: str) -> None:
    """Both networks reach the promised accuracy on both machines, each as one list of calls."""
    result = _run(server_target, "--json")
    assert result.exit_code == 0
    reports = json.loads(result.stdout)
    assert [report["machine"] for report in reports] == ["telum1", "telum2"]
    for report in reports:
        assert report["as_promised"]
        cnn, lstm = report["networks"]
        assert (cnn["network"], lstm["network"]) == ("cnn", "lstm")
        for network in (cnn, lstm):
            assert network["digits"] == 360
            assert network["dense_bytes"] == 360 * 64 * 4
            assert network["accuracy"] >= network["reference_accuracy"] - 0.01
            assert network["same_answers"] >= 356
            assert network["worst_difference"] < 0.05
            assert network["violations"] == 0
            times = [slow["milliseconds"] for slow in network["slowest"]]
            assert len(times) == 3
            assert times == sorted(times, reverse=True)
        assert cnn["stick_bytes"] == 360 * 8 * 4096
        assert lstm["stick_bytes"] == 8 * 12 * 4096
        assert (cnn["accuracy"] >= 0.97, lstm["accuracy"] >= 0.95) == (True, True)
        model = report["model"]
        assert (model["digits"], model["shape"]) == (360, [360, 1, 8, 8])
        assert model["on_accelerator"] >= 7
        assert model["accuracy"] >= 0.97
        assert model["accuracy"] >= model["reference_accuracy"] - 0.01
        assert model["same_answers"] >= 356
        assert model["worst_difference"] < 0.05
        assert model["violations"] == 0
        # source in 3 calls, 7 layers of which reshape allocates in 2, back in 1; LSTM: 3 layers
        assert (cnn["calls"], lstm["calls"]) == (3 + 7 + 2 + 1, 3 + 3 + 1)


def test_the_table_fits_80_columns(server_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table fits a terminal of 80 columns, nothing cut."""
    monkeypatch.setenv("COLUMNS", "80")
    result = _run(server_target)
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["as", "promised", "yes", "yes"] in rows
    assert ["range", "violations", "0", "0"] in rows
    assert sum(row[:1] == ["accuracy"] for row in rows) == 6
    assert sum(row[:2] == ["slowest,", "ms"] for row in rows) == 2
    assert "…" not in result.stdout
    *report, following = result.stdout.splitlines()
    assert max(map(len, report)) <= 80
    assert following.startswith("Next: ")


@pytest.mark.heavy
def test_changed_answers_are_counted(server_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closing sentence counts the answers that differ from FP32's, by machine."""
    hosted = demo.hosted

    def differing(*arguments: Any) -> demo.ModelReport:
        return replace(hosted(*arguments), same_answers=358)

    monkeypatch.setattr(demo, "hosted", differing)
    assert _run(server_target).stdout.splitlines()[-2] == (
        "On 360 digits DLFLOAT16 changed 2 of 1080 answers on IBM z16, Telum I; "
        "2 of 1080 answers on IBM z17, Telum II."
    )


def test_not_as_promised(server_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accuracy below the promise ends with exit code 1, and the report says NO."""
    monkeypatch.setitem(demo.PROMISED, "lstm", 0.999)
    result = _run(server_target)
    assert result.exit_code == 1
    assert "NO" in result.stdout.split()
    assert "not as promised" in result.stderr
