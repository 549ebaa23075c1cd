# SPDX-License-Identifier: Apache-2.0
"""Objects that are applied together and name each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.deploy.manifests import Document

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods that an object makes: their labels and annotations, and their specification."""

    owner: str
    metadata: Json
    spec: Json

    @property
    def containers(self) -> list[Json]:
        """Return the containers of a pod."""
        containers: list[Json] = self.spec["containers"]
        return containers

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports of all containers by name."""
        ports = [port for container in self.containers for port in container.get("ports", ())]
        return {port["name"]: port["containerPort"] for port in ports}


def of_kind(documents: Sequence[Document], kind: str) -> list[Document]:
    """Return the objects of a kind."""
    return [document for document in documents if document.kind == kind]


def named(documents: Sequence[Document], kind: str, name: str) -> Document | None:
    """Return an object, or nothing where there is none."""
    matches = [document for document in of_kind(documents, kind) if document.name == name]
    return matches[0] if matches else None


def pods(documents: Sequence[Document]) -> list[Pods]:
    """Return all pods that objects make."""
    return [template for document in documents for template in _pods_of(document)]


def _pods_of(document: Document) -> Iterator[Pods]:
    spec: Json = document.content.get("spec", {})
    if document.kind == "Deployment":
        yield Pods(document.name, spec["template"]["metadata"], spec["template"]["spec"])
    elif document.kind == "RayCluster":
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            template = group["template"]
            yield Pods(document.name, template["metadata"], template["spec"])
    elif document.kind == "ServingRuntime":
        yield Pods(document.name, {"annotations": spec["annotations"]}, spec)


def selected(documents: Sequence[Document], labels: Json) -> list[Pods]:
    """Return the pods that carry labels."""
    return [
        template for template in pods(documents)
        if labels.items() <= template.metadata.get("labels", {}).items()
    ]  # fmt: skip


def flags(container: Json) -> dict[str, str]:
    """Return the flags of nnpa-server among a container's arguments, with their values."""
    words = [word.partition("=") for word in container.get("args", ())]
    return {name: value for name, _, value in words}


def servers(documents: Sequence[Document]) -> Iterator[tuple[Pods, Json]]:
    """Yield the containers that run nnpa-server, with their pods."""
    for template in pods(documents):
        for container in template.containers:
            if container["image"] == "nnpa":
                yield template, container
