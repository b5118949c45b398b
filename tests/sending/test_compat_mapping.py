"""Messages of Resend and Postmark in our fields, and our refusals in theirs."""

from typing import Any

import msgspec
import pytest

from api.areas.compat import postmark_mapping, postmark_read_mapping, resend_mapping
from api.areas.compat.field_names import FieldNames
from api.areas.compat.schemas import PostmarkEmail, ResendEmail
from engine.base.errors import ErrorType, Refusal, invalid
from engine.sending.emails.types import SendRequest

LEAST = {"from": "a@x.test", "to": "b@y.test"}
LEAST_PM = {"From": "a@x.test", "To": "b@y.test"}


def resend(**fields: Any) -> SendRequest:
    return resend_mapping.send_request(msgspec.convert(LEAST | fields, ResendEmail))


def postmark(**fields: Any) -> SendRequest:
    return postmark_mapping.send_request(msgspec.convert(LEAST_PM | fields, PostmarkEmail))


def in_our_fields(request: SendRequest) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(request)
    return {name: value for name, value in found.items() if value is not None and name not in ("from", "to")}


FILE = {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGk="}
RESEND_FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"subject": "Hi", "html": "<p>", "text": ""}, {"subject": "Hi", "html": "<p>"}),
    ({"text": ""}, {"text": ""}),
    ({"cc": "c@y.test", "bcc": ["d@y.test", "e@y.test"]}, {"cc": ["c@y.test"], "bcc": ["d@y.test", "e@y.test"]}),
    ({"reply_to": "r@x.test"}, {"replyTo": "r@x.test"}),
    ({"reply_to": ["r@x.test", "s@x.test"]}, {"headers": {"Reply-To": "r@x.test, s@x.test"}}),
    ({"headers": {"X-Order": "7"}}, {"headers": {"X-Order": "7"}}),
    ({"tags": [{"name": "kind", "value": "receipt"}, {"name": "new"}]}, {"metadata": {"kind": "receipt", "new": ""}}),
    ({"scheduled_at": "2026-11-20T08:00:00+01:00"}, {"scheduledAt": "2026-11-20T08:00:00+01:00"}),
    ({"template": {"id": "receipt", "variables": {"sum": 7, "for": "Ann"}}},
     {"template": "receipt", "variables": {"sum": "7", "for": "Ann"}}),
    ({"template": {"id": "receipt", "variables": {"for": "Ann", "items": [{"n": 1}], "paid": False, "note": None}}},
     {"template": "receipt", "variables": {"for": "Ann"}, "data": {"items": [{"n": 1}], "paid": False, "note": None}}),
    ({"attachments": [{"filename": "a.pdf", "content": "aGk="}]}, {"attachments": [FILE]}),
    ({"attachments": [{"filename": "a.pdf", "content": [104, 105]}]}, {"attachments": [FILE]}),
    ({"attachments": [{"filename": "a", "content": "aGk=", "content_type": "text/x-y", "content_id": "logo"}]},
     {"attachments": [{"filename": "a", "contentType": "text/x-y", "content": "aGk=", "disposition": "inline",
                       "cid": "logo"}]}),
    ({"attachments": [{"filename": "a.qqq", "content": "", "inline_content_id": "x"}]},
     {"attachments": [{"filename": "a.qqq", "contentType": "application/octet-stream", "content": "",
                       "disposition": "inline", "cid": "x"}]}),
    (dict.fromkeys(("subject", "cc", "tags", "topic_id", "template", "attachments", "reply_to", "html")), {}),
]  # fmt: skip


