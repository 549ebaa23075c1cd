# SPDX-License-Identifier: Apache-2.0
"""The manifests of deploy/kubernetes: their documents, and what a kustomization brings together."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
SCALED = KUBERNETES / "scaled"
ENVOY = SCALED / "envoy/envoy.yaml"  # a configuration, which Envoy itself checks: no manifest
APPLIED = tuple(SCALED / name for name in ("overlays/envoy", "kserve", "ray"))
"""The kustomizations that a user applies."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a manifest: `content` as it was read from `file`."""

    file: Path
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        """Return the kind of object."""
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        """Return the object's name; a kustomization has none."""
        return str(self.content.get("metadata", {}).get("name", ""))

    @property
    def group(self) -> str:
        """Return the API group, which is empty for Kubernetes' core."""
        return str(self.content["apiVersion"]).rpartition("/")[0]


def files() -> list[Path]:
    """Return every manifest below deploy/kubernetes."""
    return sorted(path for path in KUBERNETES.rglob("*.yaml") if path != ENVOY)


@cache
def read(file: Path) -> tuple[Document, ...]:
    """Return the documents of a manifest."""
    text = file.read_text(encoding="utf-8")
    return tuple(Document(file, content) for content in yaml.safe_load_all(text))


def applied(folder: Path) -> list[Document]:
    """Return what `kubectl apply -k` of a folder brings together, each object as it is written."""
    (kustomization,) = read(folder / "kustomization.yaml")
    return [kustomization, *_members(kustomization)]


def _members(kustomization: Document) -> Iterator[Document]:
    content, folder = kustomization.content, kustomization.file.parent
    for name in (*content.get("resources", ()), *content.get("components", ())):
        path = (folder / name).resolve()
        yield from applied(path) if path.is_dir() else read(path)
