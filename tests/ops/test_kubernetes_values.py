"""Every value of the Helm chart is known to its schema and has an effect, wrong ones are refused, the page is right."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from engine.base.settings import SECRETS, Settings, variable
from ops.host.process_specs import ROOT
from tests.harness import chart_tools
from tests.harness.chart_tools import CHART, NAMESPACE, REQUIRED, Refused, merged, render, render_all
from tests.harness.manifests import ALL, EVERYTHING, container, parts

pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(chart_tools.missing(), reason=chart_tools.WHY)]


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values that are no sections, with their paths."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def other(path: tuple[str, ...], value: Any) -> Any:
    """Return another value that the schema takes."""
    special = {
        "tag": "1.2.3", "pullPolicy": "Always", "type": "NodePort", "externalTrafficPolicy": "Cluster", "node": "n",
        "settings": {"WAYBILL_OPERATORS": "bob@example.com"}, "interval": "30s", "publicUrl": "https://api.example.com",
        "parameters": {"jit": "on"}, "backup": {"retentionPolicy": "7d"}, "mailHost": "mx.example.com",
        "resources": {"limits": {"memory": "3Gi"}}, "size": "3Gi", "passwordKey": "OTHER", "image": "valkey:9",
        "sources": [{"ehlo": "a.example.com"}, {"ehlo": "b.example.com"}], "tolerations": [{"operator": "Exists"}],
        "extraEgress": [{"ports": [{"port": 1}]}], "metricsFrom": [{"podSelector": {}}], "pullSecrets": ["one"],
        "apiFrom": [{"podSelector": {}}], "maxReplicas": 50, "sourceRanges": ["198.51.100.0/24"],
    }  # fmt: skip
    if path[-1] in special:
        return special[path[-1]]
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case list():
            return ["192.0.2.0/24"]
        case dict():
            return {"other": "value"}
        case _:
            return "other"


def changed(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the values with another one at `path`."""
    found = copy.deepcopy(dict(values))
    at = found
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
    return found


def test_every_value_is_known_to_the_schema_and_has_an_effect() -> None:
    """Each value alone is changed in a chart that uses everything: something else must come out."""
    text = (CHART / "values.yaml").read_text("utf-8")
    whole = merged(merged(yaml.safe_load(text), REQUIRED), EVERYTHING)
    own = merged(whole, {"postgresql": {"enabled": False}, "valkey": {"enabled": False}})
    fixed = merged(whole, {"api": {"autoscaling": {"enabled": False}}})
    bases: dict[tuple[str, ...], dict[str, Any]] = {
        ("networkPolicy", "databasePort"): own, ("networkPolicy", "redisPort"): own, ("api", "replicas"): fixed,
        ("mta", "replicas"): changed(whole, ("mta", "sources"), []),
    }  # fmt: skip
    paths = [path for path, _ in leaves(yaml.safe_load(text)) if path != ("mta", "hostNetwork")]
    wanted = []
    for path in paths:
        before = base = bases.get(path, whole)
        for name in path:
            before = before[name]
        wanted.append(changed(base, path, other(path, before)))
    unchanged = dict(zip([(), *bases], chart_tools.texts([whole, *bases.values()]), strict=True))

    same = []
    for path, found in zip(paths, chart_tools.texts(wanted), strict=True):
        if isinstance(found, Refused) or found == unchanged[path if path in bases else ()]:
            same.append((path, found))
    assert same == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"existingSecret": ""}, "Set existingSecret to the name of a Secret"),
        ({"mailHost": ""}, "Set mailHost"),
        ({"publicUrl": ""}, "Set publicUrl"),
        ({"tls": {"secret": ""}}, "Set tls.secret"),
        ({"mta": {"sources": [{"ehlo": "a.example.com"}]}}, "mta.sources has 1 entries for 2 pods"),
        ({"mta": {"hostNetwork": True, "sources": [{"ehlo": "a.example.com"}]}}, "the name of its node"),
        ({"mta": {"sources": [{"ehlo": "a.example.com", "node": "n"}] * 2}}, "needs mta.hostNetwork"),
        ({"api": {"autoscaling": {"minReplicas": 9}}}, "minReplicas is 9, more than maxReplicas, 6"),
        ({"mx": {"service": {"externalTrafficPolicy": "Cluster"}}}, "hides the addresses of clients"),
        ({"api": {"replica": 3}}, "replica"),
        ({"mailhost": "x"}, "mailhost"),
        ({"mailHost": "mail example"}, "mailHost"),
        ({"settings": {"WAYBILL_KEY_PEPPER": "0" * 64}}, "WAYBILL_KEY_PEPPER"),
        ({"settings": {"LOG_LEVEL": "debug"}}, "LOG_LEVEL"),
        ({"settings": {"WAYBILL_SITE_CONNECTIONS": 5}}, "WAYBILL_SITE_CONNECTIONS"),
        ({"relay": {"proxyNetworks": ["10.0.0.1"]}}, "proxyNetworks"),
        ({"worker": {"replicas": 0}}, "replicas"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_value_is_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=re.escape(words)):
        render(wrong)


def test_the_schema_reserves_what_the_chart_sets() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    reserved = set(schema["properties"]["settings"]["propertyNames"]["allOf"][1]["not"]["enum"])
    known = {variable(field) for field in Settings.__struct_fields__}
    found = [one for one in render_all([merged(REQUIRED, one) for one in ALL.values()]) if not isinstance(one, str)]
    set_here = {one["name"] for each in found for pod in parts(each).values() for one in container(pod)["env"]}
    extra = {"WAYBILL_OPERATORS", "WAYBILL_API_HOST", "POD_IP", "MTA_SOURCES", "VALKEY_PASSWORD"}

    assert set_here - extra <= reserved <= known
    assert {variable(field) for field in SECRETS} <= reserved


def test_the_page_names_values_and_files_that_exist() -> None:
    page = (ROOT / "ops/runbooks/kubernetes.md").read_text("utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    known = {".".join(path[:length]) for path, _ in leaves(values) for length in range(1, len(path) + 1)}
    known |= {f"mta.sources.{name}" for name in ("ehlo", "address", "node")}
    named = set(re.findall(rf"`((?:{'|'.join(values)})(?:\.[a-zA-Z]+)+)`", page))

    assert named - known == set()
    assert NAMESPACE in page
