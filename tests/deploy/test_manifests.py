# SPDX-License-Identifier: Apache-2.0
"""Every manifest: schemas judge documents, laws judge what is applied together, seeds test both."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import scaling_laws
from tests.deploy.laws import LAWS
from tests.deploy.manifests import APPLIED, KUBERNETES, SCALED, Document, applied, files, read
from tests.deploy.schema_checks import (
    custom_findings,
    is_custom,
    is_kubernetes,
    is_kustomization,
    kubernetes_findings,
    kustomization_findings,
    pod_templates,
)

assert scaling_laws  # its laws are in LAWS
CHECKERS = (is_custom, is_kubernetes, is_kustomization)
MISTAKES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))
DOCUMENTS = [document for file in files() for document in read(file)]
KUBECTL = shutil.which("kubectl")


def _id(document: Document) -> str:
    return f"{document.file.relative_to(KUBERNETES)}:{document.kind}:{document.name}"


def _findings(document: Document) -> list[str]:
    """Return the findings of the checker that needs no environment of its own."""
    if is_custom(document):
        return custom_findings(document)
    return kustomization_findings(document) if is_kustomization(document) else []


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with kubernetes-validate: this one, or one made for it."""
    if importlib.util.find_spec("kubernetes_validate"):
        return Path(sys.executable)
    python = tmp_path_factory.mktemp("validator") / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "kubernetes-validate"], check=True)
    return python


def _core(documents: list[Document]) -> list[Document]:
    """Return objects of Kubernetes' own kinds, and the pod templates in other objects."""
    inside = [template for document in documents if document.kind == "RayCluster"
              for template in pod_templates(document)]  # fmt: skip
    return [*filter(is_kubernetes, documents), *inside]


@pytest.mark.parametrize("document", DOCUMENTS, ids=_id)
def test_every_document_has_one_checker(document: Document) -> None:
    """Exactly one checker judges each document."""
    assert sum(checker(document) for checker in CHECKERS) == 1


@pytest.mark.parametrize("document", DOCUMENTS, ids=_id)
def test_custom_resources_and_kustomizations(document: Document) -> None:
    """Each custom resource keeps to its schema, each kustomization names files that exist."""
    assert _findings(document) == []


@pytest.mark.heavy
def test_kubernetes_own_kinds(validator: Path) -> None:
    """Each object of Kubernetes' own kinds, and each pod template, keeps to its strict schema."""
    documents = _core(DOCUMENTS)
    assert len(documents) > 15
    findings = kubernetes_findings(documents, validator)
    assert {_id(d): lines for d, lines in zip(documents, findings, strict=True) if lines} == {}


@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_folder_keeps_every_law(folder: Path, law: Callable[[list[Document]], Any]) -> None:
    """The objects of a folder that users apply keep each law."""
    assert list(law(applied(folder))) == []


def test_every_manifest_is_applied() -> None:
    """Each file of the fleet is reached from a kustomization that users apply."""
    reached = {document.file for folder in APPLIED for document in applied(folder)}
    assert {path for path in files() if path.is_relative_to(SCALED)} == reached


@pytest.mark.heavy
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl here")
@pytest.mark.parametrize("folder", APPLIED, ids=lambda folder: folder.name)
def test_kustomize_makes_the_same(folder: Path, validator: Path) -> None:
    """`kubectl kustomize` makes the objects that these tests look at, and they are valid."""
    command = [str(KUBECTL), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    objects = [Document(folder, content) for content in yaml.safe_load_all(done.stdout)]
    generated = [document for document in objects if document.kind == "ConfigMap"]
    written = [document for document in applied(folder) if not is_kustomization(document)]
    assert sorted((d.kind, d.name) for d in objects if d not in generated) == sorted(
        (d.kind, d.name) for d in written
    )
    assert [finding for document in objects for finding in _findings(document)] == []
    assert not any(kubernetes_findings(_core(objects), validator))
    (namespace,) = {d.content["namespace"] for d in applied(folder) if "namespace" in d.content}
    placed = {d.content["metadata"].get("namespace") for d in objects if d.kind != "Namespace"}
    assert placed == {namespace}


def _seeded(document: Document, path: list[str | int], value: Any) -> Document:
    """Return a document with another value at a path of keys; None takes the key away."""
    content = deepcopy(document.content)
    place: Any = content
    for key in path[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return replace(document, content=content)


def _document(name: str) -> Document:
    """Return a document by file:kind:name."""
    (match,) = (document for document in DOCUMENTS if _id(document) == name)
    return match


def _broken_laws(sound: Document, seeded: Document) -> list[str]:
    """Return the breaks of laws in each folder that applies the document with a mistake in it."""
    findings: list[str] = []
    for folder in APPLIED:
        documents = applied(folder)
        if sound in documents:
            changed = [seeded if document == sound else document for document in documents]
            findings += [line for law in LAWS for line in law(changed)]
    return findings


def _seeds(judges: str) -> Iterator[tuple[str, Document, Document, str]]:
    """Yield places, the documents there, the same with a mistake, and what must be said of it."""
    for place, mistakes in MISTAKES[judges].items():
        for path, value, expected in mistakes:
            keys = [int(key) if key.isdigit() else key for key in path.split()]
            yield place, _document(place), _seeded(_document(place), keys, value), expected


@pytest.mark.parametrize(
    ("place", "sound", "seeded", "expected"), [*_seeds("laws_and_our_schemas")]
)
def test_a_mistake_is_found(place: str, sound: Document, seeded: Document, expected: str) -> None:
    """A mistake in a manifest is named by a schema of ours or by a law."""
    findings = _findings(seeded) or _broken_laws(sound, seeded)
    assert any(expected in line for line in findings), (place, findings)


@pytest.mark.heavy
def test_a_mistake_is_found_by_kubernetes(validator: Path) -> None:
    """A mistake in an object of Kubernetes' own is named by its strict schema."""
    seeds = list(_seeds("kubernetes"))
    parts = [_core([seeded]) for _, _, seeded, _ in seeds]
    lines = iter(kubernetes_findings([part for whole in parts for part in whole], validator))
    for (place, *_, expected), whole in zip(seeds, parts, strict=True):
        findings = [line for _ in whole for line in next(lines)]
        assert any(expected in line for line in findings), (place, findings)


def test_every_document_has_a_seeded_mistake() -> None:
    """No document is left out of the mistakes."""
    assert {place for places in MISTAKES.values() for place in places} == set(map(_id, DOCUMENTS))
