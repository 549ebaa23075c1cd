# SPDX-License-Identifier: Apache-2.0
"""Messages answer mistakes in the user's words: the value, the expected value, and advice."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa_client import ProgramCheck, Session, TransportError, ZdnnError, connect, zdnn
from nnpa_client._values.availability import find_host
from nnpa_client._values.display import counted
from nnpa_client.networks.digits import MODEL_FILE, onnx_cnn
from nnpa_tools.cli import main

from tests.certificates import issue
from tests.client.conftest import Open
from tests.client.server_process import serving
from tests.server.process import PATIENCE, ServerProcess
from tests.server.process import serving as serving_with

EXTRA = (
    "grpc_channelz", "grpc_health", "grpc_reflection", "llvmlite", "numba", "prometheus_client",
    "testcontainers", "threadpoolctl",
)  # fmt: skip
ONES: Any = np.ones((2, 3), np.float32)
NOTHING: Any = None
NUMBERS: Any = [1.0, 2.0]


def install(extras: str) -> str:
    """Return a pattern of the command that adds extras to an installation from a clone."""
    return rf"pip install (-e )?'?/[^ ]*\[{re.escape(extras)}\]'?"


def _without(packages: Sequence[str], folder: Path) -> dict[str, str]:
    """Return an environment whose Python lacks packages."""
    code = f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n"
    (folder / "sitecustomize.py").write_text(code)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python has none of the extras' packages."""
    return _without(EXTRA, tmp_path)


def python(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program of Python in an environment."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE)


def test_a_server_without_its_extra_says_the_command(without_extras: dict[str, str]) -> None:
    """`nnpa-server` without its extra ends with 1 and one line that names the command."""
    code = "from nnpa_server.__main__ import main; main(['--listen', '127.0.0.1:0'])"
    ended = python(code, without_extras)
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert re.fullmatch(r"nnpa-server: \w+ is not installed: " + install("server"), line)


def test_connect_without_the_extra_says_the_command(without_extras: dict[str, str]) -> None:
    """`connect()` without the extra is one TransportError that names the command."""
    ended = python("from nnpa_client import connect; connect()", without_extras)
    last = ended.stderr.splitlines()[-1]
    assert "TransportError: UNAVAILABLE: no private server could be started" in last
    assert re.search(install("server") + r"\. Or use a server that runs already", last)


@pytest.mark.heavy
@pytest.mark.parametrize("arguments", [("info",), ("demo",)])
def test_a_command_without_the_extra_says_the_command(
    arguments: tuple[str, ...], without_extras: dict[str, str]
) -> None:
    """A command that starts a private server says the same in one line, without a traceback."""
    ended = python(f"from nnpa_tools.cli import main; main({list(arguments)})", without_extras)
    assert ended.returncode == 3
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert re.search(install("server"), ended.stderr)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("analyze", 3, "for ONNX, the extra onnx. .* Here: " + install("onnx")),
        ("validate", 2, "Error: onnx is not installed: " + install("server,onnx")),
    ],
)
def test_a_model_without_the_extra_says_the_command(
    command: str, code: int, says: str, tmp_path: Path
) -> None:
    """A model that meets no packages for ONNX is a sentence with the command, no traceback."""
    (tmp_path / "model.onnx").write_bytes(onnx_cnn())
    arguments = ["network", command, str(tmp_path / "model.onnx")]
    program = f"from nnpa_tools.cli import main; main({arguments})"
    ended = python(program, _without(("onnx", "onnxruntime"), tmp_path))
    assert ended.returncode == code, ended.stderr
    assert re.search(says, ended.stderr.splitlines()[-1])
    assert "Traceback" not in ended.stderr


@pytest.mark.heavy
@pytest.mark.parametrize("command", [("network", "generate"), ("conformance", "score", "--out")])
def test_a_page_without_the_extra_says_the_command(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """A command that writes pages says in one line that Jinja is missing, before the work."""
    arguments = [*command, str(MODEL_FILE if "network" in command else tmp_path / "out")]
    program = f"from nnpa_tools.cli import main; main({arguments})"
    ended = python(program, _without(("jinja2",), tmp_path))
    assert ended.returncode == 2
    says = "Error: jinja2 is not installed: " + install("onnx")
    assert re.fullmatch(says, ended.stderr.splitlines()[-1])
    assert "Traceback" not in ended.stderr


def test_a_container_without_the_extra_says_the_command(without_extras: dict[str, str]) -> None:
    """`nnpa_client.testcontainers` without Testcontainers names the command."""
    ended = python("import nnpa_client.testcontainers", without_extras)
    assert re.search("needs testcontainers: " + install("testcontainers") + "\n$", ended.stderr)


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda a: zdnn.add(a, ONES), "input_b: ndarray, expected a ztensor; session.ztensor"),
    (lambda a: zdnn.add(ONES, a), "input_a: ndarray, expected a ztensor; session.ztensor"),
    (lambda a: zdnn.add(a, NUMBERS), "input_b: list, expected a ztensor; session.ztensor"),
    (lambda a: zdnn.add(a, a, ONES), "output: ndarray, expected a ztensor"),
    (lambda a: zdnn.matmul_op(a, a, NOTHING), "input_c: None, expected a ztensor"),
    (lambda _: zdnn.transform_ztensor(ONES, ONES), "ztensor: ndarray, expected a ztensor"),
    (lambda _: zdnn.free_ztensor_buffer(ONES), "ztensor: ndarray, expected a ztensor"),
]


