# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: fixtures for an emulated Telum. Installed with the package, without conftest.

    def test_sum(nnpa, nnpa_session):
        a = nnpa_session.ztensor(np.array([[1, 2]], np.float32))
        assert nnpa.zdnn.add(a, a).numpy().tolist() == [[2.0, 4.0]]

pytest loads the plugin into every run, so it imports heavy modules only in fixtures, and starts a
server only for a test that uses one. `-p no:nnpa` disables it.
"""

import hashlib
import re
import secrets
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from nnpa.zdnn.v1.accelerator_pb2 import MachineSpec

    from nnpa_client import Session
    from nnpa_client._server.private_server import Place, PrivateServer
    from nnpa_client._server.shared_server import SharedServer

_SHARED: "pytest.StashKey[SharedServer]" = pytest.StashKey()
_PLACE: "pytest.StashKey[Place]" = pytest.StashKey()
_LOG_START = pytest.StashKey[tuple[int, str]]()
_SESSION = pytest.StashKey[str]()
_DOOR = "nnpa_door"
_DEFAULTS = {"nnpa_machine": "telum2", "nnpa_library": "1.2.0"}  # as in nnpa_client.connect
_LOG_TIMEOUT = 5.0  # seconds; nnpa-server writes a line of its log about 0.1 s after the call
_LOG_LINES = 200
_LOG_SESSION = re.compile(r"\bsession=(\S+)")
_PROBED = "sessions/none"
_LOG_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group nnpa, and one for the configuration file."""
    group = parser.getgroup("nnpa", "nnpa: an emulated Telum")
    group.addoption(
        "--nnpa-machine",
        metavar="NAME,...",
        help="Machines of tests that name none (default: telum2). With several names, such as "
        "telum1,telum2, each test runs on each machine. Or JSON of a custom machine, or its file.",
    )
    group.addoption(
        "--nnpa-library",
        metavar="VERSION,...",
        help="Versions of zDNN of tests that name none (default: 1.2.0); several as above.",
    )
    group.addoption(
        "--nnpa-server",
        metavar="TARGET",
        help="Use this server, host:port or unix:/path, instead of starting one.",
    )
    group.addoption(
        "--nnpa-listen",
        metavar="ADDRESS",
        help="Where the server that is started listens: 127.0.0.1:0 is any free port "
        "(default: a Unix socket of its own).",
    )
    group.addoption(
        "--nnpa-sanitize",
        action="store_true",
        help="Have sessions look for misused ztensors: a test that misuses one fails, a C program "
        "prints the report on its standard error.",
    )
    parser.addini("nnpa_server_flags", "Further flags of the nnpa-server that is started.", "args")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and turn sanitizer warnings into failures with --nnpa-sanitize."""
    if config.getoption("--nnpa-sanitize"):
        config.addinivalue_line("filterwarnings", "error::nnpa_client.SanitizerWarning")
    config.addinivalue_line(
        "markers",
        "nnpa(machine, library, **options): the machine and zDNN version of a test, one or a "
        "list, and options of nnpa_client.connect.",
    )


class Worker(Protocol):
    """A worker process as pytest-xdist's controller sees it."""

    config: pytest.Config
    workerinput: dict[str, object]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Worker) -> None:
    """Pass a worker process of pytest-xdist the address that hands out the run's shared server."""
    if sys.platform == "win32":  # no private server runs there
        return
    from nnpa_client._server.shared_server import SharedServer

    stash = node.config.stash
    if _SHARED not in stash:
        stash[_SHARED] = SharedServer(lambda: _start_server(node.config))
    node.workerinput[_DOOR] = stash[_SHARED].door


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server that worker processes share."""
    if (shared := config.stash.get(_SHARED, None)) is not None:
        shared.stop()


def _start_server(config: pytest.Config) -> "PrivateServer":
    from nnpa_client._server.private_server import PrivateServer

    flags = ("--access-log", *config.getini("nnpa_server_flags"))  # for reports of failed tests
    return PrivateServer(config.getoption("--nnpa-listen"), flags)


def _marked(node: pytest.Item) -> dict[str, Any]:
    """Return the keywords of a test's marks; a function's override its class's and module's."""
    keywords: dict[str, Any] = {}
    for mark in node.iter_markers("nnpa"):
        if mark.args:
            raise pytest.UsageError(f"{node.nodeid}: mark nnpa takes keywords, not {mark.args!r}")
        keywords = {**mark.kwargs, **keywords}
    return keywords


def _choices(node: pytest.Item, fixture: str) -> "Sequence[str | MachineSpec]":
    """Return the machines, or versions, that a test runs on."""
    marked = _marked(node).get(fixture.removeprefix("nnpa_"))
    if marked is None:
        option: str | None = node.config.getoption(f"--{fixture.replace('_', '-')}")
        text = option or _DEFAULTS[fixture]
        return [text] if text.startswith("{") else text.split(",")
    return list(marked) if isinstance(marked, list | tuple) else [marked]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a machine on each of its machines and versions."""
    parametrized = {
        name.strip()
        for mark in metafunc.definition.iter_markers("parametrize")
        for name in (mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0])
    }
    for fixture in _DEFAULTS:
        if fixture in metafunc.fixturenames and fixture not in parametrized:
            choices = _choices(metafunc.definition, fixture)
            if len(choices) > 1:
                metafunc.parametrize(fixture, choices, indirect=True)


