# SPDX-License-Identifier: Apache-2.0
"""Every name that programs and people rely on, one a line; `public_names.txt` is the promise.

    python -m tests.public_names > tests/public_names.txt    # promise what is new

Messages and fields on the wire are promised by `protos/baseline.binpb` (`buf breaking`).
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

import click
import nnpa_client
from google.protobuf.message import Message
from nnpa.zdnn.v1.status_pb2 import ErrorReason
from nnpa_client.cli import main as client_command
from nnpa_server.__main__ import main as server_command
from nnpa_server.config import Limits
from nnpa_server.rpc.prometheus import Collector
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.store import Store

ROOT = Path(__file__).resolve().parent.parent
MODULES = (
    "nnpa_client",
    "nnpa_client.errors",
    "nnpa_client.faults",
    "nnpa_client.inference",
    "nnpa_client.mli",
    "nnpa_client.network",
    "nnpa_client.networks",
    "nnpa_client.networks.digits",
    "nnpa_client.rnn",
    "nnpa_client.status",
    "nnpa_client.testcontainers",
    "nnpa_client.testing",
    "nnpa_client.trace",
    "nnpa_client.zdnn",
)
# Classes that a public function makes: nobody calls their constructors.
MADE_BY_FUNCTIONS = {"Connection", "Network", "Pipeline", "Session", "Ztensor"}
# What the package's own modules ask of a ztensor.
INTERNAL = {"finalizer", "freed_id", "guest", "held", "missing", "new_output", "quantization"}
# The only modules that read the environment.
ENVIRONMENT = (
    "client/python/nnpa_client/config.py",
    "client/python/nnpa_client/pytest_plugin.py",
    "client/libzdnn/src/**/*.rs",
    "client/go/**/*.go",
    "client/java/**/*.java",
    "client/typescript/src/**/*.ts",
    "server/nnpa_server/config.py",
)
VARIABLE = re.compile(
    r'"((?:ZDNN|NNPA)_(?:ENABLE_PRECHECK|FAULTS|LIBRARY_VERSION|LOGLEVEL|LOGMODULE|MACHINE|PLAIN'
    r"|PROGRAM_CHECK|REQUIRE_SERVER|SANITIZE|SERVER|STATUS_DIAG|TLS_CA|TLS_CERT|TLS_KEY|TOKEN"
    r'|TRACE|TRANSFER))"'
)


def collect() -> list[str]:
    """Return all public names, sorted within their kinds."""
    return [
        *sorted(name for module in MODULES for name in _python(importlib.import_module(module))),
        *sorted(_command("nnpa", client_command)),
        *sorted(_command("nnpa-server", server_command)),
        *sorted(_pytest_plugin()),
        *sorted(_environment()),
        *sorted(_metrics()),
        *(f"reason {name}" for name in sorted(ErrorReason.keys())),
        *sorted(_exit_codes("nnpa", client_command)),
        *sorted(_exit_codes("nnpa-server", server_command)),
    ]


def _python(module: ModuleType) -> Iterator[str]:
    for name in _exported(module):
        attribute: object = getattr(module, name)
        path = f"python {module.__name__}.{name}"
        yield path
        if module.__name__ != "nnpa_client" and name in vars(nnpa_client)["__all__"]:
            continue
        if isinstance(attribute, type):
            yield from _class(path, attribute)
        elif inspect.isfunction(attribute):
            yield from _parameters(path, attribute)
        elif isinstance(attribute, int | str) and name != "__version__":
            yield f"{path} = {attribute!r}"


def _exported(module: ModuleType) -> list[str]:
    names: list[str] | None = getattr(module, "__all__", None)
    if names is not None:
        return names
    home = module.__name__
    return [
        name
        for name, attribute in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(attribute)
        and (home == "nnpa_client.zdnn" or getattr(attribute, "__module__", "") == home)
    ]


def _class(path: str, cls: type) -> Iterator[str]:
    if issubclass(cls, Message):
        return
    if issubclass(cls, Enum):
        yield from (f"{path}.{member.name} = {member.value!r}" for member in cls)
        return
    if cls.__name__ not in MADE_BY_FUNCTIONS:
        yield from _parameters(path, cls)
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("nnpa_client"):
            for name in _attributes(base):
                yield f"{path}.{name}"
                attribute = inspect.getattr_static(cls, name, None)
                if inspect.isfunction(attribute):
                    yield from _parameters(f"{path}.{name}", attribute)


def _attributes(cls: type) -> set[str]:
    """Return the public attributes of a class, those that its methods set included."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    names = assigned | vars(cls).keys() | inspect.get_annotations(cls).keys()
    return {name for name in names - INTERNAL if not name.startswith("_")}


def _parameters(path: str, function: Callable[..., object]) -> Iterator[str]:
    """Yield the parameters: those that may be positional with their places."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    for place, parameter in enumerate(signature.parameters.values()):
        if parameter.name == "self":
            continue
        where = "" if parameter.kind is parameter.KEYWORD_ONLY else f" {place}"
        is_rest = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        star = ("*" if parameter.kind is parameter.VAR_POSITIONAL else "**") if is_rest else ""
        default = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        yield f"{path}({star}{parameter.name}{default}){where}"


def _shown(default: object) -> str:
    text = repr(default)
    return "..." if " at 0x" in text or "<" in text else text


def _command(path: str, command: click.Command) -> Iterator[str]:
    yield f"command {path}"
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            is_flag = isinstance(parameter, click.Option)
            yield f"command {path} {name if is_flag else name.upper()}"
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _command(f"{path} {name}", child)


def _pytest_plugin() -> set[str]:
    """Return the flags and fixtures of the pytest plugin."""
    source = (ROOT / "client/python/nnpa_client/pytest_plugin.py").read_text()
    fixtures = {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    flags: set[str] = set(re.findall(r'"(--nnpa-[a-z-]+)"', source))
    return {f"pytest {name}" for name in fixtures | flags}


def _environment() -> set[str]:
    return {
        f"environment {name}"
        for pattern in ENVIRONMENT
        for path in ROOT.glob(pattern)
        if not {"target", "node_modules", "build"} & set(path.parts)
        for name in VARIABLE.findall(path.read_text())
    }


def _metrics() -> Iterator[str]:
    for family in Collector(Metrics(), Store(Limits())).collect():
        labels: tuple[str, ...] = getattr(family, "_labelnames", ())
        yield f"metric {family.name} {family.type} {','.join(labels)}".rstrip()


def _exit_codes(path: str, command: click.Command) -> Iterator[str]:
    text = (command.epilog or "").partition("Exit codes: ")[2].partition(".")[0]
    yield from (f"exit {path} {meaning}" for meaning in text.split(", "))


if __name__ == "__main__":
    sys.stdout.write("\n".join(collect()) + "\n")
