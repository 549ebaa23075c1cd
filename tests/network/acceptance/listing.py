# SPDX-License-Identifier: Apache-2.0
"""models.toml: packages, their models, and the expectations of each model."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nnpa_network.placements import DEFAULT_PLACEMENT, Placement

LIST = Path(__file__).parents[1] / "models.toml"
RULE = 0.01  # the greatest tolerance that needs no reason
FAILURES = ("refused", "stopped", "inaccurate", "unplaced")


@dataclass(frozen=True)
class Package:
    """A wheel of the Python index: its name there, its version, the hash of its file."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Feed:
    """How an input is drawn: its shape, and normal, uniform, integer, constant or text values."""

    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None
    value: float | int | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """A model of the list.

    `source` is a builder's name, or a wheel's member where `package` is given. `tolerance` is the
    greatest error, over the range of an output. `range` is that range where the model states one,
    else it is the greatest magnitude of what ONNX Runtime gives. `because` is why a tolerance is
    above RULE. `host` is the reason why less than
    half of the multiply-accumulates are on the accelerator. `fails` is one of FAILURES, `reason`
    why, for a model that is known to fail. `always` models run in `.ci/run`. `placement` is what
    the model is hosted by.
    """

    name: str
    source: str
    tolerance: float
    inputs: Mapping[str, Feed]
    package: Package | None = None
    range: float | None = None
    because: str = ""
    host: str = ""
    fails: str = ""
    reason: str = ""
    always: bool = False
    machines: tuple[str, ...] = ("telum1", "telum2")
    placement: Placement = DEFAULT_PLACEMENT


@cache
def packages() -> Mapping[str, Package]:
    """Return the packages of the list by name."""
    return {entry["name"]: Package(**entry) for entry in _read()["package"]}


@cache
def models() -> Mapping[str, Listed]:
    """Return the models of the list by name, in its order: small ones first."""
    return {entry["name"]: _listed(dict(entry)) for entry in _read()["model"]}


@cache
def _read() -> Mapping[str, Any]:
    return tomllib.loads(LIST.read_text())


def _listed(entry: dict[str, Any]) -> Listed:
    inputs = {name: _feed(dict(fields)) for name, fields in entry.pop("inputs").items()}
    if "package" in entry:
        entry["package"] = packages()[entry["package"]]
    if "machines" in entry:
        entry["machines"] = tuple(entry["machines"])
    return Listed(inputs=inputs, **entry)


def _feed(fields: dict[str, Any]) -> Feed:
    words = tuple(fields.pop("words", ()))
    return Feed(shape=tuple(fields.pop("shape")), words=words, **fields)
