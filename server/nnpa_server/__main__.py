# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa-server`.

Nothing heavy is imported before the flags are read: --help is quick, and the kernel cache is chosen
before the kernels are.
"""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nnpa_server.config import (
    Config,
    Limits,
    Tls,
    is_local,
    kernel_cache,
    parse_listen,
    parse_size,
    parse_time,
)


class Text(click.ParamType):
    """A parameter read by one of config's parsers."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value; a bad one is a usage error."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_SIZE, _TIME = Text("size", parse_size), Text("time", parse_time)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LIMITS = Limits()


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ended as asked, 1 could not start, 2 usage.",
)
@click.option(
    "--listen",
    multiple=True,
    type=Text("address", parse_listen),
    default=("127.0.0.1:50051",),
    show_default=True,
    help="host:port or unix:/path; port 0 picks one, no host is 127.0.0.1. Repeatable.",
)
@click.option("--insecure", is_flag=True, help="Serve beyond loopback without TLS.")
@click.option("--tls-cert", type=_FILE, help="PEM certificate chain; TLS on every TCP listener.")
@click.option("--tls-key", type=_FILE, help="PEM key of --tls-cert.")
@click.option(
    "--tls-client-ca", type=_FILE, help="PEM: clients must show a certificate of this CA."
)
@click.option(
    "--max-sessions",
    type=click.IntRange(1),
    default=_LIMITS.max_sessions,
    show_default=True,
    help="Sessions at a time.",
)
@click.option(
    "--max-session-bytes",
    type=_SIZE,
    default="8GiB",
    show_default=True,
    help="Bytes of tensors and transfers of one session.",
)
@click.option(
    "--max-session-tensors",
    type=click.IntRange(1),
    default=_LIMITS.max_session_tensors,
    show_default=True,
    help="Tensors of one session.",
)
@click.option(
    "--idle-timeout",
    type=_TIME,
    default="15m",
    show_default=True,
    help="A session without a call for so long ends.",
)
@click.option(
    "--max-message",
    type=_SIZE,
    default="64MiB",
    show_default=True,
    help="Largest message; larger tensors are streamed.",
)
@click.option(
    "--workers",
    type=click.IntRange(4),
    default=64,
    show_default=True,
    help="Threads that run calls; at most half of them keep streams.",
)
@click.option(
    "--drain-timeout",
    type=_TIME,
    default="30s",
    show_default=True,
    help="After SIGTERM or SIGINT running calls have so long to finish.",
)
@click.option(
    "--exit-with-parent",
    "parent",
    type=click.IntRange(1),
    metavar="PID",
    help="End when PID, the process that started this one, ends, even by SIGKILL.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="info has one line per call.",
)
@click.option("--json", "as_json", is_flag=True, help="Log one JSON object per line.")
@click.version_option(package_name="nnpa", prog_name="nnpa-server")
def main(
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Serve an emulated Telum over gRPC.

    The first line on stdout, "nnpa-server listening on ADDRESS", says that it is ready; there is
    one for each --listen. Logs go to stderr.
    """
    names = ("max_sessions", "max_session_bytes", "max_session_tensors", "idle_timeout",
             "max_message")  # fmt: skip
    limits = Limits(**{name: flags.pop(name) for name in names})
    config = Config(
        tls=_tls(tls_cert, tls_key, tls_client_ca), limits=limits, json=as_json, **flags
    )
    beyond = [one for one in config.listen if not is_local(one)]
    if beyond and config.tls is None and not config.insecure:
        raise click.UsageError(
            f"--listen {beyond[0]} is reachable from other machines: "
            "add --tls-cert and --tls-key, or --insecure"
        )
    _start_logging(config)
    if kernel_cache() is None:
        logging.getLogger("nnpa.server").warning(
            "no writable kernel cache: kernels are compiled anew"
        )
    from nnpa_server.app import serve

    sys.exit(serve(config))


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key go together; --tls-client-ca needs both")
    return Tls(cert.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca else None)


def _start_logging(config: Config) -> None:
    logging.basicConfig(
        level=config.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )


if __name__ == "__main__":
    main()
