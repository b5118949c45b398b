"""Describe the posts of webhooks for the OpenAPI document: each event type with its payload, headers and answers."""

from typing import Any

from msgspec import Struct

from api.areas.webhooks.event_properties import (
    ACTOR,
    ADDRESS,
    ALERT,
    ATTEMPT,
    AUTHENTICATION,
    BODY_ID,
    BROADCAST,
    CONNECTION,
    CONVERSATION,
    DOMAIN,
    INCLUDED,
    INCLUDED_METADATA,
    LATE,
    ORIGIN,
    OUTCOME,
    PERSON,
    RECEIVED_FILES,
    RECIPIENT,
    SIMULATED,
    SUPPRESSION_SOURCES,
    TRACE,
    WAITS,
    JsonSchema,
    flag,
    moment,
    number,
    reason,
    text,
    whole,
)
from engine.base.events import AccountEvent, EventType
from engine.delivery.wait_reasons import QUEUED_CLAUSES, UNTRIED_CLAUSES
from engine.events.webhooks.rules import MAX_ANSWER_BYTES, SIGNATURE, SIGNATURE_PREVIOUS, USER_AGENT


class EventDetail(Struct, frozen=True):
    """What an event type means, and the properties of its `data.detail`; those in `always` are never missing."""

    meaning: str
    properties: dict[str, JsonSchema]
    always: tuple[str, ...] = ()
    has_message: bool | None = True  # None: some events of the type name a message, others do not


