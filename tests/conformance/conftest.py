# SPDX-License-Identifier: Apache-2.0
"""A server for the testees, and the table of what passed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.server_process import serving
from tests.conformance.testees import PLAIN, SDKS

TALLY = "conformance"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server process, as ZDNN_SERVER takes it."""
    socket = Path(tmp_path_factory.mktemp("conformance")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--max-sessions", "256") as targets:
        yield targets[0]


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Print verb by SDK: vectors passed of vectors run, and how many are known to fail."""
    tally: Counter[tuple[str, str, str]] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for key, value in report.user_properties:
            if key == TALLY and isinstance(value, list):
                sdk, function, passed, expected, failed = value
                tally[sdk, function, "passed"] += passed
                tally[sdk, function, "known"] += expected
                tally[sdk, function, "failed"] += failed
    if not tally:
        return
    names = [sdk.name for sdk in (*SDKS, *PLAIN)]
    sdks = [name for name in names if any(key[0] == name for key in tally)]
    terminalreporter.section("conformance: vectors passed (+ known to fail, - failed)")
    terminalreporter.line(f"{'':42}" + "".join(f"{sdk:>17}" for sdk in sdks))
    for function in sorted({key[1] for key in tally}):
        cells = "".join(f"{_cell(tally, sdk, function):>17}" for sdk in sdks)
        terminalreporter.line(f"{function:42}{cells}")


def _cell(tally: Counter[tuple[str, str, str]], sdk: str, function: str) -> str:
    kinds = ("passed", "known", "failed")
    passed, expected, failed = (tally[sdk, function, kind] for kind in kinds)
    if not passed + expected + failed:
        return "-"
    return f"{passed}" + (f" +{expected}" if expected else "") + (f" -{failed}" if failed else "")
