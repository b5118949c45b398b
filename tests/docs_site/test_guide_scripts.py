"""The scripts that map payloads of other services: their output is accepted, and nothing is dropped."""

import copy
import io
import json
import runpy
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.guides import SCRIPTS

Json = dict[str, Any]

# Each has every field of the service's documentation that can be mapped, in the forms that it allows.
RESEND: Json = {
    "from": "Shop <shop@DOMAIN>",
    "to": ["Ann <ann@people.test>", "bob@people.test"],
    "cc": "cleo@people.test",
    "bcc": ["dora@people.test"],
    "reply_to": ["help@DOMAIN", "sales@DOMAIN"],
    "subject": "Receipt 4711",
    "html": "<p>Thank you. <img src='cid:logo'></p>",
    "text": "",
    "headers": {"X-Entity-Ref-ID": "4711"},
    "tags": [{"name": "category", "value": "receipt"}, {"name": "order", "value": "4711"}],
    "attachments": [
        {"filename": "receipt.pdf", "content": "JVBERi0="},
        {"filename": "raw.bin", "content": {"type": "Buffer", "data": [1, 2, 255]}},
        {"filename": "logo.png", "content": "iVBORw0=", "content_type": "image/png", "content_id": "logo"},
    ],
}
POSTMARK: Json = {
    "From": "Shop <shop@DOMAIN>",
    "To": '"Doe, Ann" <ann@people.test>, bob@people.test',
    "Cc": "cleo@people.test",
    "Bcc": "dora@people.test",
    "ReplyTo": "help@DOMAIN",
    "Subject": "Receipt 4711",
    "HtmlBody": "<p>Thank you. <img src='cid:logo.png'></p>",
    "TextBody": "Thank you.",
    "Tag": "receipt",
    "Metadata": {"order": "4711", "customer": "c_81"},
    "Headers": [{"Name": "X-Entity-Ref-ID", "Value": "4711"}],
    "MessageStream": "outbound",
    "TrackOpens": False,
    "TrackLinks": "None",
    "Attachments": [
        {"Name": "receipt.pdf", "Content": "JVBERi0=", "ContentType": "application/pdf"},
        {"Name": "logo.png", "Content": "iVBORw0=", "ContentType": "image/png", "ContentID": "cid:logo.png"},
    ],
}
SENDGRID: Json = {
    "from": {"email": "shop@DOMAIN", "name": 'Ann\'s "Shop"'},
    "reply_to": {"email": "help@DOMAIN", "name": "Help"},
    "subject": "Hello -name-",
    "content": [
        {"type": "text/plain", "value": "Hello -name-, you are -name-two-."},
        {"type": "text/html", "value": "<p>Hello -name-</p>"},
    ],
    "headers": {"X-Mail": "1"},
    "categories": ["receipt", "eu", "receipt"],
    "custom_args": {"order": "4711"},
    "attachments": [
        {"content": "JVBERi0=", "filename": "receipt.pdf", "type": "application/pdf", "disposition": "attachment"},
        {
            "content": "iVBORw0=",
            "filename": "logo.png",
            "type": "image/png",
            "disposition": "inline",
            "content_id": "logo",
        },
    ],
    "mail_settings": {"footer": {"enable": False}},
    "tracking_settings": {"open_tracking": {"enable": False}},
    "personalizations": [
        {
            "to": [{"email": "ann@people.test", "name": "Ann"}, {"email": "bob@people.test"}],
            "cc": [{"email": "cleo@people.test"}],
            "substitutions": {"-name-": "Ann", "-name-two-": "-name-"},
            "custom_args": {"customer": "c_81"},
            "headers": {"X-Person": "1"},
        },
        {"to": [{"email": "dora@people.test"}], "subject": "For you, -name-", "substitutions": {"-name-": "Dora"}},
    ],
}


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str, object], Json | str]:
    """Return a function that runs a script with a payload as its input: the body, or what it says is wrong."""

    def run(script: str, payload: object) -> Json | str:
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(payload)))
        monkeypatch.setattr("sys.argv", [script])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
        written = capsys.readouterr()
        if ended.value.code:
            assert not written.out
            return written.err
        body: Json = json.loads(written.out)
        return body

    return run


