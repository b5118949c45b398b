"""Describe the posts of webhooks for the OpenAPI document: each event type with its payload, headers and answers."""

from typing import Any

from msgspec import Struct

from engine.areas.webhooks.rules import MAX_ANSWER_BYTES, SIGNATURE, SIGNATURE_PREVIOUS, USER_AGENT
from engine.base.events import AccountEvent, EventType

JsonSchema = dict[str, Any]
_AT = "2026-11-20T08:09:10.123Z"
_BODY_ID = "01k9m2q8f0e4xbn7t5v3w6y9za"
_HOST = "mx1.example.com"
_ADDRESS = "ann@example.com"


class EventDetail(Struct, frozen=True):
    """What an event type means, and the properties of its `data.detail`; those in `always` are never missing."""

    meaning: str
    properties: dict[str, JsonSchema]
    always: tuple[str, ...] = ()
    has_message: bool | None = True  # None: some events of the type name a message, others do not


def _text(description: str, example: str, *, nullable: bool = False) -> JsonSchema:
    kind: str | list[str] = ["string", "null"] if nullable else "string"
    return {"type": kind, "description": description, "examples": [example]}


def _moment(description: str, *, nullable: bool = False) -> JsonSchema:
    return _text(f"{description}: ISO 8601, UTC", _AT, nullable=nullable) | {"format": "date-time"}


def _number(description: str, example: float, *, nullable: bool = False) -> JsonSchema:
    kind: str | list[str] = ["number", "null"] if nullable else "number"
    return {"type": kind, "description": description, "examples": [example]}


def _whole(description: str, example: int) -> JsonSchema:
    return {"type": "integer", "description": description, "examples": [example]}


def _flag(description: str, *, example: bool = True) -> JsonSchema:
    return {"type": "boolean", "description": description, "examples": [example]}


_ATTACHMENTS: JsonSchema = {
    "type": "array",
    "description": "The attachments of the message; missing if it has none",
    "items": {
        "type": "object",
        "properties": {
            "filename": _text("The file name of the attachment", "invoice.pdf"),
            "content_type": _text("The media type of the attachment", "application/pdf"),
            "size_bytes": _whole("The size of the decoded attachment in bytes", 48213),
            "sha256": _text("The SHA-256 of the decoded attachment in lower-case hexadecimal", "9f86d081" * 8),
        },
        "required": ["filename", "content_type", "size_bytes", "sha256"],
    },
    "examples": [
        [
            {
                "filename": "invoice.pdf",
                "content_type": "application/pdf",
                "size_bytes": 48213,
                "sha256": "9f86d081" * 8,
            }
        ]
    ],
}
_SIMULATED = {"simulated": _flag("True if the simulator answered in place of a mail server; missing otherwise")}
_ORIGIN = {
    "to_domain": _text("The domain of the first recipient", "example.com"),
    "from_domain": _text("The domain of the sender", "example.org"),
    "stream": _text("The stream of the message", "transactional"),
    "source": _text("The way in: `api`, `smtp` for the SMTP relay, `forward` for forwarded mail", "api"),
    "attachments": _ATTACHMENTS,
}
_RECIPIENT = {"recipient": _text("The address that the event concerns", _ADDRESS)}
_OUTCOME = {
    "scope": _text("What the failure concerns: `recipient`, `message`, `site` or `session`", "recipient"),
    "class": _text("The class of the outcome, such as `user_unknown`", "user_unknown"),
    "smtp_code": _whole("The reply code of the mail server; missing if it sent no reply", 550),
    "enhanced_code": _text("The enhanced status code (RFC 3463) of the reply; missing without one", "5.1.1"),
    "diagnostic": _text("The reply of the mail server, or the reason why there is none", "550 5.1.1 User unknown"),
}
_ATTEMPT = {
    "mx": _text("The host name of the mail server", _HOST, nullable=True),
    "attempt": _whole("The number of the delivery attempt, from 1; missing if it does not count", 1),
}
_LATE = {"late": _flag("True if a delivery report came after the server had accepted the message; missing otherwise")}
_ACTOR = {"actor": _text("Who asked for it: a `usr_…` or `key_…` id; missing if the service acted", f"key_{_BODY_ID}")}
_ALERT = {
    "rule_id": _text("The alert rule", f"alr_{_BODY_ID}"),
    "kind": _text("What the rule measures", "bounce_rate"),
    "threshold": _number("The threshold of the rule: a share for rates, a count otherwise", 0.05),
    "fired_at": _moment("When the alert fired"),
}
_BROADCAST = {"id": _text("The broadcast", f"brd_{_BODY_ID}"), "name": _text("Its name", "November news")}
_DOMAIN = {"id": _text("The domain's id", f"dom_{_BODY_ID}"), "name": _text("The domain name", "example.org")}
_SUPPRESSION_SOURCES = (
    "`delivery`, `late_bounce`, `complaint`, `feedback_report`, `api`, `unsubscribe_link` or `unsubscribe_mail`"
)

