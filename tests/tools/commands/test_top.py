# SPDX-License-Identifier: Apache-2.0
"""`nnpa top` and `nnpa token`: against a server with metrics and tokens."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nnpa_client
import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa_client import zdnn
from nnpa_client.errors import TransportError
from nnpa_tools.cli import main
from nnpa_tools.commands.top import Scrape, look, read_metrics

from tests.server.process import PLAIN, ServerProcess, serving

METRICS = """\
nnpa_sessions 2.0
nnpa_operations_total{machine="telum1",op="add",status="ZDNN_OK"} %d
nnpa_operations_total{machine="telum1",op="add",status="PROGRAM_CHECK"} 1
nnpa_operation_seconds_count{op="add"} 4
nnpa_operation_seconds_sum{op="add"} 0.008
nnpa_bytes_total{direction="received"} %d
"""


def run(*arguments: str) -> Result:
    """Run `nnpa` in this process on a wide terminal."""
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A token of `nnpa token`, and the file that the operator keeps."""
    secret, _, kept = run("token", "ci.runner").output.partition("\n")
    file = tmp_path_factory.mktemp("token") / "tokens.toml"
    file.write_text(kept)
    return secret, file


@pytest.fixture(scope="module")
def server(token: tuple[str, Path]) -> Iterator[ServerProcess]:
    """A server with metrics that knows the token."""
    flags = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--tokens", f"{token[1]}")
    with serving(token[1].parent, *flags) as process:
        yield process


def metrics_of(server: ServerProcess) -> str:
    """Return the URL of a server's metrics, from its log."""
    match = re.search(r"http://\S+", server.log_text())
    assert match is not None
    return match[0]


def test_a_made_token_opens_the_server(token: tuple[str, Path], server: ServerProcess) -> None:
    """The server takes the token and no other; the file does not hold the token itself."""
    secret, file = token
    assert secret not in file.read_text()
    assert list(tomllib.loads(file.read_text())["tokens"]) == ["ci.runner"]
    with nnpa_client.connect(server.address, token=secret) as session:
        ztensor = session.ztensor(np.ones(3, np.float32))
        zdnn.add(ztensor, ztensor)
    with pytest.raises(TransportError, match="TOKEN_INVALID"):
        nnpa_client.connect(server.address, token=f"{secret}x").close()


def test_two_tokens_differ() -> None:
    """Each token is new, of at least 128 bits."""
    tokens = {run("token", "x").output.partition("\n")[0] for _ in range(3)}
    assert len(tokens) == 3
    assert all(len(secret) * 6 >= 128 for secret in tokens)


def test_token_names_cannot_fake_log_lines() -> None:
    """A name that could fake a line of a log or file is refused."""
    assert run("token", "a\nb").exit_code == 2


def test_once_and_json_tell_what_ran(token: tuple[str, Path], server: ServerProcess) -> None:
    """One view has the operation with its count, and the table shows it."""
    with nnpa_client.connect(server.address, token=token[0], machine="z16") as session:
        ztensor = session.ztensor(np.ones(3, np.float32))
        zdnn.exp(ztensor)
        url = metrics_of(server)
        view = json.loads(run("top", url, "--json", "--interval", "0.1").output)
        table = run("top", url.split("/")[2], "--once", "--interval", "0.1").output
    rows = {(row["op"], row["machine"]): row for row in view["operations"]}
    assert (rows["exp", "telum1"]["total"], rows["exp", "telum1"]["not_ok"]) == (1, 0)
    assert rows["exp", "telum1"]["mean_ms"] > 0
    assert view["sessions"] == 1
    assert view["calls"]["Execute" if PLAIN else "ExecuteStream"] >= 1
    assert any(line.split()[:2] == ["exp", "telum1"] for line in table.splitlines())


def test_no_server_is_exit_code_3() -> None:
    """Without metrics at the address the command says so; a file is no address."""
    lost = run("top", "127.0.0.1:9", "--once")
    assert (lost.exit_code, "no metrics there" in lost.output) == (3, True)
    assert "Connection refused. Start nnpa-server with --metrics ADDRESS, and give that" in (
        " ".join(lost.output.split())
    )
    assert run("top", "file:///etc/passwd", "--once").exit_code == 2


def test_rates_are_differences_over_time() -> None:
    """8 more runs between two scrapes 2 s apart are 4 per second; after a restart the rate is 0."""
    before = Scrape(read_metrics(METRICS % (3, 100)).samples, 10.0)
    now = Scrape(read_metrics(METRICS % (11, 500)).samples, 12.0)
    view = look(now, before)
    row = view.operations[0]
    assert (row.total, row.not_ok, row.per_second, row.mean_ms) == (12, 1, 4.0, 2.0)
    assert (view.sessions, view.received_per_second) == (2, 200.0)
    restarted = Scrape(read_metrics(METRICS % (1, 50)).samples, 14.0)
    assert look(restarted, now).operations[0].per_second == 0
