# SPDX-License-Identifier: Apache-2.0
"""Laws among objects that are applied together, which no schema can check.

Each law takes the documents of a kustomization and yields a line for each break. `LAWS` has all.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from nnpa_server.__main__ import main
from nnpa_server.config import parse_size, parse_time

from tests.deploy.manifests import Document
from tests.deploy.objects import Json, Pods, flags, named, of_kind, pods, selected, servers

Documents = Sequence[Document]
Law = Callable[[Documents], Iterator[str]]
LAWS: list[Law] = []
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_UNITS = {"Mi": 1 << 20, "Gi": 1 << 30}


def law(check: Law) -> Law:
    """Add a law to `LAWS`."""
    LAWS.append(check)
    return check


def quantity(text: str) -> int:
    """Return the bytes of a quantity of Kubernetes."""
    match = re.fullmatch(r"(\d+)(Mi|Gi)", text)
    assert match is not None, text
    return int(match[1]) * _UNITS[match[2]]


@law
def selectors_select(documents: Documents) -> Iterator[str]:
    """Services, policies and budgets select pods that are applied with them."""
    for document in documents:
        spec = document.content.get("spec", {})
        selector = {"Service": spec.get("selector")}.get(document.kind) or (
            spec.get("podSelector") or spec.get("selector") or {}
        ).get("matchLabels")
        if selector and not selected(documents, selector):
            yield f"{document.kind} {document.name} selects nothing"
        for policy in _peers(document):
            labels = policy.get("podSelector", {}).get("matchLabels")
            if labels and "app.kubernetes.io/name" in labels and not selected(documents, labels):
                yield f"{document.kind} {document.name} allows pods that are not there: {labels}"


def _peers(document: Document) -> Iterator[Json]:
    """Yield the peers that a policy names."""
    if document.kind == "NetworkPolicy":
        for rule in document.content["spec"].get("ingress", ()):
            yield from rule.get("from", ())
        for rule in document.content["spec"].get("egress", ()):
            yield from rule.get("to", ())


@law
def deployments_know_their_pods(documents: Documents) -> Iterator[str]:
    """A Deployment selects and spreads the pods that it makes."""
    for document in of_kind(documents, "Deployment"):
        spec = document.content["spec"]
        labels = spec["template"]["metadata"]["labels"].items()
        spreads = spec["template"]["spec"].get("topologySpreadConstraints", ())
        for selector in (spec["selector"], *(spread["labelSelector"] for spread in spreads)):
            if not selector["matchLabels"].items() <= labels:
                yield f"Deployment {document.name} does not select its pods"


@law
def services_lead_to_ports(documents: Documents) -> Iterator[str]:
    """A Service's ports are ports of its pods."""
    for document in of_kind(documents, "Service"):
        for pod in selected(documents, document.content["spec"]["selector"]):
            for port in document.content["spec"]["ports"]:
                if port["targetPort"] not in pod.ports:
                    yield f"Service {document.name}: {pod.owner} has no {port['targetPort']}"


@law
def policies_name_ports(documents: Documents) -> Iterator[str]:
    """A policy names ports that its pods have."""
    for document in of_kind(documents, "NetworkPolicy"):
        spec = document.content["spec"]
        own = selected(documents, spec["podSelector"]["matchLabels"])
        for rule in spec.get("ingress", ()):
            yield from _unnamed(document.name, rule, own)
        for rule in spec.get("egress", ()):
            for peer in rule["to"]:
                labels = peer.get("podSelector", {}).get("matchLabels")
                yield from _unnamed(document.name, rule, selected(documents, labels or {"": ""}))


def _unnamed(policy: str, rule: Json, them: Sequence[Pods]) -> Iterator[str]:
    declared = {name for pod in them for name in pod.ports}
    for port in rule.get("ports", ()):
        if isinstance(port["port"], str) and port["port"] not in declared:
            yield f"NetworkPolicy {policy}: no port {port['port']}"


@law
def probes_and_scrapes_meet_ports(documents: Documents) -> Iterator[str]:
    """Probes and Prometheus ask at ports where the pod listens."""
    for pod in pods(documents):
        listening = {*pod.ports.values(), *pod.ports, *_listeners(pod)}
        for container in pod.containers:
            for probe in (container[name] for name in PROBES if name in container):
                port = (probe.get("grpc") or probe.get("httpGet"))["port"]
                if port not in listening:
                    yield f"{pod.owner}: nobody listens at {port}, which a probe asks"
        for name, value in pod.metadata.get("annotations", {}).items():
            if name.endswith("/port") and int(value) not in listening:
                yield f"{pod.owner}: nobody listens at {value}, which is to be scraped"