DETAILS: dict[str, EventDetail] = {
    EventType.ACCEPTED: EventDetail(
        "The message is stored. A message that was scheduled has only `scheduled` and `scheduled_at` in its detail.",
        {
            **ORIGIN,
            "scheduled": flag("True at the release of a scheduled message; missing otherwise"),
            "scheduled_at": moment("When the message was due; missing unless it was scheduled"),
        },
    ),
    EventType.QUEUED: EventDetail(
        "The delivery waits for longer than 30 seconds, or its wait was ended early.",
        {
            "reason": reason("Why the delivery waits", QUEUED_CLAUSES),
            "note": text("The operator's reason for the hold", "Maintenance", nullable=True),
            "held": text("The kind of the hold: `domain`, `account`, `message` or `site`", "site", nullable=True),
            "until": moment("When the hold ends, null without an end", nullable=True),
            "to_domain": text("The recipient domain; missing if the event covers all recipients", "example.com"),
        },
        ("reason",),
    ),
    EventType.ATTEMPTED: EventDetail(
        "The service connected to a mail server of the recipient.",
        {
            **ATTEMPT, **CONNECTION,
            "conversation": CONVERSATION,
            "note": text("Why the conversation is not shown; missing if it is", "It is with another message."),
            "to_domain": text("The recipient domain; missing if the event covers all recipients", "example.com"),
        },
        ("mx",),
    ),
    EventType.DELIVERED: EventDetail(
        "The mail server accepted the message for the recipient.",
        {**RECIPIENT, **OUTCOME, **ATTEMPT, **SIMULATED},
        ("recipient", "diagnostic"),
    ),
    EventType.DEFERRED: EventDetail(
        "The delivery failed for now. The service tries again, unless `late` is true.",
        {
            **RECIPIENT, **OUTCOME, **ATTEMPT, **LATE, **SIMULATED,
            "next_attempt_at": moment("When the service tries again"),
        },
        ("recipient", "diagnostic"),
    ),
    EventType.BOUNCED: EventDetail(
        "The delivery failed permanently.",
        {
            **RECIPIENT, **OUTCOME, **ATTEMPT, **LATE, **SIMULATED,
            "suppressed": flag("True if the address was put on the suppression list"),
        },
        ("recipient", "diagnostic", "suppressed"),
    ),
    EventType.COMPLAINED: EventDetail(
        "The recipient reported the message as spam.",
        {
            **RECIPIENT, **SIMULATED,
            "feedback_type": text("The type of the report (RFC 5965)", "abuse"),
            "reporter": text("The domain that reported it; missing if the report is not authenticated", "example.net"),
            "user_agent": text("The program that made the report; missing if it does not say", "SomeGenerator/1.0"),
            "source_ip": text("The address that the reported mail came from; missing if not reported", "192.0.2.25"),
            "suppressed": flag("True if the address was suppressed permanently"),
        },
        ("recipient", "feedback_type", "suppressed"),
    ),
    EventType.FAILED: EventDetail(
        "The last retry of the delivery failed, or the delivery was ended between two attempts.",
        {
            **RECIPIENT, **OUTCOME, **ATTEMPT, **SIMULATED,
            "reason": reason("Why it was ended between two attempts; missing otherwise", UNTRIED_CLAUSES),
        },
        ("recipient", "diagnostic"),
    ),
    EventType.REJECTED: EventDetail(
        "The delivery ended without an attempt.",
        {**RECIPIENT, **OUTCOME, **WAITS, "reason": reason("Why it ended", UNTRIED_CLAUSES)},
        ("recipient", "reason", "diagnostic"),
    ),
    EventType.SUPPRESSED: EventDetail(
        "The recipient is on the suppression list. `data.messageId` is null if the send request was refused.",
        {
            "address": text("The suppressed address", ADDRESS),
            "recipient": text("The recipient of the message, with the phase `delivery`; missing otherwise", ADDRESS),
            "reason": text("Why the address is suppressed", "bounce", nullable=True),
            "phase": text("`scheduled_release` or `delivery`; missing if the send request was refused", "delivery"),
            **WAITS,
        },
        ("address", "reason"),
        has_message=None,
    ),
    EventType.SCHEDULED: EventDetail(
        "The message is stored for a later time, or was moved to another time.",
        {
            **ORIGIN, **ACTOR,
            "scheduled_at": moment("When the message is due"),
            "previously_at": moment("When the message was due before the change; missing at first"),
        },
        ("to_domain", "from_domain", "source", "scheduled_at"),
    ),
    EventType.SCHEDULE_CANCELED: EventDetail(
        "The schedule of the message was canceled before its release.",
        {"scheduled_at": moment("When the message was due"), **ACTOR},
        ("scheduled_at",),
    ),
    EventType.SCHEDULE_FAILED: EventDetail(
        "The message was refused when it was due.",
        {
            "reason": text("Why it was refused, such as `domain_not_verified`", "domain_not_verified"),
            "domain": text("The sender domain that is not verified; missing for other reasons", "example.org"),
            "scheduled_at": moment("When the message was due"),
        },
        ("reason", "scheduled_at"),
    ),
    AccountEvent.INBOUND_RECEIVED: EventDetail(
        "The service received a message at an inbound address.",
        {
            "inbound_message_id": text("The received message", f"imsg_{BODY_ID}"),
            "address": text("The inbound address", "support@example.org"),
            "recipient": text("The recipient as the sending server gave it", "support+42@example.org"),
            "tag": text("The part of the recipient after `+`, null without one", "42", nullable=True),
            "received_at": moment("When the message was received"),
            "replies_to": text("The sent message that it replies to, null if none", f"msg_{BODY_ID}", nullable=True),
            "action": text("The action of the route: `mailbox`, `webhook` or `both`", "both"),
            "from": PERSON | {"type": ["object", "null"], "description": "The author, null if the mail names none"},
            "to": {
                "type": "array", "description": "The addresses of the header To, at most 50", "items": PERSON,
                "examples": [[{"name": "Support", "address": "support@example.org"}]],
            },
            "subject": text("The subject", "A question"),
            "size_bytes": whole("The size of the message in bytes", 4821),
            "spam_score": number("The spam score, null without a scanner and verdicts", 0.4, nullable=True),
            "authentication": AUTHENTICATION,
            "attachments": RECEIVED_FILES,
            **INCLUDED,
        },
        ("inbound_message_id", "address", "recipient", "tag", "received_at", "replies_to", "action"),
        has_message=False,
    ),
    AccountEvent.ALERT_FIRED: EventDetail(
        "The value of an alert rule reached its threshold, or somebody tested the rule.",
        {
            "id": text("The alert event, null for a test", f"ale_{BODY_ID}", nullable=True),
            **ALERT, **ACTOR,
            "value": number("The measured value", 0.08),
            "window_days": whole("The days that the measurement covers", 7) | {"type": ["integer", "null"]},
            "test": flag("True for a test of the rule; missing otherwise"),
            "detail": {
                "type": "object",
                "description": "What the measurement found: counts, or the records, domains or lists that it names",
                "examples": [{"settled": 200, "bounced": 16}],
            },
        },
        ("id", "rule_id", "kind", "value", "threshold", "fired_at"),
        has_message=False,
    ),
    AccountEvent.ALERT_ENDED: EventDetail(
        "An alert ended.",
        {
            "id": text("The alert event", f"ale_{BODY_ID}"),
            **ALERT, **ACTOR,
            "value": number("The last measured value, null without one", 0.01, nullable=True),
            "ended_at": moment("When the alert ended"),
            "because": text("`rule_deleted` if the rule was deleted; missing otherwise", "rule_deleted"),
        },
        ("id", "rule_id", "kind", "value", "threshold", "fired_at", "ended_at"),
        has_message=False,
    ),
    AccountEvent.DOMAIN_VERIFIED: EventDetail(
        "A sender domain is verified.",
        {**DOMAIN, **ACTOR, "by": text("`operator` or `service` if no DNS check verified it", "operator")},
        ("id", "name"),
        has_message=False,
    ),
    AccountEvent.DOMAIN_FAILED: EventDetail(
        "A sender domain lost its verification, or its verification failed.",
        {**DOMAIN, **ACTOR, "reason": text("Why the domain failed", "The required record was missing.")},
        ("id", "name"),
        has_message=False,
    ),
    AccountEvent.SUPPRESSION_ADDED: EventDetail(
        "An address was put on the suppression list.",
        {
            "address": text("The suppressed address", ADDRESS),
            "reason": text("Why the address is suppressed", "bounce"),
            "source": text(f"Where the suppression came from: {SUPPRESSION_SOURCES}", "delivery"),
            "message_id": text("The message that caused it; missing if there is none", f"msg_{BODY_ID}"),
            **ACTOR,
        },
        ("address", "reason", "source"),
        has_message=False,
    ),
    AccountEvent.BROADCAST_PAUSED: EventDetail(
        "A broadcast was paused, by a person or by a limit.",
        {
            **BROADCAST,
            **ACTOR,
            "because": text("Why: `user` for a person, else the limit or fault", "daily_limit"),
            "resumes_at": moment("When the broadcast resumes automatically; missing if it does not"),
        },
        ("id", "name", "because"),
        has_message=False,
    ),
    AccountEvent.BROADCAST_FINISHED: EventDetail(
        "All recipients of a broadcast were accepted or skipped.",
        {
            **BROADCAST,
            **ACTOR,
            "recipients": whole("Contacts in the audience", 1000),
            "accepted": whole("Contacts whose message was accepted", 990),
            "skipped": whole("Contacts that got no message", 10),
        },
        ("id", "name", "recipients", "accepted", "skipped"),
        has_message=False,
    ),
    AccountEvent.VERIFICATION_FINISHED: EventDetail(
        "A verification ended: approved, canceled, expired, or out of attempts.",
        {
            "id": text("The verification", f"ver_{BODY_ID}"),
            "status": text("Its status", "approved"),
            "message_id": text("The message with the last code", f"msg_{BODY_ID}"),
        },
        ("id", "status", "message_id"),
        has_message=False,
    ),
    AccountEvent.CONTACT_CONFIRMED: EventDetail(
        "A person followed the link that confirms a contact.",
        {
            "id": text("The contact", f"con_{BODY_ID}"),
            "consent": text("The consent of the contact since then", "signed_up"),
            **ACTOR,
        },
        ("id", "consent"),
        has_message=False,
    ),
    AccountEvent.CONTACT_UNSUBSCRIBED: EventDetail(
        "A person unsubscribed, or the account recorded it.",
        {
            "address": text("The address of the person", ADDRESS),
            "scope": text("`topic` for one list, `all` for all mail of the stream kind", "topic"),
            "list_id": text("The list of the link, null without one", f"lst_{BODY_ID}", nullable=True),
            "source": text("`unsubscribe_link` (page or one click), `unsubscribe_mail` or `api`", "unsubscribe_link"),
            "broadcast_id": text("The broadcast of the link, null without one", f"brd_{BODY_ID}", nullable=True),
            **ACTOR,
        },
        ("address", "scope", "list_id", "source", "broadcast_id"),
        has_message=False,
    ),
    AccountEvent.WEBHOOK_TEST: EventDetail(
        "Somebody asked for a test post to this endpoint.",
        {"webhook_id": text("The endpoint", f"whk_{BODY_ID}"), **ACTOR},
        ("webhook_id",),
        has_message=False,
    ),
}  # fmt: skip


