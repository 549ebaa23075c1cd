# SPDX-License-Identifier: Apache-2.0
"""`nnpa view` as a process, and the traces that tests have it show."""

import io
import subprocess
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result
from google.protobuf.proto import serialize_length_prefixed
from nnpa.zdnn.v1.trace_pb2 import TRACE_END_REASON_ENDED, TraceRecord, TraceStart
from nnpa_client import Session, trace, zdnn
from nnpa_client.trace.format import TraceWriter
from nnpa_tools.cli import main

from tests.network.small_models import dense
from tests.server.page.serving import PageServer
from tests.server.process import PATIENCE

HOSTILE = "<img src=x onerror=document.title='XSS'>"
_MAIN = "from nnpa_tools.cli import main; main()"
_READY = "nnpa view on "


@contextmanager
def viewing(*files: Path | str) -> Generator[PageServer]:
    """Run `nnpa view` of files."""
    command = [sys.executable, "-c", _MAIN, "view", *map(str, files)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(_READY), line
        yield PageServer(line.removeprefix(_READY).strip(), "", process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


def refused(*arguments: Path | str) -> Result:
    """Return the result of a refused `nnpa view`."""
    result = CliRunner().invoke(main, ["view", *map(str, arguments)], env={"COLUMNS": "300"})
    assert "Traceback" not in result.output
    assert "nnpa view on" not in result.output
    return result


def record(session: Session, path: Path, scale: float) -> trace.Trace:
    """Record additions of scaled arrays, a refused one, and a logarithm out of its range."""
    values = np.array([[1.5, -2.0, 0.25]], np.float32) * np.float32(scale)
    with session.trace(path, contents=True) as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        left, right = session.ztensor(values), session.ztensor(values)
        zdnn.add(left, right).numpy()
        zdnn.log(left)
        session.execute([])
    return recording.read()


def write(path: Path, *records: TraceRecord) -> Path:
    """Write a trace of the records, followed by an end."""
    ended = TraceRecord()
    ended.end.reason = TRACE_END_REASON_ENDED
    writer = TraceWriter(path)
    for entry in (TraceRecord(start=TraceStart()), *records, ended):
        framed = io.BytesIO()
        serialize_length_prefixed(entry, framed)
        writer.write(framed.getvalue())
    writer.close()
    return path


def calls(count: int) -> list[TraceRecord]:
    """Return the records of a session and `count` calls of zdnn_add, 1000 ns each."""
    begun = TraceRecord()
    begun.session.session, begun.session.options.machine.name = 1, "machines/telum2"
    records = [begun]
    for place in range(count):
        traced = TraceRecord()
        traced.call.session, traced.call.start_ns = 1, 1000 * place
        traced.call.operations.add().add.SetInParent()
        traced.call.durations_ns.append(1000)
        traced.call.results.append(0)
        if place == 0:
            traced.call.new_results.add()
        records.append(traced)
    return records


def write_model_and_report(folder: Path) -> None:
    """Write dense.onnx, of three nodes, and its accuracy report, report.json."""
    (folder / "dense.onnx").write_bytes(dense(32).SerializeToString())
    (folder / "report.json").write_text(report_of(folder / "dense.onnx"), encoding="utf-8")


def report_of(model: Path) -> str:
    """Return the accuracy report of a model over made-up rows."""
    options = ["--samples", "4", "--no-int8", "--jobs", "1", "--json"]
    result = CliRunner().invoke(main, ["network", "validate", str(model), *options])
    assert result.exit_code == 0, result.output
    return result.stdout