@pytest.mark.parametrize(("call", "says"), MISTAKES)
def test_an_array_where_a_ztensor_belongs(
    session: Session, call: Callable[[Any], object], says: str
) -> None:
    """An array where a ztensor belongs is a TypeError with the parameter's name and the way."""
    with pytest.raises(TypeError, match=re.escape(says)) as caught:
        call(session.ztensor(ONES))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("layout", ["NHWC", "nhwc", "ZDNN_NHWC", zdnn.ZDNN_NHWC])
def test_a_layout_may_be_a_name(session: Session, layout: int | str) -> None:
    """A layout is a constant or its name, in any case, in ztensors and in descriptors."""
    image = np.ones((1, 2, 2, 3), np.float32)
    assert session.ztensor(image, layout).pre_transformed_desc.layout == zdnn.ZDNN_NHWC
    described = zdnn.init_pre_transformed_desc(layout, "FP32", 1, 2, 2, 3)
    assert described == zdnn.init_pre_transformed_desc(zdnn.ZDNN_NHWC, zdnn.FP32, 1, 2, 2, 3)


def test_an_unknown_layout_lists_the_known(session: Session) -> None:
    """An unknown layout is a ValueError that lists the names of layouts."""
    with pytest.raises(ValueError, match=r"'NHCW', expected one of 1D, 2D, .*NHWC"):
        session.ztensor(np.ones((1, 2, 2, 3), np.float32), "NHCW")


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 3, 4, 5)])
def test_a_wrong_count_of_sizes_names_the_layout(session: Session, sizes: tuple[int, ...]) -> None:
    """Too few or too many sizes name the layout, and so does an array of other dims."""
    with pytest.raises(TypeError, match=f"layout ZDNN_NHWC has 4, not {len(sizes)}"):
        zdnn.init_pre_transformed_desc(zdnn.ZDNN_NHWC, zdnn.FP32, *sizes)
    with pytest.raises(ValueError, match=r"array: 2 dims .*, layout ZDNN_NHWC has 4"):
        session.ztensor(ONES, "NHWC")


def test_a_freed_operand_is_no_ok(session: Session) -> None:
    """A freed operand is a program check that says freed, and no ZDNN_OK."""
    a, freed = session.ztensor(ONES), session.ztensor(ONES)
    zdnn.free_ztensor_buffer(freed)
    with pytest.raises(ProgramCheck, match=r"input_b\.buffer is 0 bytes.* it was freed") as caught:
        zdnn.add(a, freed)
    assert "ZDNN_OK" not in str(caught.value)


def test_a_function_that_the_machine_lacks_names_both_machines(open_session: Open) -> None:
    """On a z16 gelu's error names the machine that it needs and the session's machine."""
    session = open_session("telum1")
    with pytest.raises(ZdnnError) as caught:
        zdnn.gelu(session.ztensor(ONES))
    assert str(caught.value) == (
        "zdnn_gelu: ZDNN_UNAVAILABLE_FUNCTION: zdnn_gelu needs Telum II (z17); "
        "this session runs on telum1 (z16) [pipeline_c2]"
    )


def test_a_tensor_without_elements_names_the_dimension(session: Session) -> None:
    """A descriptor without elements names the dimension, the limit and the machine."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 0, 3)
    text = (
        r"ZDNN_INVALID_SHAPE: ztensor\.transformed_desc\.dim2 is 0, must be 1 to 1048576 on "
        r"telum2 \(z17\): zDNN has no tensor without elements \[allochelper_ztensor_c1\]"
    )
    with pytest.raises(ZdnnError, match=text):
        session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))


@pytest.mark.parametrize("name", ["Z16", "z16", "TELUM1", "Telum1"])
def test_machines_have_no_case(open_session: Open, name: str) -> None:
    """A machine is found by name or alias in any case, at a server and by `nnpa check`."""
    assert open_session(name).machine.name == "machines/telum1"
    assert find_host(name).name == "telum1"


def test_an_unknown_machine_lists_names_with_aliases(open_session: Open) -> None:
    """The error for an unknown machine lists all names with their aliases."""
    machines = r"telum1 \(z16\), telum2 \(z17\), z15"
    with pytest.raises(TransportError, match=f"machine is 'z18', must be one of {machines}"):
        open_session("z18")
    with pytest.raises(ValueError, match=f"machine: 'z18', expected one of {machines}"):
        find_host("z18")


def test_an_array_of_wrong_size_is_a_value_error(session: Session) -> None:
    """An array of wrong size is a ValueError with both sizes, and no TransportError."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 2, 3)
    ztensor = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    says = r"shape \(2, 4\), 32 bytes, the descriptor ZDNN_2D of \(2, 3\) FP32 calls for 24"
    with pytest.raises(ValueError, match=says):
        zdnn.transform_ztensor(ztensor, np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="sticks: 3 bytes, expected 4096"):
        ztensor.write_sticks(b"abc")
    assert not ztensor.is_transformed