def of(account: TestAccount, payload: Json) -> Json:
    found: Json = json.loads(json.dumps(payload).replace("DOMAIN", account.domain))
    return found


def test_tags_of_resend_become_metadata_and_files_with_a_content_id_are_inline(
    mapped: Callable[[str, object], Json],
) -> None:
    body = mapped("from_resend", RESEND)

    assert body["metadata"] == {"category": "receipt", "order": "4711"}
    assert body["headers"] == {"X-Entity-Ref-ID": "4711", "Reply-To": "help@DOMAIN, sales@DOMAIN"}
    assert "text" not in body
    assert [one["contentType"] for one in body["attachments"]] == [
        "application/pdf", "application/octet-stream", "image/png",
    ]  # fmt: skip
    assert body["attachments"][1]["content"] == "AQL/"
    assert (body["attachments"][2]["disposition"], body["attachments"][2]["cid"]) == ("inline", "logo")


def test_lists_of_postmark_with_commas_become_lists_of_addresses(mapped: Callable[[str, object], Json]) -> None:
    body = mapped("from_postmark", POSTMARK)

    assert body["to"] == ['"Doe, Ann" <ann@people.test>', "bob@people.test"]
    assert (body["tags"], body["replyTo"]) == (["receipt"], "help@DOMAIN")
    assert body["attachments"][1]["cid"] == "logo.png"
    assert "stream" not in body
    assert mapped("from_postmark", POSTMARK | {"MessageStream": "news"})["stream"] == "news"


def test_a_mail_of_sendgrid_is_a_message_for_each_personalization(mapped: Callable[[str, object], Json]) -> None:
    first, second = mapped("from_sendgrid", SENDGRID)["messages"]

    assert first["from"] == '"Ann\'s \\"Shop\\"" <shop@DOMAIN>'
    assert (first["subject"], first["text"]) == ("Hello Ann", "Hello Ann, you are -name-.")
    assert first["metadata"] == {"order": "4711", "customer": "c_81"}
    assert first["headers"] == {"X-Mail": "1", "X-Person": "1"}
    assert (second["subject"], second["html"]) == ("For you, Dora", "<p>Hello Dora</p>")
    assert second["tags"] == ["receipt", "eu"]
    only = SENDGRID | {"personalizations": SENDGRID["personalizations"][1:], "send_at": 1_893_456_000,
                       "mail_settings": {"sandbox_mode": {"enable": True}}}  # fmt: skip
    alone = mapped("from_sendgrid", only)
    assert (alone["scheduledAt"], alone["dryRun"]) == ("2030-01-01T00:00:00Z", True)


@pytest.mark.parametrize(
    ("script", "payload"), [("from_resend", RESEND), ("from_postmark", POSTMARK), ("from_sendgrid", SENDGRID)]
)
async def test_the_mapped_body_is_accepted(
    script: str, payload: Json, mapped: Callable[[str, object], Json], api: Api, pool: asyncpg.Pool
) -> None:
    account = await make_account(pool)
    given: Any = of(account, payload)
    for one in (given, [given, given]) if script != "from_sendgrid" else (given,):
        body = mapped(script, one) | {"dryRun": True}
        answer = await api.post("/v1/emails/batch" if "messages" in body else "/v1/emails", account.token, body)

        assert answer.status == 200, answer.body
        assert not [row for row in answer.json.get("data", []) if row["status"] == "refused"], answer.body


