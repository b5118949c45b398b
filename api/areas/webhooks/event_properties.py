"""Describe the properties that events share, for the OpenAPI document's posts of webhooks."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from engine.delivery.waits import WAIT_CLAUSES

JsonSchema = dict[str, Any]
S = TypeVar("S", bound=StrEnum)
AT = "2026-11-20T08:09:10.123Z"
BODY_ID = "01k9m2q8f0e4xbn7t5v3w6y9za"
HOST = "mx1.example.com"
ADDRESS = "ann@example.com"


def text(description: str, example: str, *, nullable: bool = False) -> JsonSchema:
    """Return the schema of a text."""
    kind: str | list[str] = ["string", "null"] if nullable else "string"
    return {"type": kind, "description": description, "examples": [example]}


def moment(description: str, *, nullable: bool = False) -> JsonSchema:
    """Return the schema of a time."""
    return text(f"{description}: ISO 8601, UTC", AT, nullable=nullable) | {"format": "date-time"}


def number(description: str, example: float, *, nullable: bool = False) -> JsonSchema:
    """Return the schema of a number."""
    kind: str | list[str] = ["number", "null"] if nullable else "number"
    return {"type": kind, "description": description, "examples": [example]}


def whole(description: str, example: int) -> JsonSchema:
    """Return the schema of a whole number."""
    return {"type": "integer", "description": description, "examples": [example]}


def reason(description: str, clauses: Mapping[S, str]) -> JsonSchema:
    """Return the schema of a word with its meaning per value."""
    meanings = "; ".join(f"`{value}`: {clause}" for value, clause in clauses.items())
    return {"type": "string", "description": f"{description}. {meanings}", "examples": [next(iter(clauses))]}


def flag(description: str, *, example: bool = True) -> JsonSchema:
    """Return the schema of a truth value."""
    return {"type": "boolean", "description": description, "examples": [example]}


ATTACHMENTS: JsonSchema = {
    "type": "array",
    "description": "The attachments of the message; missing if it has none",
    "items": {
        "type": "object",
        "properties": {
            "filename": text("The file name of the attachment", "invoice.pdf"),
            "content_type": text("The media type of the attachment", "application/pdf"),
            "size_bytes": whole("The size of the decoded attachment in bytes", 48213),
            "sha256": text("The SHA-256 of the decoded attachment in lower-case hexadecimal", "9f86d081" * 8),
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
CONVERSATION: JsonSchema = {
    "type": "array",
    "description": "The steps of the SMTP session in order, each with `step`, `ms` (milliseconds) and the reply",
    "items": {"type": "object", "description": "A step; `reply` is the reply, `error` says why there is none"},
    "examples": [[{"step": "mail", "reply": "250 2.1.0 ok", "ms": 1.2}]],
}
TRACE = {
    "traceparent": text(
        "The trace of the message (W3C Trace Context); missing without one",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
}
SIMULATED = {"simulated": flag("True if the simulator replied instead of a mail server; missing otherwise")}
ORIGIN = {
    "to_domain": text("The domain of the first recipient", "example.com"),
    "from_domain": text("The domain of the sender", "example.org"),
    "stream": text("The stream of the message", "transactional"),
    "source": text("The way in: `api`, `smtp` for the SMTP relay, `forward` for forwarded mail", "api"),
    "attachments": ATTACHMENTS,
}
PERSON: JsonSchema = {
    "type": "object",
    "description": "A name and an address",
    "properties": {
        "name": text("The display name, null without one", "Ann", nullable=True),
        "address": text("The address, null if it can't be read", ADDRESS, nullable=True),
    },
    "required": ["name", "address"],
    "examples": [{"name": "Ann", "address": ADDRESS}],
}
VERDICT: JsonSchema = {
    "type": "object",
    "description": "A verdict of RFC 8601",
    "properties": {
        "result": text("The result, such as `pass`, `fail` or `none`", "pass"),
        "domain": text("The domain that the verdict is about, null if none", "example.com", nullable=True),
        "detail": text("Why, in one line; may be empty", "2048 bits"),
    },
    "required": ["result", "domain", "detail"],
    "examples": [{"result": "pass", "domain": "example.com", "detail": ""}],
}
AUTHENTICATION: JsonSchema = {
    "type": "object",
    "description": "The verdicts on the message",
    "properties": {
        name: VERDICT | {"description": f"The verdict of {name.upper()}"} for name in ("spf", "dkim", "dmarc", "arc")
    },
    "examples": [dict.fromkeys(("spf", "dkim", "dmarc", "arc"), VERDICT["examples"][0])],
}
RECEIVED_FILES: JsonSchema = {
    "type": "array",
    "description": "The attachments of the message, at most 50",
    "items": {
        "type": "object",
        "properties": {
            "id": text("The attachment, for its download", f"att_{BODY_ID}"),
            **ATTACHMENTS["items"]["properties"],
            "cid": text("The Content-ID, null without one", "logo", nullable=True),
            "scan": text("The virus scan: `clean`, `infected`, `unscanned` or `failed`", "clean"),
            "signature": text("What the scan found, null if nothing", "Eicar-Test-Signature", nullable=True),
        },
    },
    "examples": [[]],
}
INCLUDED = {
    "text": text("The text, if the route includes it", "Hello", nullable=True),
    "html": text("The sanitised HTML, if the route includes it", "<p>Hello</p>", nullable=True),
    "reply_text": text("The text without quotes and signature, if the route includes it", "Hello", nullable=True),
    "headers": {
        "type": ["array", "null"],
        "description": "The header fields, if the route includes them",
        "items": {"type": "object", "description": "A field: `name` and `value`"},
        "examples": [[{"name": "Subject", "value": "A question"}]],
    },
    "omitted": {
        "type": "array",
        "description": "The included parts that are null, because all would be larger than 256 KiB; missing if the "
        "route includes none",
        "items": {"type": "string", "description": "The name of a part"},
        "examples": [["html"]],
    },
}
INCLUDED_METADATA: dict[str, JsonSchema] = {
    "tags": {
        "type": "array",
        "description": "The tags of the message, if the endpoint includes them; missing otherwise",
        "items": {"type": "string", "description": "A tag"},
        "examples": [["receipt"]],
    },
    "metadata": {
        "type": "object",
        "description": "The metadata of the message, if the endpoint includes them; missing otherwise",
        "additionalProperties": {"type": "string", "description": "A value"},
        "examples": [{"order": "4711"}],
    },
}
RECIPIENT = {"recipient": text("The address that the event concerns", ADDRESS)}
_SITE_LATELY: JsonSchema = {
    "type": "object",
    "description": "Recent outcomes of other accounts at these mail servers, where they explain this one; else missing",
    "examples": [{"delivered": 12, "deferred": 3}],
}
OUTCOME = {
    "scope": text("What the failure concerns: `recipient`, `message`, `site` or `session`", "recipient"),
    "class": text("The class of the outcome, such as `user_unknown`", "user_unknown"),
    "smtp_code": whole("The reply code of the mail server; missing if it sent no reply", 550),
    "enhanced_code": text("The enhanced status code (RFC 3463) of the reply; missing without one", "5.1.1"),
    "iana_class": text("The subject of the enhanced status code in IANA's registry; missing without one", "addressing"),
    "diagnostic": text("The reply of the mail server, or the reason why there is none", "550 5.1.1 User unknown"),
    "site_lately": _SITE_LATELY,
}
TLS: JsonSchema = {
    "type": ["object", "null"],
    "description": "The encryption of the connection, null for plain text; missing if there was no connection",
    "properties": {
        "version": text("The version of TLS", "TLSv1.3"),
        "cipher": text("The cipher suite", "TLS_AES_256_GCM_SHA384"),
        "certificate": text("The check of the certificate: `verified`, or why not", "verified"),
        "resumed": flag("True if an earlier session was resumed; missing otherwise"),
        "policy": text(
            "The policy that required a valid certificate, such as `mta-sts`; missing without one", "mta-sts"
        ),
    },
    "examples": [{"version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384", "certificate": "verified"}],
}
CONNECTION = {
    "tls": TLS,
    "plaintext": text("Why the connection was not encrypted; missing if it was", "the server offers no STARTTLS"),
    "source_ip": text("The address that the service connected from; missing if it has one only", "192.0.2.25"),
}
WAITS: dict[str, JsonSchema] = {
    "waits": {
        "type": "object",
        "description": "Milliseconds by cause since the outcome before or the message's creation; causes without time, "
        "and outcomes after an `attempted` event, have none",
        "properties": {cause.value: whole(f"The time {clause}", 120) for cause, clause in WAIT_CLAUSES.items()},
        "examples": [{"queue": 9, "other_accounts": 120, "connection": 210, "transaction": 85}],
    },
    "fair_share": number("1 by the number of accounts with mail at the servers, on average; missing for 1", 0.5),
}
ATTEMPT = {
    **WAITS,
    "mx": text("The host name of the mail server", HOST, nullable=True),
    "tls": TLS,
    "attempt": whole("The number of the delivery attempt, from 1; missing if it does not count", 1),
}
LATE = {
    "late": flag("True if a delivery report came after the server had accepted the message; missing otherwise"),
    "unverified": flag(
        "True if another recipient of the message could have written the delivery report; missing otherwise. The "
        "address is then not suppressed"
    ),
}
ACTOR = {"actor": text("Who asked for it: a `usr_…` or `key_…` id; missing if the service acted", f"key_{BODY_ID}")}
ALERT = {
    "rule_id": text("The alert rule", f"alr_{BODY_ID}"),
    "kind": text("What the rule measures", "bounce_rate"),
    "threshold": number("The threshold of the rule: a share for rates, a count otherwise", 0.05),
    "fired_at": moment("When the alert fired"),
}
BROADCAST = {"id": text("The broadcast", f"brd_{BODY_ID}"), "name": text("Its name", "November news")}
DOMAIN = {"id": text("The domain's id", f"dom_{BODY_ID}"), "name": text("The domain name", "example.org")}
SUPPRESSION_SOURCES = (
    "`delivery`, `late_bounce`, `complaint`, `feedback_report`, `api`, `unsubscribe_link` or `unsubscribe_mail`"
)
