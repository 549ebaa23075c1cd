# SPDX-License-Identifier: Apache-2.0
"""The checkers of manifests: each document belongs to exactly one of them.

    custom resources   the schemas beside this file, by jsonschema
    Kubernetes         `kubernetes-validate --strict`, in an environment made when it is asked for
    kustomizations     the fields that ours use; their files exist

A structural schema never forbids a field that it does not name: the API server drops it. So
`_unknown` walks value and schema together and reports such fields, with defaults filled in as the
server does; jsonschema then judges the values.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft4Validator

from tests.deploy.manifests import Document

CORE_GROUPS = frozenset({"", "apps", "autoscaling", "policy", "networking.k8s.io"})
KUSTOMIZE_GROUP = "kustomize.config.k8s.io"
_SCHEMAS = Path(__file__).parent / "schemas"
_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA = {  # as far as manifests set it; a definition leaves it to the API server
    "name": {"type": "string"},
    "namespace": {"type": "string"},
    "labels": _LABELS,
    "annotations": _LABELS,
}
_KUSTOMIZATION = {
    "apiVersion": str, "kind": str, "namespace": str, "resources": list, "components": list,
    "configMapGenerator": list,
}  # fmt: skip
_VALIDATE = """
import json, sys
import kubernetes_validate as kubernetes
def finding(document):
    try:
        kubernetes.validate(document, kubernetes.latest_version(), strict=True)
    except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
        return [str(getattr(error, "message", error))]
    return []
json.dump([finding(document) for document in json.load(sys.stdin)], sys.stdout)
"""


@cache
def schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schemas of custom resources by apiVersion and kind."""
    by_kind: dict[tuple[str, str], dict[str, Any]] = {}
    for path in _SCHEMAS.glob("*.json"):
        spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
        for version in (version for version in spec["versions"] if version["served"]):
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"]["properties"] = _METADATA
            by_kind[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return by_kind


def _unknown(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Fill defaults into a value; yield the place of each field that the schema does not name."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{place}[{number}]")
    elif isinstance(value, dict):
        named, additional = schema.get("properties", {}), schema.get("additionalProperties")
        for key, field in named.items():
            if "default" in field:
                value.setdefault(key, deepcopy(field["default"]))
        for key, item in value.items():
            if key in named or isinstance(additional, dict):
                yield from _unknown(item, named.get(key, additional), f"{place}.{key}")
            elif not additional and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{place}.{key}: unknown field"


def is_custom(document: Document) -> bool:
    """Tell whether a schema beside this file defines custom resources of the document's group."""
    return any(version.rpartition("/")[0] == document.group for version, _ in schemas())


def custom_findings(document: Document) -> list[str]:
    """Return the mistakes in a custom resource."""
    schema = schemas().get((document.content["apiVersion"], document.kind))
    if schema is None:
        return [f"no schema of {document.content['apiVersion']} {document.kind}"]
    value = deepcopy(document.content)
    unknown = list(_unknown(value, schema))
    errors = Draft4Validator(schema).iter_errors(value)
    return unknown + [f"{error.json_path[1:]}: {error.message}" for error in errors]


def is_kubernetes(document: Document) -> bool:
    """Tell whether a document is of one of Kubernetes' own kinds."""
    return document.group in CORE_GROUPS


def kubernetes_findings(documents: Sequence[Document], python: Path) -> list[list[str]]:
    """Return the mistakes in each document, by `python`'s kubernetes-validate."""
    text = json.dumps([document.content for document in documents])
    done = subprocess.run(
        [python, "-c", _VALIDATE], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    findings: list[list[str]] = json.loads(done.stdout)
    return findings


def pod_templates(document: Document) -> list[Document]:
    """Return the pod templates of a RayCluster as objects of Kubernetes' own kind."""
    spec = document.content["spec"]
    groups = [spec["headGroupSpec"], *spec.get("workerGroupSpecs", ())]
    head = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": document.name}}
    return [Document(document.file, {**head, "template": group["template"]}) for group in groups]


def is_kustomization(document: Document) -> bool:
    """Tell whether a document is a kustomization."""
    return document.group == KUSTOMIZE_GROUP


def kustomization_findings(document: Document) -> list[str]:
    """Return the mistakes in a kustomization: fields, their types, missing files."""
    content, folder = document.content, document.file.parent
    findings = [
        f".{key}: unknown field, or no {_KUSTOMIZATION.get(key, object).__name__}"
        for key, value in content.items()
        if not isinstance(value, _KUSTOMIZATION.get(key, type(None)))
    ]
    named = [*content.get("resources", ()), *content.get("components", ())]
    for generated in content.get("configMapGenerator", ()):
        named += generated["files"]
    return findings + [f"{name}: no such file" for name in named if not (folder / name).exists()]
