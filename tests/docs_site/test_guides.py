"""The guides of the documentation site: form, links, names, numbers, and samples that parse."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from api.http import openapi
from api.routes import all_operations
from engine.accounts import suspend
from engine.audience.contacts import files as contact_files
from engine.audience.contacts import import_rules
from engine.base.errors import REGISTRY
from engine.base.events import AccountEvent, EventType
from engine.base.plans import CAPS, DAILY_ALLOWANCES, MAX_SEGMENTS
from engine.base.scopes import SCOPES
from engine.base.settings import Settings
from engine.codes.address_checks.rules import MAX_ADDRESSES
from engine.codes.verifications import rules as verifications
from engine.events.tails.store import MAX_TAILS
from engine.events.webhooks import rules as webhooks
from engine.events.webhooks.service import KEPT as DELIVERIES_KEPT
from engine.events.webhooks.standard import new_secret
from engine.ledger import quota
from engine.mail.attachments import BLOCKED
from engine.mail.received_warnings import TEXTS as WARNINGS
from engine.mail.simulator import SimulatedOutcome
from engine.people.sessions import rules as sessions
from engine.sending.emails import limits as emails
from engine.sending.emails import submitted_options
from engine.sending.emails.limits import IDEMPOTENCY_DAYS, MAX_RECIPIENTS
from engine.sending.suppressions import files as suppression_files
from mta.submission import replies
from ops.host.process_specs import ROOT
from tests.harness.guides import GuideText, guides, names_in
from tests.sdk.node_tools import npm_modules

LANGUAGES = {"sh", "python", "js", "json", "http", "text", "html", "php", "ruby", "go", "java"}
EVERY_GUIDE = pytest.mark.parametrize("guide", guides().values(), ids=list(guides()))
RUNBOOKS = {f"operating/{path.stem}" for path in (ROOT / "ops" / "runbooks").glob("*.md")}
SETTINGS = Settings()
OPERATIONS = all_operations()


# -- form -------------------------------------------------------------------------------------------


@EVERY_GUIDE
def test_a_guide_has_a_short_description_and_sections_below_the_title(guide: GuideText) -> None:
    assert 20 <= len(guide.page.description) <= 120
    assert guide.page.description.endswith(".")
    assert all(level >= 2 for level, _ in guide.headings)
    assert all(sample.language in LANGUAGES for sample in guide.samples)


def test_two_guides_have_two_places() -> None:
    places = Counter((guide.page.section, guide.page.order) for guide in guides().values())
    assert not [place for place, count in places.items() if count > 1]


@EVERY_GUIDE
def test_each_link_leads_somewhere(guide: GuideText) -> None:
    wrong = [link for link in guide.links if not link.startswith("https://") and not leads(guide, link)]
    assert not wrong


def leads(guide: GuideText, link: str) -> bool:
    page, _, anchor = link.partition("#")
    if page.startswith("api/"):
        return page.removeprefix("api/") in operation_anchors() and (
            not anchor or anchor in operation_anchors()[page.removeprefix("api/")]
        )
    if page == "errors":
        return not anchor or anchor in set(REGISTRY)
    if page in {"api", "changelog"} or page in RUNBOOKS:
        return not anchor
    if page.startswith("deploy/"):
        return (ROOT / "ops" / page).is_file() and not anchor
    target = guides().get(page) if page else guide
    return target is not None and (not anchor or anchor in target.anchors)


@cache
def operation_anchors() -> dict[str, set[str]]:
    """The anchors of each page of the reference: `method-path`, everything else folded to hyphens."""
    found: dict[str, set[str]] = {}
    for one in OPERATIONS:
        anchor = re.sub(r"[^a-z0-9]+", "-", f"{one.method} {one.path}".lower()).strip("-")
        found.setdefault(re.sub(r"[^a-z0-9]+", "-", one.tag.lower()), set()).add(anchor)
    return found


# -- names ------------------------------------------------------------------------------------------


@EVERY_GUIDE
def test_each_operation_that_a_guide_names_exists(guide: GuideText) -> None:
    known = {(one.method, re.sub(r"\{[^}]*\}", "*", one.path)) for one in OPERATIONS}
    named = re.findall(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}.*-]+)", guide.text)
    wrong = [f"{verb} {path}" for verb, path in named if (verb, starred(path)) not in known]
    assert not wrong


def starred(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "*", path.rstrip("."))


@cache
def described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(openapi.document(OPERATIONS, SETTINGS))
    return found


@cache
def wire_names() -> set[str]:
    """The names of all properties and parameters of the API."""
    found = {one["name"] for path in described()["paths"].values() for operation in path.values()
             for one in operation.get("parameters", [])}  # fmt: skip
    for schema in described()["components"]["schemas"].values():
        found |= schema.get("properties", {}).keys()
    return found


@EVERY_GUIDE
def test_each_field_in_a_table_of_fields_is_one_of_the_api(guide: GuideText) -> None:
    tables = ("field", "query", "query of `/v1/stats/messages`")
    named = [name for first in tables for row in guide.rows(first) for name in names_in(row[0])]
    assert not [name for name in named if name not in wire_names() | {"Last-Event-ID"}]


def test_the_send_guide_names_every_field_of_a_send() -> None:
    named = {name for row in guides()["sending"].rows("field") for name in names_in(row[0])}
    assert described()["components"]["schemas"]["EmailRequest"]["properties"].keys() <= named


def test_the_security_guide_names_every_scope() -> None:
    assert {name for row in guides()["security"].rows("scope") for name in names_in(row[0])} == SCOPES


def test_the_smtp_guide_names_every_header_and_reply() -> None:
    guide = guides()["smtp"]
    headers = {name.lower() for row in guide.rows("header") for name in names_in(row[0])}
    given = {row[0]: set(names_in(row[1].partition(":")[0])) for row in guide.rows("reply")}
    for kind, codes in replies._BY_TYPE.items():
        assert kind.value in given[codes], codes
    assert headers == set(submitted_options._READERS)


async def test_the_webhook_guide_names_every_type_that_is_posted(pool: asyncpg.Pool) -> None:
    known = [*EventType, *AccountEvent]
    rows = await pool.fetch("SELECT type FROM unnest($1::text[]) AS type WHERE webhook_wants('{}', type)", known)
    on_purpose = {AccountEvent.INBOUND_RECEIVED.value, AccountEvent.WEBHOOK_TEST.value}  # by a route, by a call
    named = {name for row in guides()["webhooks"].rows("type") for name in names_in(row[0])}
    assert named == {row["type"] for row in rows} | on_purpose == webhooks.EVENT_TYPES


def test_the_testing_guide_names_every_recipient_of_the_simulator() -> None:
    named = {name.partition("@")[0] for row in guides()["testing"].rows("recipient") for name in names_in(row[0])}
    assert named == {outcome.value for outcome in SimulatedOutcome}


# -- numbers ----------------------------------------------------------------------------------------

PLAN_ROWS = {
    "messages per month": "monthly_emails",
    "requests per second": "requests_per_second",
    "sending domains": "sending_domains",
    "records kept (days)": "retention_days",
    "schedule ahead (days)": "schedule_days",
    "delivery analytics (days)": "analytics_days",
    "templates": "templates",
    "streams": "streams",
    "webhook endpoints": "webhooks",
    "API keys": "api_keys",
    "inbound addresses": "inbound_addresses",
    "received messages per month": "monthly_received",
    "verification codes per month": "monthly_verifications",
    "address checks per month": "monthly_address_checks",
    "contacts": "contacts",
    "contact lists": "lists",
    "team seats": "seats",
    "sub-accounts": "sub_accounts",
}
MIB = 1024 * 1024


def number(value: float | None) -> str:
    return "unlimited" if value is None else f"{value:,}"


def percent(share: float) -> str:
    return f"{share * 100:g}%"


def plan_row(field: str) -> list[str]:
    return [number(getattr(caps, field)) for caps in CAPS.values()]


def test_the_table_of_plans_is_that_of_the_code() -> None:
    table = guides()["limits"].prose.partition("## Plans")[2].partition("## Daily limit")[0]
    rows = {row[0]: row[1:] for row in (line.strip("| ").split(" | ") for line in table.splitlines() if "|" in line)}
    assert PLAN_ROWS.keys() <= rows.keys()
    assert set(PLAN_ROWS.values()) == set(next(iter(CAPS.values())).__struct_fields__)
    for label, field in PLAN_ROWS.items():
        assert rows[label] == plan_row(field), label
    assert f"Segments: {MAX_SEGMENTS} on every plan" in table


@pytest.mark.parametrize(
    ("slug", "label", "field"),
    [
        ("inbound", "addresses", "inbound_addresses"),
        ("inbound", "received messages per month", "monthly_received"),
        ("contacts", "contacts", "contacts"),
        ("contacts", "lists", "lists"),
    ],
)
def test_a_row_of_a_plan_table_elsewhere_is_that_of_the_code(slug: str, label: str, field: str) -> None:
    assert f"| {label} | {' | '.join(plan_row(field))} |" in guides()[slug].text


def test_the_daily_steps_are_those_of_the_code() -> None:
    steps = " | ".join(f"{cap:,}" for cap in DAILY_ALLOWANCES)
    assert f"| messages per day | {steps} |" in guides()["limits"].text
    assert f"starts at {DAILY_ALLOWANCES[0]} messages per day" in guides()["deliverability"].text


GIVE_UP = f"{SETTINGS.give_up_s / 3600:g} hours"
STATED = {
    "limits": [
        f"| request body | {SETTINGS.max_request_bytes // MIB} MiB |",
        f"| composed message | {SETTINGS.max_message_bytes // MIB} MiB |",
        f"| received message | {SETTINGS.inbound_max_bytes // MIB} MiB |",
        f"| recipients per message | {MAX_RECIPIENTS} |",
        f"| messages per batch | {emails.MAX_MESSAGES} |",
        f"| `text`, `html` | {emails.MAX_BODY:,} characters each |",
        f"| `subject` | {emails.MAX_SUBJECT} characters |",
        f"| custom headers | {emails.MAX_HEADERS}; names {emails.MAX_HEADER_NAME}, values {emails.MAX_HEADER_VALUE:,} ",
        f"| attachments | {emails.MAX_ATTACHMENTS} files; {emails.MAX_CONTENT:,} base64 characters each |",
        f"| tags | {emails.MAX_TAGS} of {emails.MAX_TAG} characters |",
        f"| metadata | {emails.MAX_METADATA} entries of {emails.MAX_METADATA_VALUE} characters |",
        f"| template variables per send | {emails.MAX_VARIABLES} of {emails.MAX_VARIABLE:,} characters |",
        f"| `idempotencyKey` | {emails.MAX_IDEMPOTENCY_KEY} characters, kept {IDEMPOTENCY_DAYS} days |",
        f"| live tails per account | {MAX_TAILS} |",
        f"| webhook URL | {webhooks.MAX_URL:,} characters |",
        f"| event types per webhook | {webhooks.MAX_TYPES} |",
        f"| contacts per import | {import_rules.MAX_ROWS:,} as JSON, {contact_files.MAX_FILE_ROWS:,} as a file |",
        f"| suppressions per import | 1,000 as JSON, {suppression_files.MAX_FILE_ROWS:,} as a file |",
        f"| addresses per check | {MAX_ADDRESSES} |",
        f"| no or unreadable credential | {SETTINGS.unauthenticated_rate} per second",
        f"| sign-in, sign-up, password reset | {SETTINGS.sign_in_rate} per minute",
        f"complaints at most {percent(quota.COMPLAINTS_TO_RISE)}, bounces at most {percent(quota.BOUNCES_TO_RISE)}",
        f"at least {percent(quota.USED_TO_RISE)} of the limit used",
        f"complaints over {percent(quota.COMPLAINTS_TO_FALL)} or bounces over {percent(quota.BOUNCES_TO_FALL)}",
        f"Bounces of {percent(suspend.MAX_BOUNCED)} or complaints of {percent(suspend.MAX_COMPLAINED)} within 24 hours",
        f"once {suspend.MIN_SETTLED} recipients have a result",
    ],
    "idempotency": [f"| remembered | {IDEMPOTENCY_DAYS} days;"],
    "sending": [
        f"1 min, 2 min, 5 min, 15 min, 30 min, 1 h, 2 h, 4 h, then every 8 h until {SETTINGS.give_up_s / 3600:g} h ",
        f"together {MAX_RECIPIENTS} addresses, {emails.MAX_ADDRESS} characters each",
        f"{emails.MAX_HEADERS} headers, names {emails.MAX_HEADER_NAME}, values {emails.MAX_HEADER_VALUE:,} ",
        f"| {emails.MAX_ATTACHMENTS} files |",
        f"| {emails.MAX_VARIABLES} variables of {emails.MAX_VARIABLE:,} characters |",
        f"| {emails.MAX_TAGS} tags of {emails.MAX_TAG} characters |",
        f"| {emails.MAX_METADATA} entries, names 64, values {emails.MAX_METADATA_VALUE} characters |",
        f"| {emails.MAX_LIST_UNSUBSCRIBE:,} characters |",
        f"retries end then | {GIVE_UP} after the send |",
    ],
    "scheduling": [f"within {emails.AT_ONCE_S} s | sent at once", f"later than `scheduledAt`, by at most {GIVE_UP}."],
    "deliverability": [f"then more and more slowly, for {GIVE_UP} |"],
    "glossary": [f"| batch | Up to {emails.MAX_MESSAGES} messages"],
    "attachments": [
        f"| files per message | {emails.MAX_ATTACHMENTS} |",
        f"| {emails.MAX_CONTENT:,} characters: 10 MiB |",
        f"| composed message | {SETTINGS.max_message_bytes // MIB} MiB,",
    ],
    "security": [
        f"{sessions.IDLE.days} days idle, {sessions.ABSOLUTE.days} days at most",
    ],
    "data-and-privacy": [
        f"| Webhook deliveries | {DELIVERIES_KEPT.days} days |",
        f"| Idempotency keys | {IDEMPOTENCY_DAYS} days |",
    ],
    "verifications": [
        f"| attempts | {verifications.MAX_ATTEMPTS};",
        f"| codes per verification | {verifications.MAX_CODES} |",
        f"| codes per address | {verifications.MAX_CODES_AN_HOUR} per hour |",
        f"| life of a code | {verifications.LIFE.seconds // 60} minutes from the start;",
    ],
    "webhooks": ["retries after 10 s, 1, 5 and 30 minutes, 2, 6 and 12 hours: 7 retries within 22 hours"],
    "events": [f"may have {MAX_TAILS} open tails", f"| `heartbeat` | every {SETTINGS.tail_heartbeat_s:g} s |"],
}


@pytest.mark.parametrize("slug", STATED)
def test_numbers_are_those_of_the_code(slug: str) -> None:
    folded = " ".join(guides()[slug].text.split())
    assert not [text for text in STATED[slug] if " ".join(text.split()) not in folded]


def test_the_schedules_in_words_are_those_of_the_settings() -> None:
    assert list(SETTINGS.retry_ladder_s) == [30, 60, 120, 300, 900, 1800, 3600, 7200, 14400, 28800]
    assert SETTINGS.give_up_s == 72 * 3600
    assert list(SETTINGS.webhook_ladder_s) == [10, 60, 300, 1800, 7200, 21600, 43200]


# -- verifiers --------------------------------------------------------------------------------------

SECRET = "whsec_tests"
STANDARD_SECRET = new_secret()
BODY = '{"id":"evt_1","type":"delivered","data":{"detail":{"name":"Wörd"}}}'.encode()


def signatures() -> dict[str, str]:
    """Values of Service-Signature, by what a verifier says to them; the first is right."""
    now = int(time.time())
    good = webhooks.signature(SECRET, BODY, now)
    return {
        "": good,
        "signature mismatch": webhooks.signature("whsec_other", BODY, now),
        "too old": webhooks.signature(SECRET, BODY, now - 400),
        "in the future": webhooks.signature(SECRET, BODY, now + 400),
        "malformed": good.partition(",")[2],
        "version": good.replace("v1=", "v2="),
    }


def verifier(language: str) -> str:
    return webhook_sample(language, "verify(")


def webhook_sample(language: str, function: str) -> str:
    """Return the sample of the guide that defines a function."""
    start = {"python": "def", "js": "function"}[language]
    [fence] = [
        one for one in guides()["webhooks"].samples if one.language == language and f"{start} {function}" in one.text
    ]
    return fence.text


def test_the_verifier_in_python_knows_our_signature() -> None:
    module: dict[str, Any] = {}
    exec(compile(verifier("python"), "verify.py", "exec"), module)
    for complaint, header in signatures().items():
        if not complaint:
            module["verify_request"](BODY, {"Service-Signature": header}, SECRET)
            continue
        with pytest.raises(ValueError, match=complaint):
            module["verify_request"](BODY, {"Service-Signature": header}, SECRET)
        both = {"Service-Signature": header, "Service-Signature-Previous": signatures()[""]}
        module["verify_request"](BODY, both, SECRET)


def test_the_verifier_in_javascript_knows_our_signature(tmp_path: Any) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    program = tmp_path / "verify.mjs"
    program.write_text(f"""{verifier("js")}