MODEL = {"n": 7, "items": [{"title": "Lamp"}], "paid": False}
TEMPLATES: list[tuple[str, Json]] = [
    ("from_resend", {"from": "a@b.test", "to": "c@d.test", "template": {"id": "receipt", "variables": MODEL}}),
    ("from_postmark", {"From": "a@b.test", "To": "c@d.test", "TemplateAlias": "receipt", "TemplateModel": MODEL}),
    (
        "from_sendgrid",
        {
            "from": {"email": "a@b.test"}, "template_id": "receipt", "subject": "Ignored",
            "content": [{"type": "text/plain", "value": "Ignored"}],
            "personalizations": [{"to": [{"email": "c@d.test"}], "dynamic_template_data": MODEL}],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "payload"), TEMPLATES)
def test_a_template_and_its_values_are_mapped(
    script: str, payload: Json, mapped: Callable[[str, object], Json]
) -> None:
    body = mapped(script, payload)
    assert body.keys() == {"from", "to", "template", "variables", "data"}
    assert (body["template"], body["variables"]) == ("receipt", {"n": "7"})
    assert body["data"] == {"items": [{"title": "Lamp"}], "paid": False}


REFUSED: list[tuple[str, Json, str, object]] = [
    ("from_resend", RESEND, "topic_id", "top_1"),
    ("from_resend", RESEND, "react", "<Mail/>"),
    ("from_resend", RESEND, "scheduled_at", "in 1 hour"),
    ("from_resend", RESEND, "subjct", "Hello"),
    ("from_resend", RESEND, "attachments[0].path", "https://example.com/a.pdf"),
    ("from_resend", RESEND, "template.id", "Not A Slug"),
    ("from_postmark", POSTMARK, "TrackOpens", True),
    ("from_postmark", POSTMARK, "TrackLinks", "HtmlAndText"),
    ("from_postmark", POSTMARK, "InlineCss", True),
    ("from_postmark", POSTMARK, "TemplateId", 1234),
    ("from_postmark", POSTMARK, "Tag", "t" * 65),
    ("from_postmark", POSTMARK, "Unknown", 1),
    ("from_postmark", POSTMARK, "Attachments[1].Size", 1),
    ("from_sendgrid", SENDGRID, "asm", {"group_id": 1}),
    ("from_sendgrid", SENDGRID, "batch_id", "b1"),
    ("from_sendgrid", SENDGRID, "ip_pool_name", "p"),
    ("from_sendgrid", SENDGRID, "tracking_settings.click_tracking", {"enable": True}),
    ("from_sendgrid", SENDGRID, "mail_settings.footer", {"enable": True}),
    ("from_sendgrid", SENDGRID, "content[0].type", "text/x-amp-html"),
    ("from_sendgrid", SENDGRID, "personalizations[0].unknown", 1),
    ("from_sendgrid", SENDGRID, "personalizations", []),
    ("from_sendgrid", SENDGRID, "sections", {}),
]


@pytest.mark.parametrize(("script", "payload", "place", "value"), REFUSED, ids=[f"{a} {c}" for a, _, c, _ in REFUSED])
def test_a_field_without_a_counterpart_is_named(
    script: str, payload: Json, place: str, value: object, mapped: Callable[[str, object], str]
) -> None:
    said = mapped(script, changed(payload, place, value))
    assert [line.partition(":")[0] for line in said.splitlines()] == [place]


def changed(payload: Json, place: str, value: object) -> Json:
    """A copy with another value at `place`, such as `attachments[0].path`."""
    found = copy.deepcopy(payload)
    at: Any = found
    *above, last = place.replace("]", "").replace("[", ".").split(".")
    for name in above:
        at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
    at[last] = value
    return found


def test_all_problems_of_a_batch_are_named_at_once(mapped: Callable[[str, object], str]) -> None:
    said = mapped("from_resend", [RESEND | {"react": 1}, RESEND, RESEND | {"topic_id": 1, "react": 1}])
    assert [line.partition(":")[0] for line in said.splitlines()] == ["[0].react", "[2].topic_id", "[2].react"]
