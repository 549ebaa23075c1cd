# SPDX-License-Identifier: Apache-2.0
"""Commands print the words of untrusted files and servers as text without control characters."""

import ast
import http.server
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click
import grpc
import nnpa_tools.commands
import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa.network.v1 import network_pb2
from nnpa.zdnn.v1 import accelerator_pb2, trace_pb2
from nnpa_client.network.calls import Options
from nnpa_client.network.hosted import Network
from nnpa_client.trace.format import MAGIC
from nnpa_tools.cli import main
from nnpa_tools.commands.terminal import visible
from nnpa_tools.models.generate import generated
from onnx import helper

from tests.network.small_models import model

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m[bold]x[/nothing]\x08\x9b1m\u202e\x7f"
CONTROLS = set("\x1b\x07\x08\x9b\u202e\x7f")


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def trace_file(path: Path, *records: bytes) -> Path:
    """Write a trace of serialised records."""
    packed = zlib.compress(b"".join(varint(len(record)) + record for record in records), 9)
    path.write_bytes(MAGIC + packed)
    return path


def hostile_trace(folder: Path) -> Path:
    """Return a trace whose texts are hostile."""
    start = trace_pb2.TraceRecord(start=trace_pb2.TraceStart(server_version=EVIL))
    session = trace_pb2.TraceRecord()
    session.session.session = 1
    session.session.options.machine.name = EVIL
    session.session.options.library_version = EVIL
    return trace_file(folder / "t.nnpa", start.SerializeToString(), session.SerializeToString())


def hostile_model(folder: Path) -> Path:
    """Return a model with hostile names for itself, its nodes, inputs and outputs."""
    nodes = [
        helper.make_node("Relu", [f"x{EVIL}"], [f"v{EVIL}"], f"relu{EVIL}"),
        helper.make_node("CumSum", [f"v{EVIL}", f"a{EVIL}"], [f"y{EVIL}"], f"sums{EVIL}"),
    ]
    ends = (f"x{EVIL}", np.float32, [2, 3]), (f"y{EVIL}", np.float32, [2, 3])
    proto = model(nodes, [ends[0]], [ends[1]], {f"a{EVIL}": np.array(1)})
    proto.graph.name = f"graph{EVIL}"
    file = folder / "m.onnx"
    file.write_bytes(proto.SerializeToString())
    return file


def refused_model(folder: Path) -> Path:
    """Return a model that is refused by a hostile name."""
    node = helper.make_node("Relu", [f"missing{EVIL}"], ["y"], f"node{EVIL}")
    ends = ("x", np.float32, [2]), ("y", np.float32, [2])
    file = folder / "refused.onnx"
    file.write_bytes(model([node], [ends[0]], [ends[1]]).SerializeToString())
    return file


def text_file(folder: Path, name: str, text: str) -> Path:
    """Write a text."""
    file = folder / name
    file.write_text(text)
    return file


def answers(folder: Path, name: str) -> Path:
    """Return answers to vectors whose names are hostile; they differ by the file's name."""
    output = {"is_transformed": True, "buffer_size": 4096, "memory": f"3E0{len(name) % 2}*2"}
    step = {"status": 0, "outputs": {f"out{EVIL}": output}}
    answer = {"file": f"add{EVIL}", "name": f"sum{EVIL}", "steps": [step]}
    return text_file(folder, name, json.dumps(answer) + "\n")


def program(folder: Path) -> Path:
    """Return a program in Python with a hostile name, that tells and fails."""
    return text_file(folder, "evil\x1b[2J.py", f"raise SystemExit({EVIL!r})\n")


@dataclass(frozen=True)
class Hostile:
    """Sources of hostile words: files, a server that hosts them, and two hostile servers."""

    folder: Path
    target: str
    server: str
    metrics: str