def test_a_ztensor_of_another_session_names_no_session(open_session: Open) -> None:
    """A ztensor of another session is refused without the names of sessions, which are keys."""
    a, foreign = open_session().ztensor(ONES), open_session().ztensor(ONES)
    with pytest.raises(ValueError, match="input_b: of another session") as caught:
        zdnn.add(a, foreign)
    assert "sessions/" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https", "grpc"])
def test_a_url_is_no_target(scheme: str) -> None:
    """A URL as target is a ValueError that shows what to write."""
    with pytest.raises(ValueError, match="is a URL, expected host:port; give 'localhost:50051'"):
        connect(f"{scheme}://localhost:50051")


def test_a_port_with_tls_is_named(tmp_path: Path) -> None:
    """Plain text to a port with TLS says that it speaks TLS, and how to give certificates."""
    certificate, key = issue("server", issue("ca")).write(tmp_path, "server")
    flags = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(["127.0.0.1:0"], *flags) as (target,):
        with pytest.raises(TransportError, match=f"{target} speaks TLS. Give tls_ca") as caught:
            connect(target)
        assert caught.value.code == "UNAVAILABLE"


def test_text_and_advice_are_two_sentences() -> None:
    """An error's text ends with a full stop before the advice begins."""
    text = "machine is 'z18', must be telum1"
    error = TransportError("NOT_FOUND", text, "MACHINE_NOT_FOUND")
    assert str(error).endswith(f"{text}. {error.advice}")
    assert ".." not in str(TransportError("NOT_FOUND", "gone.", "MACHINE_NOT_FOUND"))


def test_a_closed_session_says_so(server_target: str) -> None:
    """A call of a closed session says that it is closed."""
    with connect(server_target) as session:
        a = session.ztensor(ONES)
    with pytest.raises(TransportError, match=r"session.* closed"):
        zdnn.add(a, a)


def test_no_module_is_a_verb() -> None:
    """Public names of `zdnn` are functions and constants: `zdnn.matmul` is no module."""
    assert not hasattr(zdnn, "matmul")
    names = [name for name in dir(zdnn) if name.isidentifier() and not name.startswith("_")]
    assert [name for name in names if isinstance(getattr(zdnn, name), type(sys))] == []


def test_check_fails_for_what_is_no_function() -> None:
    """`nnpa check nosuch` ends with 1 and names nosuch; for existing functions it ends with 0."""
    runner = CliRunner()
    failed = runner.invoke(main, ["check", "nosuch", "add"])
    assert failed.exit_code == 1
    assert "no function of zDNN 1.2.0: zdnn_nosuch" in failed.stderr
    assert runner.invoke(main, ["check", "zdnn_add"]).exit_code == 0


def test_a_port_in_use_is_one_line(server: ServerProcess) -> None:
    """A port that is taken is one line of ours, and none of gRPC's core."""
    command = [sys.executable, "-m", "nnpa_server", "--listen", server.address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if "nnpa.kernels" not in line]
    text = "the port is in use; choose another, or 0 for any"
    assert lines == [f"nnpa-server: cannot listen on {server.address}: {text}"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with metrics."""
    folder = tmp_path_factory.mktemp("server")
    flags = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with serving_with(folder, *flags) as process:
        yield process


def test_top_in_a_pipe_prints_each_interval_and_ends_with_the_pipe(server: ServerProcess) -> None:
    """`nnpa top` in a pipe prints a view each interval, and SIGPIPE ends it."""
    address = re.search(r"http://(\S+)/metrics", server.log_text())
    assert address is not None
    code = "from nnpa_tools.cli import main; main()"
    command = [sys.executable, "-c", code, "top", address[1], "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        views = 0
        while views < 3:
            views += process.stdout.readline().startswith("sessions ")
        process.stdout.close()
        assert process.wait(PATIENCE) == -signal.SIGPIPE


def test_top_names_a_port_of_grpc(server: ServerProcess) -> None:
    """`nnpa top` at a port of gRPC says so, in one readable line."""
    ended = CliRunner().invoke(main, ["top", server.address, "--once"])
    assert ended.exit_code == 3
    assert "that is a port of gRPC. Give the address of the server's --metrics" in ended.stderr
    assert ended.stderr.isprintable() or ended.stderr.strip().isprintable()


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "call", "0 calls"), (1, "call", "1 call"), (1, "status", "1 status"),
     (2, "status", "2 statuses"), (1024, "row", "1,024 rows")],
)  # fmt: skip
def test_a_noun_has_the_number_of_its_count(count: int, noun: str, text: str) -> None:
    """A count of 1 has the singular, any other the plural."""
    assert counted(count, noun) == text
