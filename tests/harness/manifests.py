"""Look into the manifests of the Helm chart: pods, their containers and settings, and what selectors select."""

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.base.settings import PREFIX, Settings, load
from ops.host.process_specs import ROOT
from tests.harness.chart_tools import Manifest

PARTS: Final = ("api", "relay", "mx", "mta", "worker")
_SAMPLES: Final = {
    "WAYBILL_KEY_PEPPER": "0" * 64, "WAYBILL_DATABASE_URL": "postgresql://db/waybill",
    "WAYBILL_REDIS_URL": "redis://cache:6379", "WAYBILL_API_HOST": "192.0.2.1",
}  # fmt: skip
EVERYTHING: Final[dict[str, Any]] = {
    "settings": {"WAYBILL_OPERATORS": "ann@example.com"},
    "image": {"pullSecrets": ["registry"]},
    "api": {
        "proxyNetworks": ["10.0.0.0/8"], "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "web-tls"},
        "podAnnotations": {"a": "b"}, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}],
    },
    "relay": {"proxyNetworks": ["10.0.0.0/8", "fd00::/8"], "service": {"annotations": {"a": "b"}}},
    "mx": {"proxyNetworks": ["10.0.0.0/8"], "service": {"sourceRanges": ["192.0.2.0/24"]}},
    "mta": {"sources": [{"ehlo": "out0.example.com"}, {"ehlo": "out1.example.com", "address": "192.0.2.26"}]},
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"extraEgress": [{"ports": [{"protocol": "TCP", "port": 11333}]}]},
    "postgresql": {"enabled": True, "backup": {"retentionPolicy": "30d"}},
    "valkey": {"enabled": True},
}  # fmt: skip
_HOST_NETWORK: Final = {
    "hostNetwork": True,
    "sources": [{"node": f"node{number}", "ehlo": f"out{number}.example.com"} for number in range(2)],
}
MINIMAL: Final[dict[str, Any]] = {
    "api": {"replicas": 1, "autoscaling": {"enabled": False}},
    "relay": {"enabled": False}, "mx": {"enabled": False}, "migrations": {"enabled": False},
    "networkPolicy": {"enabled": False}, "mta": {"replicas": 1, "persistence": {"enabled": False}} | _HOST_NETWORK,
}  # fmt: skip
ALL: Final[dict[str, dict[str, Any]]] = {"default": {}, "everything": EVERYTHING, "minimal": MINIMAL}


def kind(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Return the manifests of these kinds by name."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] in kinds}


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the templates of pods by the name of what makes them."""
    found = kind(manifests, "Deployment", "StatefulSet", "Job")
    return {name: one["spec"]["template"] for name, one in found.items()}


def parts(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the templates of pods that run a part of Waybill, by the part."""
    named = {name.removeprefix("waybill-"): pod for name, pod in pods(manifests).items()}
    return {name: pod for name, pod in named.items() if name in PARTS}


def container(pod: Manifest) -> Manifest:
    """Return the container of a pod, which has one."""
    [only] = pod["spec"]["containers"]
    return dict(only)


def environment(pod: Manifest) -> dict[str, str]:
    """Return the variables of the container; a reference to a Secret is a value of the right form."""
    given = {one["name"]: one for one in container(pod)["env"]}
    required = {name: one for name, one in given.items() if not _is_optional(one)}
    return {name: one.get("value", _SAMPLES.get(name, "text")) for name, one in required.items()}


def _is_optional(variable: Manifest) -> bool:
    return bool(variable.get("valueFrom", {}).get("secretKeyRef", {}).get("optional"))


def settings_of(pod: Manifest) -> Settings:
    """Return the settings that the pod starts with: those of the image, and those of the chart over them."""
    text = (ROOT / "ops/deploy/compose/Dockerfile").read_text("utf-8").rpartition("\nENV ")[2].split("\nUSER")[0]
    image = dict(re.findall(rf"({PREFIX}[A-Z_]+)=(\S+)", text))
    found = {name: value for name, value in (image | environment(pod)).items() if name.startswith(PREFIX)}
    return load(found).settings


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return True if a selector of labels, in either form, selects."""
    wanted = (
        selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    )
    listed = selector.get("matchExpressions", [])
    return wanted.items() <= labels.items() and all(labels.get(one["key"]) in one["values"] for one in listed)