@pytest.fixture(scope="session")
def nnpa_server(request: pytest.FixtureRequest) -> "Iterator[Place]":
    """The server of this run, one for all tests and worker processes: `target`, `log`."""
    from nnpa_client._server.private_server import Place

    config, server, place = request.config, None, None
    target: str | None = config.getoption("--nnpa-server")
    door = getattr(config, "workerinput", {}).get(_DOOR)
    if target is not None:
        place = Place(target, None)
    elif door is not None:
        from nnpa_client._server.shared_server import ask

        try:
            place = ask(door)
        except OSError:
            place = None  # a worker on another host than the controller
    if place is None:
        server = _start_server(config)
        place = Place(server.target, server.log)
    config.stash[_PLACE] = place
    yield place
    if server is not None:
        server.stop()


@pytest.fixture
def nnpa_machine(request: pytest.FixtureRequest) -> "str | MachineSpec":
    """The machine of this test: a name, or the MachineSpec of its mark."""
    return getattr(request, "param", None) or _choices(request.node, "nnpa_machine")[0]


@pytest.fixture
def nnpa_library(request: pytest.FixtureRequest) -> str:
    """The version of zDNN of this test."""
    return str(getattr(request, "param", None) or _choices(request.node, "nnpa_library")[0])


@pytest.fixture
def nnpa_session(
    request: pytest.FixtureRequest,
    nnpa_server: "Place",
    nnpa_machine: "str | MachineSpec",
    nnpa_library: str,
) -> "Iterator[Session]":
    """An entered session on the test's machine, of its own; it ends with the test."""
    from nnpa_client import connect

    __tracebackhide__ = True
    options: dict[str, Any] = {"lease": True, **_marked(request.node)}
    options |= {"machine": nnpa_machine, "library": nnpa_library}
    if request.config.getoption("--nnpa-sanitize"):
        options["sanitize"] = True
    with connect(nnpa_server.target, **options) as session:
        request.node.stash[_SESSION] = _tag(session.name)
        yield session


@pytest.fixture
def nnpa(nnpa_session: "Session") -> "ModuleType":  # noqa: ARG001 - it opens the session
    """The client, the module `nnpa_client`, while `nnpa_session` is the innermost session."""
    import nnpa_client

    return nnpa_client