def webhooks() -> dict[str, Any]:
    """Return the section `webhooks` of the OpenAPI document."""
    return {str(kind): {"post": _post(str(kind), detail)} for kind, detail in DETAILS.items()}


def event_schema(kind: str, detail: EventDetail) -> JsonSchema:
    """Return the schema of the body that is posted for an event of type `kind`."""
    properties = {
        "id": text("The event, equal to the header `Service-Delivery-Id`", f"evt_{BODY_ID}"),
        "type": {"type": "string", "const": kind, "description": "The event type", "examples": [kind]},
        "createdAt": moment("When the event occurred"),
        "seq": whole("The place of the event in the account's log, from 1", 42),
        "data": {
            "type": "object",
            "description": "What the event concerns",
            "properties": {"messageId": _message_id(detail.has_message), "detail": _detail(kind, detail)},
            "required": ["messageId", "detail"],
        },
    }
    always = list(properties)
    if detail.has_message is not False:
        properties |= INCLUDED_METADATA
    return {"type": "object", "properties": properties, "required": always}


def _message_id(has_message: bool | None) -> JsonSchema:  # noqa: FBT001 - three values, from EventDetail
    kinds = {True: "string", False: "null", None: ["string", "null"]}[has_message]
    return {
        "type": kinds,
        "description": "The message that the event concerns, null if it concerns none",
        "examples": [None if has_message is False else f"msg_{BODY_ID}"],
    }


