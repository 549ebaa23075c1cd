# SPDX-License-Identifier: Apache-2.0
"""Laws for a fleet that grows and shrinks, which no schema can check; more of `laws.LAWS`."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import yaml
from nnpa_client._server.tickets import HEADER

from tests.deploy.laws import Documents, law
from tests.deploy.manifests import ENVOY
from tests.deploy.objects import flags as flags_of
from tests.deploy.objects import named, of_kind, servers
from tests.server.process import serving


@cache
def served_metrics() -> frozenset[str]:
    """Return the names of the metrics of a real server, those that have no sample yet included."""
    flags = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with TemporaryDirectory() as folder, serving(Path(folder), *flags) as server:
        address = re.search(r"metrics at (\S+)", server.log_text())
        assert address is not None, server.log_text()
        with urlopen(address[1], timeout=10) as answer:
            text = answer.read().decode()
    return frozenset(re.findall(r"^# TYPE (\S+)", text, re.M))


def metrics_of(query: str) -> set[str]:
    """Return the names of our metrics in a query of Prometheus', as families."""
    names = set(re.findall(r"\bnnpa_[a-z_]+", query))
    return {re.sub("_(bucket|count|sum)$", "", name) for name in names}


@cache
def ticket() -> str:
    """Return the header that keeps a session at its server, from Envoy's configuration."""
    (name,) = {
        stateful["session_state"]["typed_config"]["name"]
        for stateful in stateful_filters(yaml.safe_load(ENVOY.read_text(encoding="utf-8")))
    }
    return str(name)


def stateful_filters(value: object) -> Iterator[dict[str, dict[str, dict[str, str]]]]:
    """Yield the configurations of `stateful_session` filters within Envoy's."""
    if isinstance(value, dict):
        if "session_state" in value:
            yield value
        for item in value.values():
            yield from stateful_filters(item)
    elif isinstance(value, list):
        for item in value:
            yield from stateful_filters(item)


def _scalers(documents: Documents) -> Iterator[tuple[str, str, str, dict[str, object]]]:
    """Yield name, metric, target and behaviour of each autoscaler of servers."""
    for document in of_kind(documents, "HorizontalPodAutoscaler"):
        spec = document.content["spec"]
        for metric in spec["metrics"]:
            target = metric["pods"]["target"]["averageValue"]
            yield document.name, metric["pods"]["metric"]["name"], target, spec["behavior"]


@law
def autoscalers_ask_for_our_metrics(documents: Documents) -> Iterator[str]:
    """The server offers a scaler's metric; the target is below the sessions that a server takes."""
    places = [int(options["--max-sessions"]) for _, container in servers(documents)
              if "--max-sessions" in (options := flags_of(container))]  # fmt: skip
    for name, metric, target, behaviour in _scalers(documents):
        metrics = metrics_of(metric)
        for unknown in metrics - served_metrics() or ({metric} if not metrics else set()):
            yield f"autoscaler {name}: the server has no metric {unknown}"
        if not all(0 < float(target) < place for place in places):
            yield f"autoscaler {name}: {target} sessions are not below {places}"
        if "scaleDown" not in behaviour:
            yield f"autoscaler {name}: scales down at once"


@law
def objects_are_in_the_namespace(documents: Documents) -> Iterator[str]:
    """A kustomization that makes a namespace puts its objects there."""
    namespaces = {document.name for document in of_kind(documents, "Namespace")}
    placed = {
        document.content["namespace"] for document in of_kind(documents, "Kustomization")
        if "namespace" in document.content
    }  # fmt: skip
    if namespaces and namespaces != placed:
        yield f"namespace {namespaces}, objects in {placed}"


@law
def one_ticket_everywhere(_documents: Documents) -> Iterator[str]:
    """Envoy keeps a session by the same header as our clients."""
    if ticket() != HEADER:
        yield f"Envoy keeps sessions by {ticket()}, clients send {HEADER}"


@law
def runtimes_serve_what_is_asked(documents: Documents) -> Iterator[str]:
    """The runtime that a service names supports the service's format and protocol."""
    for service in of_kind(documents, "InferenceService"):
        model = service.content["spec"]["predictor"]["model"]
        runtime = named(documents, "ServingRuntime", model["runtime"])
        spec = runtime.content["spec"] if runtime else {}
        formats = [supported["name"] for supported in spec.get("supportedModelFormats", ())]
        if model["modelFormat"]["name"] not in formats:
            yield f"{service.name}: {model['runtime']} takes {formats}"
        if model["protocolVersion"] not in spec.get("protocolVersions", ()):
            yield f"{service.name}: {model['runtime']} does not speak {model['protocolVersion']}"


@law
def ray_is_private(documents: Documents) -> Iterator[str]:
    """A policy covers all pods of Ray; they send no usage report; the head is not exposed."""
    for cluster in of_kind(documents, "RayCluster"):
        head = cluster.content["spec"]["headGroupSpec"]
        groups = [head, *cluster.content["spec"]["workerGroupSpecs"]]
        policies = [policy.content["spec"] for policy in of_kind(documents, "NetworkPolicy")]
        for group in groups:
            labels = group["template"]["metadata"]["labels"].items()
            if not any(spec["podSelector"]["matchLabels"].items() <= labels for spec in policies):
                yield f"RayCluster {cluster.name}: pods that no policy is about"
            for container in group["template"]["spec"]["containers"]:
                if {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} not in container["env"]:
                    yield f"RayCluster {cluster.name}: {container['name']} reports its use"
        if head["serviceType"] != "ClusterIP":
            yield f"RayCluster {cluster.name}: the head is exposed"