@pytest.fixture
def nnpa_environment(
    request: pytest.FixtureRequest,
    nnpa_server: "Place",
    nnpa_machine: "str | MachineSpec",
    nnpa_library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Mapping[str, str]:
    """The environment variables of C programs, set for this test and returned.

    Processes that the test starts inherit them; libzdnn in this process reads them when it is
    loaded and in every `zdnn_init`. A program check becomes a status instead of a signal.
    """
    from nnpa_client._guest.custom_machine import machine_text
    from nnpa_client.libzdnn import prefix

    machine = nnpa_machine if isinstance(nnpa_machine, str) else machine_text(nnpa_machine)
    variables = {
        "ZDNN_SERVER": nnpa_server.target,
        "ZDNN_MACHINE": machine,
        "ZDNN_LIBRARY_VERSION": nnpa_library,
        "ZDNN_PROGRAM_CHECK": "status",
    }
    if request.config.getoption("--nnpa-sanitize"):
        variables["ZDNN_SANITIZE"] = "1"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if (installation := prefix()) is not None:
        variables["LD_LIBRARY_PATH"] = str(installation / "lib")
        monkeypatch.setenv("LD_LIBRARY_PATH", variables["LD_LIBRARY_PATH"], prepend=":")
    return variables


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record the offset and time at which the log of this test begins."""
    place = item.config.stash.get(_PLACE, None)
    if place is not None and place.log is not None and place.log.exists():
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        item.stash[_LOG_START] = place.log.stat().st_size, now


def _records(log: Path, offset: int, since: str) -> list[list[str]]:
    """Return the records of a log after an offset, not older than `since`, as lists of lines."""
    with log.open("rb") as file:
        file.seek(offset)
        lines = file.read().decode(errors="replace").splitlines()
    records: list[list[str]] = []
    for line in lines:
        if _LOG_TIME.search(line) is None and records:
            records[-1].append(line)  # continues the record
        else:
            records.append([line])
    return [record for record in records if (_time_of(record) or since) >= since]


def _records_so_far(target: str, log: Path, offset: int, since: str) -> list[list[str]]:
    """Return `_records` once the log holds the records of all calls so far.

    Records are in the order of calls: the function makes a marker call and waits for its record.
    """
    import grpc
    from nnpa.zdnn.v1.accelerator_pb2 import GetSessionRequest
    from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

    marker, deadline = secrets.token_hex(8), time.monotonic() + _LOG_TIMEOUT
    with grpc.insecure_channel(target) as channel:
        request = GetSessionRequest(name=_PROBED)
        metadata = (("x-request-id", marker),)
        ask = AcceleratorServiceStub(channel).GetSession
        answer = ask.future(request, timeout=_LOG_TIMEOUT, metadata=metadata).code()
    while True:
        records = _records(log, offset, since)
        earlier = [record for record in records if marker not in record[0]]
        is_complete = len(earlier) < len(records) or answer is grpc.StatusCode.UNAVAILABLE
        if is_complete or time.monotonic() > deadline:
            return earlier
        time.sleep(0.02)


def _tag(name: str) -> str:
    """Return a session's name in the server's log, which hides the name that is its key."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _of_session(records: Sequence[list[str]], tag: str | None) -> list[str]:
    """Return the lines of the test's session and of no session, by time, without marker calls.

    A test without a session of its own gets the lines of all sessions.
    """
    kept: list[list[str]] = []
    for record in records:
        named = _LOG_SESSION.search(record[0])
        session = "-" if named is None else named[1]
        if session != _tag(_PROBED) and (tag is None or session in ("-", tag)):
            kept.append(record)
    return [line for record in sorted(kept, key=_time_of) for line in record]


def _time_of(record: Sequence[str]) -> str:
    match = _LOG_TIME.search(record[0])
    return "" if match is None else match[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the server's log of the test to the report of a failed one."""
    report = yield
    place = item.config.stash.get(_PLACE, None)
    uses = "nnpa_server" in getattr(item, "fixturenames", ())
    log = None if place is None else place.log
    if report.failed and uses and place is not None and log is not None and log.exists():
        records = _records_so_far(place.target, log, *item.stash.get(_LOG_START, (0, "")))
        lines = _of_session(records, item.stash.get(_SESSION, None))
        if lines:
            report.sections.append(("nnpa-server log", "\n".join(lines[-_LOG_LINES:])))
    return report