POSTMARK_FIELDS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"Subject": "Hi", "HtmlBody": "<p>", "TextBody": ""}, {"subject": "Hi", "html": "<p>"}),
    ({"Cc": '"Doe, C" <c@y.test>,d@y.test', "Bcc": ""}, {"cc": ['"Doe, C" <c@y.test>', "d@y.test"]}),
    ({"ReplyTo": "r@x.test"}, {"replyTo": "r@x.test"}),
    ({"ReplyTo": "r@x.test,s@x.test", "Headers": [{"Name": "X-Order", "Value": "7"}]},
     {"headers": {"X-Order": "7", "Reply-To": "r@x.test, s@x.test"}}),
    ({"Tag": "welcome"}, {"tags": ["welcome"]}),
    ({"Metadata": {"order": 7, "paid": True, "who": "A"}}, {"metadata": {"order": "7", "paid": "true", "who": "A"}}),
    ({"MessageStream": "outbound"}, {"stream": "transactional"}),
    ({"MessageStream": "news"}, {"stream": "news"}),
    ({"TemplateAlias": "receipt", "TemplateModel": {"sum": 7}}, {"template": "receipt", "variables": {"sum": "7"}}),
    ({"TemplateAlias": "receipt", "TemplateModel": {"items": ["Lamp"]}},
     {"template": "receipt", "data": {"items": ["Lamp"]}}),
    ({"TrackOpens": False, "TrackLinks": "None", "InlineCss": False}, {}),
    ({"Attachments": [{"Name": "a.pdf", "Content": "aGk=", "ContentType": "application/pdf"}]},
     {"attachments": [FILE]}),
    ({"Attachments": [{"Name": "a.pdf", "Content": "aGk=", "ContentType": "application/pdf", "ContentID": "cid:a"}]},
     {"attachments": [FILE | {"disposition": "inline", "cid": "a"}]}),
    ({"Attachments": [{"Name": "a.pdf", "Content": "aGk=", "ContentType": "application/pdf", "ContentID": "a"}]},
     {"attachments": [FILE | {"cid": "a"}]}),
    (dict.fromkeys(("Cc", "Bcc", "Tag", "Metadata", "TrackOpens", "ReplyTo", "MessageStream", "TemplateId")), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("convert", "given", "ours", "to"),
    [
        *[(resend, *row, "b@y.test") for row in RESEND_FIELDS],
        *[(postmark, *row, ["b@y.test"]) for row in POSTMARK_FIELDS],
    ],
)
def test_a_message_of_another_service_has_our_fields(
    convert: Any, given: dict[str, Any], ours: dict[str, Any], to: object
) -> None:
    request = convert(**given)

    assert (request.from_, request.to) == ("a@x.test", to)
    found = in_our_fields(request)
    for file in found.get("attachments", ()):
        for name in ("disposition", "cid"):
            if file[name] is None:
                del file[name]
    assert found == ours


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"topic_id": "t"}, "topic_id"),
        ({"attachments": [{"filename": "a", "path": "https://x.test/a"}]}, "attachments[0].path"),
        ({"attachments": [{"content": "aGk="}]}, "attachments[0].filename"),
        ({"attachments": [{"filename": "a"}]}, "attachments[0].content"),
        ({"attachments": [{"filename": "a", "content": "", "content_id": "a", "inline_content_id": "b"}]},
         "attachments[0].inline_content_id"),
        ({"attachments": [{"filename": "a", "content": "", "content_type": "x"}]}, "attachments[0].content_type"),
        ({"tags": [{"name": "a"}, {"name": "a"}]}, "tags[1].name"),
        ({"tags": [{"name": "a", "value": "x" * 513}]}, "tags.a"),
        ({"scheduled_at": "in 1 min"}, "scheduled_at"),
        ({"template": {"id": "No slug"}}, "template.id"),
        ({"template": {"id": "x", "variables": {"a": "x" * 5001}}}, "template.variables.a"),
        ({"reply_to": "x" * 321}, "reply_to"),
        ({"reply_to": ["a@x.test", "b@x.test"], "headers": {"reply-to": "c@x.test"}}, "reply_to"),
    ],
)  # fmt: skip
def test_a_field_of_resend_without_a_counterpart_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as refused:
        resend(**given)

    assert refused.value.fields["field"] == field
    assert f"`{field}`" in refused.value.message or "Two tags" in refused.value.message


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"TrackOpens": True}, "TrackOpens"),
        ({"TrackLinks": "HtmlAndText"}, "TrackLinks"),
        ({"InlineCss": True}, "InlineCss"),
        ({"TemplateId": 1234}, "TemplateId"),
        ({"To": " , "}, "To"),
        ({"Tag": "x" * 65}, "Tag"),
        ({"Metadata": {"a": "x" * 513}}, "Metadata.a"),
        ({"MessageStream": "a_b"}, "MessageStream"),
        ({"Headers": [{"Name": "X-A", "Value": "1"}, {"Name": "X-A", "Value": "2"}]}, "Headers[1].Name"),
        ({"Attachments": [{"Name": "", "Content": "", "ContentType": "a/b"}]}, "Attachments[0].Name"),
    ],
)
def test_a_field_of_postmark_without_a_counterpart_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as refused:
        postmark(**given)

    assert refused.value.fields["field"] == field


@pytest.mark.parametrize(
    ("names", "ours", "theirs"),
    [
        (resend_mapping.NAMES, "replyTo", "reply_to"),
        (resend_mapping.NAMES, "attachments[3].contentType", "attachments[3].content_type"),
        (resend_mapping.NAMES, "headers.X-Order", "headers.X-Order"),
        (resend_mapping.NAMES, "/v1/emails", "/v1/emails"),
        (postmark_mapping.NAMES, "to[1]", "To[1]"),
        (postmark_mapping.NAMES, "attachments[0].cid", "Attachments[0].ContentID"),
    ],
)
def test_refusals_use_the_names_of_the_other_service(names: FieldNames, ours: str, theirs: str) -> None:
    named = names.refusal(invalid(ours, f"`{ours}` is wrong."))

    assert (named.fields["field"], named.message) == (theirs, f"`{theirs}` is wrong.")


def test_refusals_keep_their_evidence() -> None:
    refusal = Refusal(ErrorType.DAILY_LIMIT_REACHED, "Used up.", retry_after_s=60, limit=100, sentToday=100)
    named = postmark_mapping.NAMES.refusal(refusal)

    assert (named.kind, named.retry_after_s, named.fields) == (refusal.kind, 60, {"limit": 100, "sentToday": 100})


@pytest.mark.parametrize(
    ("fromdate", "todate", "since", "until"),
    [
        ("2026-07-01", "2026-07-01", "2026-07-01T04:00:00.000Z", "2026-07-02T04:00:00.000Z"),
        # Clocks in New York go forward on March 8: that day has 23 hours.
        ("2026-03-08", "2026-03-08", "2026-03-08T05:00:00.000Z", "2026-03-09T04:00:00.000Z"),
        ("2026-07-01T12:00:00", "2026-07-01T12:00:00", "2026-07-01T16:00:00.000Z", "2026-07-01T16:00:01.000Z"),
        ("2026-07-01T12:00:00Z", None, "2026-07-01T12:00:00.000Z", None),
    ],
)
def test_dates_of_postmarks_searches_are_in_eastern_time_and_inclusive(
    fromdate: str, todate: str | None, since: str, until: str | None
) -> None:
    assert postmark_read_mapping.period(fromdate, todate) == {"since": since, "until": until}
