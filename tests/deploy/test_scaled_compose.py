# SPDX-License-Identifier: Apache-2.0
"""The fleet of compose.scaled.yaml: its parts find each other, its graphs show real metrics."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from nnpa_server.__main__ import main
from nnpa_server.config import Config, parse_size, parse_time

from tests.deploy.manifests import ENVOY
from tests.deploy.scaling_laws import metrics_of, served_metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
GIB = 1 << 30


def _yaml(name: str) -> Any:
    """Return a file's document, with each variable's default in its place."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


SERVICES = _yaml("compose.scaled.yaml")["services"]
DASHBOARD = json.loads((DEPLOY / "monitoring/nnpa.json").read_text(encoding="utf-8"))
FLAGS = dict(word.partition("=")[::2] for word in SERVICES["nnpa-servers"]["command"])


def _queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def _port(flag: str) -> int:
    return int(FLAGS[flag].rpartition(":")[2])


def test_flags_exist() -> None:
    """Servers are started with flags that nnpa-server has."""
    assert FLAGS.keys() <= {option for parameter in main.params for option in parameter.opts}


def test_files_exist() -> None:
    """Every file that a service mounts is in this repository, and mounted read-only."""
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    files = [mount for mount in mounts if mount.startswith("./")]
    assert len(files) == 5
    for mount in files:
        path, _, mode = mount.split(":")
        assert (DEPLOY / path).is_file(), path
        assert mode == "ro"


def test_volumes_are_declared() -> None:
    """A named volume that a service mounts is declared."""
    mounts = {
        mount.partition(":")[0]
        for service in SERVICES.values()
        for mount in service.get("volumes", ())
    }
    named = {name for name in mounts if not name.startswith("./")}
    assert named == _yaml("compose.scaled.yaml")["volumes"].keys()


def test_envoy_finds_the_servers() -> None:
    """Envoy's one endpoint is the service of the servers, at the ports that these open."""
    cluster = _yaml(str(ENVOY.relative_to(DEPLOY)))["static_resources"]["clusters"][0]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    assert address["address"] in SERVICES
    assert address["port_value"] == _port("--listen")
    assert endpoint["endpoint"]["health_check_config"]["port_value"] == _port("--health-listen")
    assert SERVICES[address["address"]]["deploy"]["replicas"] == 3


def test_prometheus_asks_everybody() -> None:
    """Prometheus scrapes each server at its port of metrics, and Envoy where it answers."""
    servers, proxy = _yaml("monitoring/prometheus.yaml")["scrape_configs"]
    (discovery,) = servers["dns_sd_configs"]
    assert set(discovery["names"]) <= SERVICES.keys()
    assert discovery["port"] == _port("--metrics")
    host, _, port = proxy["static_configs"][0]["targets"][0].partition(":")
    listeners = _yaml(str(ENVOY.relative_to(DEPLOY)))["static_resources"]["listeners"]
    ports = [listener["address"]["socket_address"]["port_value"] for listener in listeners]
    assert host in SERVICES
    assert int(port) in ports
    paths = re.findall(r"match: {path: (\S+)}", ENVOY.read_text(encoding="utf-8"))
    assert proxy["metrics_path"] in paths


def test_published_ports_are_served_on_loopback() -> None:
    """Ports are published on 127.0.0.1 only, each once, and Envoy's is the one it listens at."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    listener = _yaml(str(ENVOY.relative_to(DEPLOY)))["static_resources"]["listeners"][0]
    inside = int(SERVICES["envoy"]["ports"][0].split(":")[2])
    assert inside == listener["address"]["socket_address"]["port_value"]


def test_nobody_is_root() -> None:
    """Every service has a read-only root, no capabilities, no more rights, and another user."""
    for name, service in SERVICES.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert name == "nnpa-servers" or not service["user"].startswith("0")


def test_a_laptop_holds_it() -> None:
    """All sessions of all servers together hold at most 12 GiB; servers have time to drain."""
    held = int(FLAGS["--max-sessions"]) * parse_size(FLAGS["--max-session-bytes"])
    assert held * SERVICES["nnpa-servers"]["deploy"]["replicas"] <= 12 * GIB
    grace = int(SERVICES["nnpa-servers"]["stop_grace_period"].rstrip("s"))
    assert grace > Config().drain_timeout + parse_time(FLAGS["--drain-delay"])


def test_graphs_show_metrics_that_there_are() -> None:
    """Every metric of ours in the dashboard is one that a real server offers, and all are shown."""
    shown = set().union(*map(metrics_of, _queries()))
    offered = {name.removesuffix("_total") for name in served_metrics()}
    assert {name.removesuffix("_total") for name in shown} == offered


def test_panels_lie_beside_each_other() -> None:
    """Panels of the dashboard have numbers of their own, a source that is provided, no overlap."""
    (source,) = _yaml("monitoring/datasource.yaml")["datasources"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    assert source["url"].split("/")[2].partition(":")[0] in SERVICES
    places = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in panels]
    assert all(before < after for before, after in pairwise(sorted(places)))
    (provider,) = _yaml("monitoring/dashboards.yaml")["providers"]
    mounts = [mount.split(":")[1] for mount in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/nnpa.json" in mounts


@pytest.mark.parametrize("query", _queries())
def test_queries_are_whole(query: str) -> None:
    """A query's brackets are closed, and what is counted is asked for as a rate."""
    for opening, closing in ("()", "[]", "{}"):
        assert query.count(opening) == query.count(closing)
    counted = re.search(r"nnpa_[a-z_]+_(total|bucket|count)\b", query)
    assert not counted or "rate(" in query