Words = Callable[[Hostile], Sequence[object]]
ROWS: dict[str, Words] = {
    "check": lambda h: [text_file(h.folder, "list.txt", f"zdnn_add\nzdnn_{EVIL}\n")],
    "conformance diff": lambda h: [answers(h.folder, "a.json"), answers(h.folder, "bb.json")],
    "conformance run": lambda h: [
        "--target", h.target, "--output", h.folder / "out.jsonl",
        text_file(h.folder, "v.jsonl", json.dumps({"name": EVIL, "op": EVIL}) + "\n"),
    ],
    "doctor": lambda h: ["--", program(h.folder)],
    "estimate": lambda h: [hostile_trace(h.folder)],
    "faults check": lambda h: [text_file(h.folder, "r.yaml", f'"{json.dumps(EVIL)[1:-1]}": 1')],
    "faults run": lambda h: [
        text_file(h.folder, "r.json", json.dumps({EVIL: 1})), "--", program(h.folder)
    ],
    "faults sweep": lambda h: ["--", program(h.folder)],
    "info": lambda h: [h.server],
    "network analyze": lambda h: [hostile_model(h.folder), "--target", h.target],
    "network generate": lambda h: [
        refused_model(h.folder), "--output", h.folder, "--target", h.target
    ],
    "network probe": lambda h: [hostile_model(h.folder), "--target", h.target],
    "network run": lambda h: [
        hostile_model(h.folder), "--input", h.folder / "x.npy", "--target", h.target
    ],
    "network validate": lambda h: [hostile_model(h.folder), "--target", h.target],
    "run": lambda h: ["--", program(h.folder)],
    "top": lambda h: ["--once", h.metrics],
    "trace diff": lambda h: [hostile_trace(h.folder), hostile_trace(h.folder)],
    "trace lint": lambda h: [hostile_trace(h.folder)],
    "trace record": lambda h: [
        "--target", h.server, "--output", h.folder / "r.nnpa", "--", "true"
    ],
    "trace replay": lambda h: [hostile_trace(h.folder), "--target", h.server],
    "trace show": lambda h: [hostile_trace(h.folder)],
    "view": lambda h: [text_file(h.folder, "evil\x1b[2J.txt", EVIL)],
}  # fmt: skip
OWN = {
    "completion": "prints a script of its own",
    "conformance score": "runs the project's own suites",
    "demo": "takes no file, and a server of its own",
    "faults schema": "prints a schema of its own",
    "libzdnn": "prints flags of its own",
    "token": "takes a name of few letters",
}
"""Commands that read no file and no server of others."""


class Strangers(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs alone
    """A server with hostile words only: it lists a machine, and refuses every other call."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return the handler of a call."""
        if handler_call_details.method.endswith("/ListMachines"):
            machine = accelerator_pb2.Machine(name=EVIL, display_name=EVIL, aliases=[EVIL])
            listed = accelerator_pb2.ListMachinesResponse(machines=[machine])

            def answer(_request: object, _context: grpc.ServicerContext) -> bytes:
                return listed.SerializeToString()

            return grpc.unary_unary_rpc_method_handler(answer)

        def refuse(_request: object, context: grpc.ServicerContext) -> bytes:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, EVIL)
            raise AssertionError

        return grpc.stream_unary_rpc_method_handler(refuse)