def _listeners(pod: Pods) -> Iterator[int]:
    """Yield the ports that a server's flags open."""
    for container in pod.containers:
        for name, value in flags(container).items():
            if re.fullmatch(r"--(.*-)?(listen|metrics)", name):
                yield int(value.rpartition(":")[2])


@law
def servers_open_their_ports(documents: Documents) -> Iterator[str]:
    """Each port of a server's container is opened by a flag, and each flag exists."""
    options = {option for parameter in main.params for option in parameter.opts}
    for pod, container in servers(documents):
        opened = set(_listeners(pod))
        for port in container["ports"]:
            if port["containerPort"] not in opened:
                yield f"{pod.owner}: no flag opens {port['containerPort']}"
        for name in flags(container).keys() - options:
            yield f"{pod.owner}: nnpa-server has no {name}"


@law
def memory_holds_full_sessions(documents: Documents) -> Iterator[str]:
    """A server's memory is above what all its sessions may hold."""
    for pod, container in servers(documents):
        options = flags(container)
        if "--max-sessions" in options:
            held = int(options["--max-sessions"]) * parse_size(options["--max-session-bytes"])
            if quantity(container["resources"]["limits"]["memory"]) <= held:
                yield f"{pod.owner}: sessions may hold {held} bytes, above the memory limit"


@law
def pods_have_time_to_end(documents: Documents) -> Iterator[str]:
    """The grace period is longer than preStop and drain together."""
    for pod in pods(documents):
        for container in pod.containers:
            wait = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {"seconds": 0})
            options = flags(container)
            drain = sum(
                parse_time(options.get(f"--drain-{name}", "0s")) for name in ("delay", "timeout")
            )
            grace = pod.spec.get("terminationGracePeriodSeconds", 30)
            if wait["seconds"] + drain >= grace:
                yield f"{pod.owner}: killed after {grace} s, while it ends"


@law
def containers_are_locked(documents: Documents) -> Iterator[str]:
    """No container runs as root, gains rights, writes to its root, or lacks a memory limit."""
    for pod in pods(documents):
        for container in pod.containers:
            own = container.get("securityContext", {})
            rights = {**pod.spec.get("securityContext", {}), **own}
            checks = {
                "root": rights.get("runAsNonRoot") is True and rights.get("runAsUser", 0) > 0,
                "system calls": rights.get("seccompProfile") == {"type": "RuntimeDefault"},
                "more rights": rights.get("allowPrivilegeEscalation") is False,
                "a writable root": rights.get("readOnlyRootFilesystem") is True,
                "capabilities": rights.get("capabilities") == {"drop": ["ALL"]},
                "memory": "memory" in container["resources"]["limits"],
            }
            for what in (what for what, holds in checks.items() if not holds):
                yield f"{pod.owner}: {container['name']} may have {what}"


@law
def nobody_asks_the_api_server(documents: Documents) -> Iterator[str]:
    """Pods have no account of the cluster."""
    for pod in pods(documents):
        if (
            pod.spec.get("automountServiceAccountToken", True)
            and "supportedModelFormats" not in pod.spec
        ):
            yield f"{pod.owner}: pods have a token of the cluster"
    for document in of_kind(documents, "InferenceService"):
        if document.content["spec"]["predictor"].get("automountServiceAccountToken", True):
            yield f"{document.name}: pods have a token of the cluster"


@law
def volumes_have_contents(documents: Documents) -> Iterator[str]:
    """A configuration that a pod mounts is generated or written."""
    generated = {
        item["name"] for document in of_kind(documents, "Kustomization")
        for item in document.content.get("configMapGenerator", ())
    }  # fmt: skip
    for pod in pods(documents):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", ())}
        for volume in volumes.values():
            if "configMap" in volume and volume["configMap"]["name"] not in generated:
                yield f"{pod.owner}: no configuration {volume['configMap']['name']}"
        mounts = {
            mount["name"] for container in pod.containers
            for mount in container.get("volumeMounts", ())
        }  # fmt: skip
        if mounts != volumes.keys():
            yield f"{pod.owner}: volumes {sorted(volumes)}, mounted {sorted(mounts)}"


@law
def objects_name_what_is_there(documents: Documents) -> Iterator[str]:
    """Every object that another names by kind and name is applied with it."""
    for document in documents:
        for kind, name in _references(document):
            if named(documents, kind, name) is None:
                yield f"{document.kind} {document.name}: no {kind} {name}"


def _references(document: Document) -> Iterator[tuple[str, str]]:
    spec: Json = document.content.get("spec", {})
    if "scaleTargetRef" in spec:
        yield spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]
    if document.kind == "InferenceService":
        yield "ServingRuntime", spec["predictor"]["model"]["runtime"]