const [body, secret, headers] = JSON.parse(process.argv[2]);
console.log(JSON.stringify(headers.map((header) => {{
  const good = headers[{list(signatures()).index("")}];
  verifyRequest(Buffer.from(body), {{ "service-signature": header, "service-signature-previous": good }}, secret);
  try {{
    verifyRequest(Buffer.from(body), {{ "service-signature": header }}, secret);
    return "";
  }} catch (error) {{ return error.message; }}
}})));
""")
    headers = signatures()
    given = json.dumps([BODY.decode(), SECRET, list(headers.values())])
    said = json.loads(subprocess.run(["node", program, given], check=True, capture_output=True, text=True).stdout)
    for expected, answer in zip(headers, said, strict=True):
        assert expected in answer if expected else answer == ""


def standard_headers() -> dict[str, str]:
    """Return the headers of a request with the signatures of Standard Webhooks."""
    return webhooks.headers(
        BODY, event_id=uuid.uuid4(), attempt=1, secret=STANDARD_SECRET, previous=None, at_s=int(time.time()),
        signs_standard=True,
    )  # fmt: skip


def test_the_sample_of_standard_webhooks_in_python_reads_an_event() -> None:
    environ = os.environ | {"PYTHONPATH": os.environ.get("TEST_CLIENTS_PYTHONPATH", "")}
    if subprocess.run([sys.executable, "-c", "import standardwebhooks"], env=environ, check=False).returncode:
        pytest.skip("the Python package standardwebhooks is not in the folder TEST_CLIENTS_PYTHONPATH")
    program = f"""import json, sys
{webhook_sample("python", "read_event(")}
body, headers, secret = json.load(sys.stdin)
sys.stdout.write(read_event(body.encode(), headers, secret)["id"])
"""
    given = json.dumps([BODY.decode(), standard_headers(), STANDARD_SECRET])
    command = [sys.executable, "-c", program]
    assert (
        subprocess.run(command, env=environ, input=given, check=True, capture_output=True, text=True).stdout == "evt_1"
    )


def test_the_sample_of_standard_webhooks_in_javascript_reads_an_event(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (tmp_path / "node_modules").symlink_to(npm_modules("standardwebhooks"))
    program = tmp_path / "read.mjs"
    program.write_text(f"""{webhook_sample("js", "readEvent(")}
const [body, headers, secret] = JSON.parse(process.argv[2]);
console.log(readEvent(body, headers, secret).id);
""")
    given = json.dumps([BODY.decode(), standard_headers(), STANDARD_SECRET])
    command = ["node", str(program), given]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "evt_1\n"


def test_the_guide_on_attachments_names_every_blocked_type() -> None:
    [listed] = [one.text.split() for one in guides()["attachments"].samples if ".appref-ms" in one.text]

    assert listed == [f".{one}" for one in sorted(BLOCKED)]


def test_the_guide_on_received_mail_names_every_warning() -> None:
    text = guides()["reading-email"].text

    assert [code for code in WARNINGS if f"`{code}`" not in text] == []