_OF_MESSAGES = frozenset(EventType)


def _detail(kind: str, detail: EventDetail) -> JsonSchema:
    return {
        "type": "object",
        "description": "The facts of the event; later versions may add properties",
        "properties": detail.properties | (TRACE if kind in _OF_MESSAGES else {}),
        "required": list(detail.always),
    }


def example(schema: JsonSchema) -> Any:
    """Return the example of a schema: its own, or else one made of the examples of its properties."""
    if "examples" in schema:
        return schema["examples"][0]
    return {name: example(one) for name, one in schema["properties"].items()}


def _example(kind: str, detail: EventDetail) -> Any:
    """Return a body with the properties that are never missing, or all of them if any may be missing."""
    always = detail.always or tuple(detail.properties)
    kept = {name: one for name, one in detail.properties.items() if name in always}
    schema = event_schema(kind, EventDetail(detail.meaning, kept, always, detail.has_message))
    found = example(schema)
    return {name: found[name] for name in schema["required"]}


_HEADERS = [
    (SIGNATURE, True, "`t=<Unix seconds>,v1=<hex>`: HMAC-SHA-256 over `t`, a full stop and the octets of the body"),
    (SIGNATURE_PREVIOUS, False, "The signature with the previous secret, for 24 hours after a rotation"),
    (
        "Service-Delivery-Id",
        True,
        "Equal to `id` of the body and the same on every attempt; detect repetitions with it",
    ),
    ("Service-Attempt", True, "The number of the attempt, from 1"),
    ("User-Agent", True, f"Always `{USER_AGENT}`"),
]


def _post(kind: str, detail: EventDetail) -> dict[str, Any]:
    return {
        "operationId": f"webhook_{kind.replace('.', '_')}",
        "tags": ["Webhooks"],
        "summary": detail.meaning,
        "description": "Events may arrive more than once and in any order.",
        "security": [],
        "parameters": [
            {"name": name, "in": "header", "required": always, "description": text, "schema": {"type": "string"}}
            for name, always, text in _HEADERS
        ],
        "requestBody": {
            "required": True,
            "description": "The event",
            "content": {"application/json": {"schema": event_schema(kind, detail), "example": _example(kind, detail)}},
        },
        "responses": {
            "2XX": {
                "description": f"Received. Respond within 10 seconds; of the body, {MAX_ANSWER_BYTES} bytes are kept. "
                "Redirects are not followed."
            },
            "404": {"description": "The delivery ends without a retry, as with 410"},
            "410": {"description": "The delivery ends without a retry, as with 404"},
            "default": {
                "description": "Any other response, a failed connection and no response within 10 seconds are retried "
                "7 times by default, after 10 s, 1 min, 5 min, 30 min, 2 h, 6 h and 12 h"
            },
        },
    }
