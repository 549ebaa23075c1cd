# SPDX-License-Identifier: Apache-2.0
"""Run a task as on another platform: this project's packages do not see what the platform lacks.

Third-party modules are imported before, as Linux has them: their ports are not under test.
"""

import builtins
import importlib
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PACKAGES = ("nnpa_client", "nnpa_files", "nnpa_wire")
MODULES = {
    "win32": ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"),
    "darwin": (),
}
ATTRIBUTES: Mapping[str, Sequence[tuple[Any, str]]] = {
    "win32": [
        *((os, name) for name in (
            "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "WNOHANG", "fork", "geteuid", "getpgid",
            "getuid", "killpg", "mkfifo", "register_at_fork", "setsid", "sysconf", "uname",
        )),
        *((socket, name) for name in ("AF_UNIX", "MSG_DONTWAIT", "socketpair")),
        *((signal, name) for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE")),
    ],
    "darwin": [],
}  # fmt: skip
ON_LINUX_ONLY: Sequence[tuple[Any, str]] = [
    *((os, name) for name in ("memfd_create", "pidfd_open", "sched_getaffinity", "setns")),
    *((socket, name) for name in ("AF_NETLINK", "AF_VSOCK", "SO_PEERCRED")),
    *((signal, name) for name in ("SIGPOLL", "SIGPWR", "SIGSTKFLT", "SIGRTMIN")),
]
FOLDERS = ("/proc", "/dev/shm", "/sys")
NOT_INSTALLED = ("torch", "testcontainers", "docker")
"""Modules of extras, which modules of the client that wrap them need."""


def names() -> list[str]:
    """Return every public module of the packages."""
    modules = list(PACKAGES)
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        modules += [module.name for module in pkgutil.walk_packages(path, f"{package}.")]
    return [name for name in modules if "._" not in name]


def load(names_to_load: Sequence[str]) -> list[str]:
    """Import modules, and return the names of the modules that exist."""
    loaded: list[str] = []
    for name in names_to_load:
        try:
            importlib.import_module(name)
            loaded.append(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in NOT_INSTALLED:
                raise
    return loaded


def become(platform: str) -> None:
    """Hide what a platform lacks from the packages, and forget their imports."""
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]
    for owner, name in (*ATTRIBUTES[platform], *ON_LINUX_ONLY):
        if hasattr(owner, name):
            delattr(owner, name)
    sys.platform = platform
    import_of: Any = builtins
    import_module = import_of.__import__

    def guarded(name: str, variables: Mapping[str, Any] | None = None, *more: Any) -> Any:
        importer = str((variables or {}).get("__name__", ""))
        if name in MODULES[platform] and importer.partition(".")[0] in PACKAGES:
            raise ModuleNotFoundError(f"{importer} imports {name}", name=name)
        return import_module(name, variables, *more)

    def refuse_folders(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(FOLDERS):
            raise FileNotFoundError(f"{arguments[0]}: {platform} has no such file")

    import_of.__import__ = guarded
    sys.addaudithook(refuse_folders)


def add(target: str) -> None:
    """Print the sum of a ztensor with itself, with shortcuts and without."""
    import numpy as np
    from nnpa_client import connect, zdnn

    for plain in (False, True):
        with connect(target, plain=plain) as session:
            x = session.ztensor(np.array([[1, 2]], np.float32))
            print(zdnn.add(x, x).numpy().tolist())


def refuse(target: str | None = None) -> None:
    """Print how a connection is refused."""
    from nnpa_client import connect

    try:
        connect(target)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")


def read(model: str) -> None:
    """Print the bytes of a model with its external data."""
    from pathlib import Path

    from nnpa_files.external_data import read_model

    print(len(read_model(Path(model))))


def configure() -> None:
    """Print what the pytest plugin tells a worker process of pytest-xdist."""
    from types import SimpleNamespace

    import pytest
    from nnpa_client import pytest_plugin

    node: Any = SimpleNamespace(config=SimpleNamespace(stash=pytest.Stash()), workerinput={})
    pytest_plugin.pytest_configure_node(node)
    print(node.workerinput)


def run_pytest(*arguments: str) -> None:
    """Run a suite with the client's plugin alone: other plugins would import modules of Windows."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    flags = ("-p", "nnpa_client.pytest_plugin", "-p", "no:cacheprovider", "--capture=sys")
    sys.exit(pytest.main([*flags, *arguments]))


TASKS: Mapping[str, Callable[..., None]] = {
    "add": add,
    "configure": configure,
    "pytest": run_pytest,
    "read": read,
    "refuse": refuse,
}


def main(platform: str, task: str, arguments: Sequence[str]) -> None:
    """Do a task as on a platform."""
    before = load([*names(), "pytest"])
    become(platform)
    if task == "import":
        print(*load(before), sep="\n")
    else:
        TASKS[task](*arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
