# SPDX-License-Identifier: Apache-2.0
"""Public names that live elsewhere: each is imported when it is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES: Mapping[str, tuple[str, ...]] = {
    "nnpa_client": ("array_api", "dlfloat16", "mli", "network", "zdnn"),
}
"""The names of a module that are modules in it."""

HOMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "nnpa_client": {
        "nnpa.zdnn.v1.accelerator_pb2": ("MachineSpec",),
        "nnpa_client.connection": ("ConnectOptions", "connect", "list_machines"),
        "nnpa_client.errors": (
            "NetworkError",
            "NnpaError",
            "ProgramCheck",
            "SanitizerWarning",
            "SessionLostError",
            "TransportError",
            "ZdnnError",
            "ZdnnWarning",
        ),
        "nnpa_client.session": ("Pipeline", "Session"),
        "nnpa_client.status": ("Status",),
        "nnpa_client.ztensor": ("Ztensor",),
        "nnpa_tools.evaluation.accuracy": ("Accuracy", "accuracy"),
        "nnpa_tools.evaluation.datasets": ("Preprocessing",),
    },
    "nnpa_client.datasets": {
        "nnpa_tools.evaluation.datasets": (
            "Dataset",
            "Preprocessing",
            "open_data",
            "read_preprocessing",
        ),
    },
    "nnpa_client.doctor": {
        "nnpa_tools.doctor.examination": ("Progress", "examine"),
        "nnpa_tools.doctor.laboratory": ("TITLES",),
        "nnpa_tools.doctor.markdown": ("verdict",),
        "nnpa_tools.doctor.report": ("Checked", "Report"),
        "nnpa_tools.doctor.rules": ("RULES", "Finding"),
    },
    "nnpa_client.evaluation": {"nnpa_tools.evaluation.accuracy": ("Accuracy", "accuracy")},
    "nnpa_client.trace": {
        "nnpa_tools.traces.diff": ("Comparison", "Difference", "diff"),
        "nnpa_tools.doctor.lint": ("RULES", "Budget", "Finding", "Report", "Totals", "lint"),
        "nnpa_tools.traces.replay": ("replay",),
        "nnpa_tools.traces.values": ("ValueDifference",),
    },
}
"""The names of a module by the modules that define them."""


def array_namespace() -> ModuleType:
    """Return `nnpa_client.array_api`, which is imported at its first use: it needs ztensors."""
    return import_module("nnpa_client.array_api")


def forward(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names are forwarded."""
    homes = {name: home for home, names in HOMES[module].items() for name in names}
    modules = MODULES.get(module, ())

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{module}.{name}")
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get