class Metrics(http.server.BaseHTTPRequestHandler):
    """Metrics with hostile labels."""

    calls = 0

    def do_GET(self) -> None:
        """Answer counters that grow."""
        Metrics.calls += 5
        labels = f'machine="{EVIL}",op="add{EVIL}",status="ZDNN_OK"'
        text = f"nnpa_sessions 1\nnnpa_operations_total{{{labels}}} {self.calls}\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write no log."""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    """The addresses of a hostile server and of hostile metrics."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Strangers()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as metrics:
        thread = threading.Thread(target=metrics.serve_forever)
        thread.start()
        yield f"127.0.0.1:{port}", f"127.0.0.1:{metrics.server_port}"
        metrics.shutdown()
        thread.join()
    server.stop(None)


@pytest.fixture
def hostile(tmp_path: Path, server_target: str, servers: tuple[str, str]) -> Hostile:
    """The sources of hostile words."""
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    return Hostile(tmp_path, server_target, *servers)


def run(*words: object) -> Result:
    """Run `nnpa`, with standard error after standard output."""
    return CliRunner().invoke(main, [*map(str, words)], env={"COLUMNS": "500"})


@pytest.mark.parametrize("name", ROWS)
def test_commands_print_control_characters_as_text(name: str, hostile: Hostile) -> None:
    """No command prints a control character of a file or server, or fails because of it."""
    ended = run(*name.split(), *ROWS[name](hostile))
    assert not CONTROLS & set(ended.output), ascii(ended.output)
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    assert ended.output or name == "run"


SAID = (
    *("check", "conformance diff", "info", "network analyze", "network generate", "network run"),
    *("network validate", "top", "trace diff", "trace replay", "trace show"),
)


@pytest.mark.parametrize("name", SAID)
def test_hostile_words_are_shown(name: str, hostile: Hostile) -> None:
    """Hostile words reach the output, with control characters escaped: the rows test something."""
    assert "\\x1b" in run(*name.split(), *ROWS[name](hostile)).output


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name))


def test_every_command_has_a_row() -> None:
    """Every command has a row of hostile words, or a reason why it has none."""
    assert {*commands(main)} == {*ROWS, *OWN}


def test_all_commands_print_by_one_function() -> None:
    """Commands print by `echo` and `Terminal`; click's own is for JSON, which escapes."""
    folder, violations = Path(nnpa_tools.commands.__path__[0]), list[str]()
    for file in folder.glob("*.py"):
        if file.name in ("terminal.py", "completion.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
            is_own = first.startswith(("json.dumps(", "f'\\r"))
            if called in ("print", "Console", "click.secho") or (
                called == "click.echo" and not is_own
            ):
                violations.append(f"{file.name}:{node.lineno}: {called}({first})")
    assert not violations


def test_texts_without_control_characters_stay() -> None:
    """Letters, lines and tabs of any language are printed as they are."""
    text = "a\tb\nZürich \N{SNOWMAN} 日本 \\x1b [bold]"
    assert visible(text) == text
    assert visible(visible(EVIL)) == visible(EVIL)
    assert visible("\x1b\r\x7f\x9b\u202e\ud800") == "\\x1b\\r\\x7f\\x9b\\u202e\\ud800"


@pytest.mark.parametrize(
    "kind", ["long", *(pytest.param(kind, marks=pytest.mark.heavy) for kind in ("many", "empty"))]
)
def test_a_bomb_of_a_trace_is_refused(kind: str, tmp_path: Path) -> None:
    """A small file that becomes gigabytes, or millions of records, is refused with the limit."""
    packed = zlib.compressobj(9)
    unit = {"long": bytes(1 << 20), "many": b"\x02\x3a\x00" * (1 << 18), "empty": bytes(1 << 20)}
    head = varint((1 << 30) - 9) + varint(1000 << 3 | 2) + varint((1 << 30) - 20)
    parts = [packed.compress(head if kind == "long" else b"")]
    parts += [packed.compress(unit[kind]) for _ in range(280)]
    file = tmp_path / "bomb.nnpa"
    file.write_bytes(MAGIC + b"".join(parts) + packed.flush())
    assert file.stat().st_size < 1 << 20
    ended = run("trace", "show", file)
    assert ended.exit_code == 2
    assert "its records take more than 268435456 bytes" in ended.output


class HostileNetwork:
    """A network whose server has hostile words for itself, a signature and a type."""

    c_name = "net"

    def report(self) -> network_pb2.NetworkReport:
        """Return a report of one weight."""
        evil = 'x*/ int evil; /* " \\\n\x1b'
        report = network_pb2.NetworkReport(tool_revision=evil, model_signature=evil)
        report.weights.add(name="w", dtype=evil, shape=[2], nbytes=8)
        report.params.channels = 8
        return report

    def export_program(self, *, contents: bool) -> bytes:
        """Return an empty program: free dims have sizes."""
        assert not contents
        return b""


@pytest.mark.parametrize("split", [False, True])
def test_generated_c_has_no_words_of_a_server_as_they_are(split: bool) -> None:
    """A server's names of itself, signatures and types end no comment and no string of C."""
    ends = ("x", np.float32, [2]), ("y", np.float32, [2])
    add = helper.make_node("Add", ["x", "w"], ["y"])
    data = model([add], [ends[0]], [ends[1]], {"w": np.ones(2, np.float32)}).SerializeToString()
    options, net = Options(split_weights=split), cast(Network, HostileNetwork())
    files = generated(net, data, "m.onnx", options)
    for text in files.values():
        assert "x__ int evil; __" in text or "evil" not in text
        assert "\x1b" not in text
    assert any("evil" in text for text in files.values())
