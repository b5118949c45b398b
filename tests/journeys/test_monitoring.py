"""The dashboard, the rules and the alerts ask for what the running service really shows."""

import asyncio
import json
import re
import shutil
import smtplib
import subprocess
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from ops.host.process_specs import ROOT
from tests.harness.api import Api
from tests.harness.promql import Selector, asked
from tests.harness.service import new_access, send, try_send, until, until_status

pytestmark = pytest.mark.journey

DEPLOY = ROOT / "ops" / "deploy"
SCRAPED = {"up": {"job", "instance"}}  # what Prometheus adds
ADDED = {"job", "instance"}
Seen = dict[str, dict[str, set[str]]]  # metric -> label -> values


def rules(name: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "prometheus" / name).read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    yield from json.loads((DEPLOY / "grafana" / "waybill.json").read_text("utf-8"))["panels"]


def queries() -> Iterator[tuple[str, str]]:
    for rule in rules("recording.yml"):
        yield rule["record"], rule["expr"]
    for rule in rules("alerts.yml"):
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def scrape(service: Service) -> Seen:
    url = f"http://127.0.0.1:{service.settings.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    seen: Seen = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = seen.setdefault(sample.name, defaultdict(set))
            for label, value in sample.labels.items():
                labels[label].add(value)
    return seen


def recorded(seen: Seen) -> Seen:
    """What the recording rules add: each keeps the labels it groups by."""
    found = dict(seen)
    for rule in rules("recording.yml"):
        reads = asked(rule["expr"])
        labels: dict[str, set[str]] = defaultdict(set)
        for selector in reads.selectors:
            for label, values in found.get(selector.name, {}).items():
                labels[label] |= values
        kept = reads.grouped - {"le"} if "histogram_quantile" in rule["expr"] else reads.grouped
        found[rule["record"]] = {label: labels[label] for label in kept if label in labels}
    return found


def wrong(selector: Selector, seen: Seen) -> Iterator[str]:
    if selector.name in SCRAPED:
        return
    if selector.name not in seen:
        yield f"{selector.name} is shown by nobody"
        return
    labels = seen[selector.name]
    for match in selector.matches:
        if match.label not in labels:
            yield f"{selector.name} has no label {match.label}"
        elif match.operator == "=" and match.value not in labels[match.label]:
            yield f"{selector.name} has no {match.label}={match.value!r}"
        elif match.operator == "=~":
            re.compile(match.value)


@pytest.fixture(scope="module")
async def shown(service: Service, http: aiohttp.ClientSession) -> Seen:
    """The metrics of the service once it has done something of everything that a query asks for."""
    api, access = Api(service.base_url, http), await new_access(service)
    made = await api.post("/v1/webhooks", access.key, {"url": "http://127.0.0.1:1/nobody"})
    assert made.status == 201, made.body
    delivered = await send(api, access, "ann@monitored.test")
    bounced = await send(api, access, "bounce@monitored.test")
    assert (await try_send(api, access, "not an address")).status == 422
    await asyncio.to_thread(submit, service, access)
    claimed = await api.post(
        "/v1/inbound/addresses", access.key, {"address": f"help@{access.sender.partition('@')[2]}"}
    )
    assert claimed.status == 201, claimed.body
    await asyncio.to_thread(receive, service, claimed.json["address"])
    await until_status(api, access, delivered, "delivered")
    await until_status(api, access, bounced, "bounced")
    seen: Seen = {}

    async def all_there() -> bool:
        seen.update(await asyncio.to_thread(scrape, service))
        wanted = (
            "waybill_webhook_posts_total", "waybill_relay_logins_total", "waybill_build_info",
            "waybill_mx_messages_total",
        )  # fmt: skip
        verdicts = seen.get("waybill_attempts_total", {}).get("verdict", set())
        return all(name in seen for name in wanted) and {"delivered", "bounced"} <= verdicts

    await until(all_there, 30)
    return seen


def receive(service: Service, address: str) -> None:
    """One message to a claimed address, over the MX."""
    with smtplib.SMTP("127.0.0.1", service.settings.mx_port, timeout=20) as client:
        text = f"From: ann@monitored.test\r\nTo: {address}\r\nSubject: Help\r\n\r\nHelp!\r\n"
        client.sendmail("ann@monitored.test", [address], text)


def submit(service: Service, access: ApiAccess) -> None:
    """One message and one refused login over SMTP."""
    port = service.settings.submission_port
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as client:
        client.login("apikey", access.key)
        text = f"From: {access.sender}\r\nTo: ann@monitored.test\r\nSubject: Hello\r\n\r\nHello!\r\n"
        client.sendmail(access.sender, ["ann@monitored.test"], text)
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as client, pytest.raises(smtplib.SMTPAuthenticationError):
        client.login("apikey", "svc_live_wrong")


async def test_every_query_asks_for_metrics_and_labels_that_are_shown(shown: Seen) -> None:
    seen = recorded(shown)
    found = []
    for title, query in queries():
        reads = asked(query.replace("$__rate_interval", "5m"))
        assert reads.selectors, (title, query)
        found += [f"{title}: {problem}" for selector in reads.selectors for problem in wrong(selector, seen)]
        known = ADDED.union(*(seen.get(one.name, {}) for one in reads.selectors))
        found += [f"{title}: nothing is labelled {label}" for label in reads.grouped - known]

    assert not found


async def test_the_runbook_tells_of_every_metric(shown: Seen) -> None:
    told = (ROOT / "ops" / "runbooks" / "monitoring.md").read_text("utf-8")
    names = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in shown}

    assert not [name for name in sorted(names) if name.startswith("waybill_") and name not in told]


def test_every_alert_says_what_to_do() -> None:
    for rule in rules("alerts.yml"):
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert set(rule["annotations"]) == {"summary", "do"}
        assert rule["annotations"]["do"].endswith(".")


def test_commands_that_alerts_name_exist() -> None:
    from ops.cli import cli

    for rule in rules("alerts.yml"):
        for words in re.findall(r"python3 -m ops ((?:[a-z]+ ?)+)", rule["annotations"]["do"]):
            assert words.split()[0] in cli.commands, rule["alert"]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_takes_rules_and_configuration() -> None:
    folder = DEPLOY / "prometheus"
    for words in (["rules", "recording.yml"], ["rules", "alerts.yml"], ["config", "prometheus.yml"]):
        done = subprocess.run(
            ["promtool", "check", *words], check=False, capture_output=True, text=True, cwd=folder, timeout=30
        )
        assert done.returncode == 0, done.stdout + done.stderr