DETAILS: dict[str, EventDetail] = {
    EventType.ACCEPTED: EventDetail(
        "The message is stored. A message that was scheduled has only `scheduled` and `scheduled_at` in its detail.",
        {
            **_ORIGIN,
            "scheduled": _flag("True at the release of a scheduled message; missing otherwise"),
            "scheduled_at": _moment("When the message was due; missing unless it was scheduled"),
        },
    ),
    EventType.QUEUED: EventDetail(
        "An operator holds the delivery back.",
        {
            "reason": _text("Why the delivery waits: `operator_hold`", "operator_hold"),
            "note": _text("The operator's reason for the hold", "Maintenance", nullable=True),
            "held": _text("The kind of the hold: `domain`, `account`, `message` or `site`", "site", nullable=True),
            "until": _moment("When the hold ends, null without an end", nullable=True),
            "to_domain": _text("The recipient domain; missing if the event covers all recipients", "example.com"),
        },
        ("reason",),
    ),
    EventType.ATTEMPTED: EventDetail(
        "The service connected to a mail server of the recipient.",
        {
            "mx": _ATTEMPT["mx"],
            "to_domain": _text("The recipient domain; missing if the event covers all recipients", "example.com"),
        },
        ("mx",),
    ),
    EventType.DELIVERED: EventDetail(
        "The mail server accepted the message for the recipient.",
        {**_RECIPIENT, **_OUTCOME, **_ATTEMPT, **_SIMULATED},
        ("recipient", "diagnostic"),
    ),
    EventType.DEFERRED: EventDetail(
        "The delivery failed for now. The service tries again, unless `late` is true.",
        {
            **_RECIPIENT, **_OUTCOME, **_ATTEMPT, **_LATE, **_SIMULATED,
            "next_attempt_at": _moment("When the service tries again"),
        },
        ("recipient", "diagnostic"),
    ),
    EventType.BOUNCED: EventDetail(
        "The delivery failed for good.",
        {
            **_RECIPIENT, **_OUTCOME, **_ATTEMPT, **_LATE, **_SIMULATED,
            "suppressed": _flag("True if the address was put on the suppression list"),
        },
        ("recipient", "diagnostic", "suppressed"),
    ),
    EventType.COMPLAINED: EventDetail(
        "The recipient reported the message as spam.",
        {
            **_RECIPIENT, **_SIMULATED,
            "feedback_type": _text("The type of the report (RFC 5965)", "abuse"),
            "suppressed": _flag("True if the address was put on the suppression list for good"),
        },
        ("recipient", "feedback_type", "suppressed"),
    ),
    EventType.FAILED: EventDetail(
        "The last retry of the delivery failed.",
        {**_RECIPIENT, **_OUTCOME, **_ATTEMPT, **_SIMULATED},
        ("recipient", "diagnostic"),
    ),
    EventType.REJECTED: EventDetail("The service refused the message without a delivery attempt.", {}),
    EventType.SUPPRESSED: EventDetail(
        "The recipient is on the suppression list. `data.messageId` is null if the send request was refused.",
        {
            "address": _text("The suppressed address", _ADDRESS),
            "reason": _text("Why the address is suppressed", "bounce", nullable=True),
            "phase": _text("`scheduled_release` or `delivery`; missing if the send request was refused", "delivery"),
        },
        ("address", "reason"),
        has_message=None,
    ),
    EventType.SCHEDULED: EventDetail(
        "The message is stored for a later time, or was moved to another time.",
        {
            **_ORIGIN, **_ACTOR,
            "scheduled_at": _moment("When the message is due"),
            "previously_at": _moment("When the message was due before the change; missing at first"),
        },
        ("to_domain", "from_domain", "source", "scheduled_at"),
    ),
    EventType.SCHEDULE_CANCELED: EventDetail(
        "The schedule of the message was canceled before its release.",
        {"scheduled_at": _moment("When the message was due"), **_ACTOR},
        ("scheduled_at",),
    ),
    EventType.SCHEDULE_FAILED: EventDetail(
        "The message was refused when it was due.",
        {
            "reason": _text("Why it was refused, such as `domain_not_verified`", "domain_not_verified"),
            "domain": _text("The sender domain that is not verified; missing for other reasons", "example.org"),
            "scheduled_at": _moment("When the message was due"),
        },
        ("reason", "scheduled_at"),
    ),
    AccountEvent.INBOUND_RECEIVED: EventDetail(
        "The service received a message at an inbound address.",
        {
            "inbound_message_id": _text("The received message", f"imsg_{_BODY_ID}"),
            "address": _text("The inbound address", "support@example.org"),
            "recipient": _text("The recipient as the sending server gave it", "support+42@example.org"),
            "tag": _text("The part of the recipient after `+`, null without one", "42", nullable=True),
            "received_at": _moment("When the message was received"),
            "replies_to": _text("The sent message that it answers, null if none", f"msg_{_BODY_ID}", nullable=True),
            "action": _text("The action of the route: `mailbox`, `webhook` or `both`", "both"),
        },
        ("inbound_message_id", "address", "recipient", "tag", "received_at", "replies_to", "action"),
        has_message=False,
    ),
    AccountEvent.ALERT_FIRED: EventDetail(
        "The value of an alert rule reached its threshold, or somebody tested the rule.",
        {
            "id": _text("The alert event, null for a test", f"ale_{_BODY_ID}", nullable=True),
            **_ALERT, **_ACTOR,
            "value": _number("The measured value", 0.08),
            "window_days": _whole("The days that the measurement covers", 7) | {"type": ["integer", "null"]},
            "test": _flag("True for a test of the rule; missing otherwise"),
        },
        ("id", "rule_id", "kind", "value", "threshold", "fired_at"),
        has_message=False,
    ),
    AccountEvent.ALERT_ENDED: EventDetail(
        "An alert ended.",
        {
            "id": _text("The alert event", f"ale_{_BODY_ID}"),
            **_ALERT, **_ACTOR,
            "value": _number("The last measured value, null without one", 0.01, nullable=True),
            "ended_at": _moment("When the alert ended"),
            "because": _text("`rule_deleted` if the rule was deleted; missing otherwise", "rule_deleted"),
        },
        ("id", "rule_id", "kind", "value", "threshold", "fired_at", "ended_at"),
        has_message=False,
    ),
    AccountEvent.DOMAIN_VERIFIED: EventDetail(
        "A sender domain is verified.",
        {**_DOMAIN, **_ACTOR, "by": _text("`operator` or `service` if no DNS check verified it", "operator")},
        ("id", "name"),
        has_message=False,
    ),
    AccountEvent.DOMAIN_FAILED: EventDetail(
        "A sender domain lost its verification, or its verification failed.",
        {**_DOMAIN, **_ACTOR, "reason": _text("Why the domain failed", "The required record was missing.")},
        ("id", "name"),
        has_message=False,
    ),
    AccountEvent.SUPPRESSION_ADDED: EventDetail(
        "An address was put on the suppression list.",
        {
            "address": _text("The suppressed address", _ADDRESS),
            "reason": _text("Why the address is suppressed", "bounce"),
            "source": _text(f"Where the suppression came from: {_SUPPRESSION_SOURCES}", "delivery"),
            "message_id": _text("The message that caused it; missing if there is none", f"msg_{_BODY_ID}"),
            **_ACTOR,
        },
        ("address", "reason", "source"),
        has_message=False,
    ),
    AccountEvent.BROADCAST_PAUSED: EventDetail(
        "A broadcast was paused, by a person or by a limit.",
        {
            **_BROADCAST,
            **_ACTOR,
            "because": _text("Why: `user` for a person, else the limit or fault", "daily_limit"),
            "resumes_at": _moment("When the broadcast goes on by itself; missing if it does not"),
        },
        ("id", "name", "because"),
        has_message=False,
    ),
    AccountEvent.BROADCAST_FINISHED: EventDetail(
        "All recipients of a broadcast were accepted or skipped.",
        {
            **_BROADCAST,
            **_ACTOR,
            "recipients": _whole("Contacts in the audience", 1000),
            "accepted": _whole("Contacts whose message was accepted", 990),
            "skipped": _whole("Contacts that got no message", 10),
        },
        ("id", "name", "recipients", "accepted", "skipped"),
        has_message=False,
    ),
    AccountEvent.VERIFICATION_FINISHED: EventDetail(
        "A verification ended: approved, canceled, expired, or out of attempts.",
        {
            "id": _text("The verification", f"ver_{_BODY_ID}"),
            "status": _text("Its status", "approved"),
            "message_id": _text("The message with the last code", f"msg_{_BODY_ID}"),
        },
        ("id", "status", "message_id"),
        has_message=False,
    ),
    AccountEvent.CONTACT_UNSUBSCRIBED: EventDetail(
        "A person unsubscribed.",
        {
            "address": _text("The address of the person", _ADDRESS),
            "scope": _text("`topic` for one list, `all` for all mail of the stream kind", "topic"),
            "list_id": _text("The list of the link, null without one", f"lst_{_BODY_ID}", nullable=True),
            "source": _text("`unsubscribe_link` (page or one click) or `unsubscribe_mail`", "unsubscribe_link"),
            "broadcast_id": _text("The broadcast of the link, null without one", f"brd_{_BODY_ID}", nullable=True),
        },
        ("address", "scope", "list_id", "source", "broadcast_id"),
        has_message=False,
    ),
    AccountEvent.WEBHOOK_TEST: EventDetail(
        "Somebody asked for a test post to this endpoint.",
        {"webhook_id": _text("The endpoint", f"whk_{_BODY_ID}"), **_ACTOR},
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
        "id": _text("The event, equal to the header `Service-Delivery-Id`", f"evt_{_BODY_ID}"),
        "type": {"type": "string", "const": kind, "description": "The event type", "examples": [kind]},
        "createdAt": _moment("When the event occurred"),
        "seq": _whole("The place of the event in the account's log, from 1", 42),
        "data": {
            "type": "object",
            "description": "What the event concerns",
            "properties": {"messageId": _message_id(detail.has_message), "detail": _detail(detail)},
            "required": ["messageId", "detail"],
        },
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


def _message_id(has_message: bool | None) -> JsonSchema:  # noqa: FBT001 - three values, from EventDetail
    kinds = {True: "string", False: "null", None: ["string", "null"]}[has_message]
    return {
        "type": kinds,
        "description": "The message that the event concerns, null if it concerns none",
        "examples": [None if has_message is False else f"msg_{_BODY_ID}"],
    }


def _detail(detail: EventDetail) -> JsonSchema:
    return {
        "type": "object",
        "description": "The facts of the event; later versions may add properties",
        "properties": detail.properties,
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
    return example(event_schema(kind, EventDetail(detail.meaning, kept, always, detail.has_message)))


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
                "description": "Received. Answer within 10 seconds; of the body, "
                f"{MAX_ANSWER_BYTES} bytes are kept. Redirects are not followed."
            },
            "404": {"description": "The delivery ends without a retry, as with 410"},
            "410": {"description": "The delivery ends without a retry, as with 404"},
            "default": {
                "description": "Any other answer, a failed connection and no answer within 10 seconds are retried 7 "
                "times by default, after 10 s, 1 min, 5 min, 30 min, 2 h, 6 h and 12 h"
            },
        },
    }
