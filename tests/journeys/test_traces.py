"""Traces of a running service, from a send to the post of its events, at a collector."""

import asyncio
import smtplib
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import aiohttp
import orjson
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from loadtests.kit.accounts import ApiAccess
from loadtests.kit.service import Service
from tests.harness import posted_events
from tests.harness.api import Api
from tests.harness.collector import Collector, SeenSpan, collecting
from tests.harness.patience import PATIENCE_S
from tests.harness.receiver import Receiver
from tests.harness.service import arrived, command, new_access, octets, running, until_status

pytestmark = pytest.mark.journey

PARENT = "00f067aa0ba902b7"
CHILDREN = {"queue", "route", "attempt", "settle", "webhook"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(scope="module")
def service(collector: Collector) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        patch.setenv("OTEL_SERVICE_NAME", "mail")
        with running({"TRACES": "true", "TRACE_URL": "https://traces.example/{trace_id}"}) as started:
            yield started
            posted_events.check(started.settings)


@pytest.fixture
async def access(service: Service) -> ApiAccess:
    return await new_access(service)


@pytest.fixture
def api(service: Service, http: aiohttp.ClientSession) -> Api:
    return Api(service.base_url, http)


def given(number: int, *, sampled: bool = True) -> dict[str, str]:
    return {"traceparent": f"00-{number:032x}-{PARENT}-0{int(sampled)}"}


async def until_spans(collector: Collector, trace: str, wanted: Counter[str]) -> list[SeenSpan]:
    """Wait for these spans of a trace by their names, and return all of it, in the order of time."""
    async with asyncio.timeout(PATIENCE_S):
        while wanted - Counter(one.name for one in collector.of(trace)):
            await asyncio.sleep(0.05)
    found = collector.of(trace)
    assert Counter(one.name for one in found) == wanted
    return found


def check_tree(spans: list[SeenSpan], parent: str = PARENT) -> SeenSpan:
    """Check that the spans are those of one message, and their times; return the span of its acceptance."""
    [accept] = [one for one in spans if one.name == "accept"]
    assert (accept.parent, accept.kind) == (parent, "server")
    assert {one.parent for one in spans if one is not accept} <= {accept.id}
    assert len({one.id for one in spans}) == len(spans)
    assert all(accept.began <= one.began <= one.ended for one in spans)
    for name in ("queue", "route", "attempt", "settle"):
        ordered = [one for one in spans if one.name == name]
        assert all(one.ended <= other.began for one, other in pairwise(ordered)), name
    assert {one.resource["service.name"] for one in spans} == {"mail"}
    return accept


async def test_a_message_that_is_deferred_once_is_one_trace_up_to_its_webhook(
    service: Service, collector: Collector, api: Api, access: ApiAccess
) -> None:
    async with Receiver() as receiver:
        answer = await api.post("/v1/webhooks", access.key, {"url": receiver.url})
        assert answer.status == 201, answer
        email = {
            "from": access.sender, "to": f"defer+{access.account[-8:]}@people.test", "subject": "Secret", "text": "Hi",
        }  # fmt: skip
        sent = await api.post("/v1/emails", access.key, email, headers=given(0xA1))
        found = await until_status(api, access, sent.json["id"], "delivered")
        events = [one["type"] for one in found["waybill"]]
        assert events == ["accepted", "attempted", "deferred", "attempted", "delivered"]
        trace = f"{0xA1:032x}"
        wanted = Counter(accept=1, queue=2, route=2, attempt=2, settle=2, webhook=len(events))
        spans = await until_spans(collector, trace, wanted)

    accept = check_tree(spans)
    assert accept.attributes["messaging.message.id"] == sent.json["id"]
    assert accept.attributes["waybill.account.id"] == access.account
    first, second = [one for one in spans if one.name == "attempt"]
    assert (first.failed, first.attributes["waybill.outcome"], first.attributes["waybill.smtp.code"]) == (
        True, "deferred", 451,
    )  # fmt: skip
    assert (second.failed, second.attributes["waybill.outcome"], second.attributes["waybill.attempt"]) == (
        False, "delivered", 2,
    )  # fmt: skip
    assert second.attributes["server.address"]
    assert second.attributes["tls.protocol.version"] == "1.3"
    posts = {one.id: one for one in spans if one.name == "webhook"}
    assert {got.headers["traceparent"] for got in receiver.got} == {f"00-{trace}-{one}-01" for one in posts}
    assert {one.attributes["http.response.status_code"] for one in posts.values()} == {200}
    assert {got.json["data"]["detail"]["traceparent"] for got in receiver.got} == {given(0xA1)["traceparent"]}
    text = repr(spans)
    assert "people.test" not in text.replace(f"server.address': '{second.attributes['server.address']}", "")
    assert "Secret" not in text
    shown = command(service, "explain", sent.json["id"])
    assert f"https://traces.example/{trace}" in shown.out


async def test_a_submitted_message_is_traced_by_its_header(
    service: Service, collector: Collector, api: Api, access: ApiAccess
) -> None:
    head = f"Traceparent: 00-{0xB2:032x}-{PARENT}-01\r\nTracestate: inner=1\r\n"
    mail = f"{head}From: {access.sender}\r\nTo: smtp@traced.test\r\nSubject: Hi\r\n\r\nHello\r\n"

    def submit() -> None:
        with smtplib.SMTP("127.0.0.1", service.settings.submission_port, timeout=PATIENCE_S) as client:
            client.login("waybill", access.key)
            client.sendmail(access.sender, ["smtp@traced.test"], mail)

    await asyncio.to_thread(submit)
    spans = await until_spans(collector, f"{0xB2:032x}", Counter(accept=1, queue=1, route=1, attempt=1, settle=1))

    accept = check_tree(spans)
    assert accept.attributes["waybill.source"] == "smtp"
    assert accept.resource["service.instance.id"].startswith("relay-")
    [entry] = arrived(service, "smtp@traced.test")
    assert b"trace" not in octets(service, entry).lower().replace(b"traced.test", b"")


async def test_the_messages_of_a_batch_are_spans_of_one_trace(
    collector: Collector, api: Api, access: ApiAccess
) -> None:
    batch = [
        {"from": access.sender, "to": f"b{number}@batch.test", "subject": "Hi", "text": "Hi"} for number in range(3)
    ]
    sent = await api.post("/v1/emails/batch", access.key, {"messages": batch}, headers=given(0xC3))
    assert sent.json["accepted"] == 3
    wanted = Counter(dict.fromkeys(("accept", "queue", "route", "attempt", "settle"), 3))

    spans = await until_spans(collector, f"{0xC3:032x}", wanted)

    accepted = [one for one in spans if one.name == "accept"]
    for one in accepted:
        check_tree([one, *[other for other in spans if other.parent == one.id]])
    assert {one.attributes["messaging.message.id"] for one in accepted} == {one["id"] for one in sent.json["data"]}


async def test_the_service_begins_a_trace_and_leaves_an_unsampled_one_alone(
    collector: Collector, api: Api, access: ApiAccess
) -> None:
    email = {"from": access.sender, "to": "own@traced.test", "subject": "Hi", "text": "Hi"}
    unsampled = await api.post("/v1/emails", access.key, email, headers=given(0xD4, sampled=False))
    sent = await api.post("/v1/emails", access.key, email)
    found = await until_status(api, access, sent.json["id"], "delivered")
    trace = found["traceparent"].split("-")[1]
    spans = await until_spans(collector, trace, Counter(accept=1, queue=1, route=1, attempt=1, settle=1))

    assert check_tree(spans, parent="").id == found["traceparent"].split("-")[2]
    other = await until_status(api, access, unsampled.json["id"], "delivered")
    assert other["traceparent"] == given(0xD4, sampled=False)["traceparent"]
    assert collector.of(f"{0xD4:032x}") == []


async def test_histograms_of_latency_name_traces_and_logs_too(service: Service, api: Api, access: ApiAccess) -> None:
    email = {"from": access.sender, "to": "block@people.test", "subject": "Hi", "text": "Hi"}
    sent = await api.post("/v1/emails", access.key, email, headers=given(0xE5))
    await until_status(api, access, sent.json["id"], "bounced")

    exemplars: set[str] = set()
    async with asyncio.timeout(PATIENCE_S):
        while not {"accept", "settle"} <= exemplars:
            exemplars = await asyncio.to_thread(flows_with_exemplars, service)
            await asyncio.sleep(0.2)
    lines = [
        orjson.loads(line)
        for log in (service.state / "log").glob("mta-*.log")
        for line in log.read_text("utf-8").splitlines()
        if line.startswith("{")
    ]
    assert [one["trace_id"] for one in lines if one.get("message") == sent.json["id"]] == [f"{0xE5:032x}"]


def flows_with_exemplars(service: Service) -> set[str]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{service.settings.metrics_port}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))  # type: ignore[no-untyped-call]
    return {
        sample.labels["flow"]
        for family in families
        for sample in family.samples
        if family.name == "waybill_flush_seconds" and sample.exemplar is not None
    }
