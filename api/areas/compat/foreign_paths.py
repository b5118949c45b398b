"""Answer requests at paths of other services that are not offered here, in that service's form of an error.

Resend's and Postmark's clients reach the compatible operations at their own base URLs. Their other calls, and any call
of SendGrid's or Mailgun's clients, are told what to use instead, so that a program fails with a sentence that helps.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import falcon
import falcon.asgi
import msgspec
from msgspec import Struct

from api.areas.compat import postmark_mapping, resend_mapping
from api.areas.compat.forms import KEY_HEADER, POSTMARK_PATH, RESEND_PATH
from api.http import dispatch
from engine.base.errors import ErrorType, Refusal

_ACCOUNT_HEADER: Final = "X-Postmark-Account-Token"
_ENCODER: Final = msgspec.json.Encoder()
# The first segments of a path behind the base URL, and what to use instead. The longest that fits counts.
_RESEND: Final = {
    "emails/receiving": "Received mail is at GET /v1/inbound/messages.",
    "emails/metrics": "Counts are at GET /v1/stats/messages.",
    "emails": "Attachments are at GET /v1/messages/{id}/attachments/{attachmentId}, all else of a message at GET "
    "/v1/messages/{id}.",
    "domains": "Domains are added, checked and removed at /v1/domains.",
    "api-keys": "API keys are made in the console.",
    "audiences": "Contacts and their lists are at /v1/contacts and /v1/lists.",
    "contacts": "Contacts are at /v1/contacts.",
    "contact-properties": "Fields of contacts are at /v1/contacts.",
    "segments": "Segments are at /v1/segments.",
    "topics": "Instead of topics, use streams and lists: /v1/streams, /v1/lists.",
    "broadcasts": "Broadcasts are at /v1/broadcasts.",
    "templates": "Templates are at /v1/templates.",
    "webhooks": "Webhooks are at /v1/webhooks.",
    "events": "Events are at GET /v1/events.",
    "logs": "Requests are at GET /v1/requests.",
    "suppressions": "Suppressions are at /v1/suppressions.",
}
_POSTMARK: Final = {
    "email/bulk": "Send to many contacts with a broadcast: /v1/broadcasts.",
    "email": "Send with POST to /email, /email/batch, /email/withTemplate or /email/batchWithTemplates.",
    "messages/inbound": "Received mail is at GET /v1/inbound/messages.",
    "messages/outbound/opens": "Waybill does not track opens.",
    "messages/outbound/clicks": "Waybill does not track clicks.",
    "messages": "Sent messages are at GET /v1/messages.",
    "deliverystats": "Counts of bounces are at GET /v1/bounces/classes.",
    "bounces": "Bounces are at GET /v1/bounces.",
    "templates": "Templates are at /v1/templates.",
    "server": "The account is at GET /v1/me.",
    "servers": "Instead of servers, use sub-accounts, or keys limited to domains and streams.",
    "stats": "Counts are at GET /v1/stats/messages and GET /v1/analytics/delivery.",
    "message-streams": "Streams are at /v1/streams, suppressions at /v1/suppressions.",
    "webhooks": "Webhooks are at /v1/webhooks.",
    "triggers": "Rules for received mail are at /v1/inbound/routes.",
    "domains": "Domains are at /v1/domains.",
    "senders": "Instead of sender signatures, domains are verified: /v1/domains.",
    "data-removals": "A recipient's data is erased with POST /v1/erasures.",
}
_GENERAL: Final = "It has no counterpart here."


class _Foreign(Struct, frozen=True):
    """A service whose path was called: its name, its guide, and the form of its errors."""

    name: str
    guide: str
    write: Callable[[Refusal, dict[str, Any]], tuple[int, object]]
    sentence: str


async def on_http_error(
    request: falcon.asgi.Request,
    response: falcon.asgi.Response,
    error: falcon.HTTPError,
    params: dict[str, object],
) -> None:
    """Answer an error of Falcon itself; one at a path of another service in the form of that service."""
    await dispatch.on_http_error(request, response, error, params)
    status = int(str(error.status)[:3])
    found = _service(request) if status in {404, 405} else None
    if found is None:
        return
    guide = f"{request.context.docs.removesuffix('/errors')}/{found.guide}"
    kind = ErrorType.NOT_FOUND if status == 404 else ErrorType.METHOD_NOT_ALLOWED
    refusal = Refusal(
        kind,
        f"Waybill does not offer {found.name}'s {request.method} {request.path[:200]}. {found.sentence} See {guide}",
    )
    written, body = found.write(refusal, refusal.envelope(request.context.docs)["error"])
    response.status = falcon.code_to_http_status(written)
    response.data = _ENCODER.encode(body)


def _service(request: falcon.asgi.Request) -> _Foreign | None:
    """Return the service that a path belongs to, None for one that is nobody's."""
    path = request.path
    if path.startswith(f"{RESEND_PATH}/"):
        return _resend(path.removeprefix(RESEND_PATH))
    if path.startswith(f"{POSTMARK_PATH}/"):
        return _postmark(path.removeprefix(POSTMARK_PATH))
    if request.get_header(KEY_HEADER) or request.get_header(_ACCOUNT_HEADER):
        return _postmark(path)
    if path.startswith(("/v3/", "/v4/")):
        basic = (request.get_header("Authorization") or "").lower().startswith("basic ")
        return _mailgun() if basic or "." in path.split("/")[2] else _sendgrid()
    if path == "/emails" or path.startswith("/emails/"):
        sentence = f"Set the base URL of Resend's client to this host and {RESEND_PATH}."
        return _Foreign("Resend", "migrate-from-resend", _resend_form, sentence)
    return None


def _resend(path: str) -> _Foreign:
    return _Foreign("Resend", "migrate-from-resend", _resend_form, _sentence(_RESEND, path))


def _postmark(path: str) -> _Foreign:
    return _Foreign("Postmark", "migrate-from-postmark", _postmark_form, _sentence(_POSTMARK, path.lower()))


def _sendgrid() -> _Foreign:
    sentence = "Its requests are not taken here; a script maps them to POST /v1/emails."
    return _Foreign("SendGrid", "migrate-from-sendgrid", _sendgrid_form, sentence)


def _mailgun() -> _Foreign:
    sentence = "Its requests are not taken here; the guide maps them to POST /v1/emails and POST /v1/emails/raw."
    return _Foreign("Mailgun", "migrate-from-mailgun", _mailgun_form, sentence)


def _sentence(table: Mapping[str, str], path: str) -> str:
    segments = path.strip("/").split("/")
    starts = ("/".join(segments[:count]) for count in range(len(segments), 0, -1))
    return next((table[start] for start in starts if start in table), _GENERAL)


def _resend_form(refusal: Refusal, own: dict[str, Any]) -> tuple[int, object]:
    return resend_mapping.error_of(refusal, own, True)  # noqa: FBT003 - api.http.operation.ErrorForm


def _postmark_form(refusal: Refusal, own: dict[str, Any]) -> tuple[int, object]:
    return postmark_mapping.error_of(refusal, own, True)  # noqa: FBT003 - as above


def _sendgrid_form(refusal: Refusal, own: dict[str, Any]) -> tuple[int, object]:
    return refusal.status, {"errors": [{"message": refusal.message, "field": None, "help": None}], "error": own}


def _mailgun_form(refusal: Refusal, own: dict[str, Any]) -> tuple[int, object]:
    return refusal.status, {"message": refusal.message, "error": own}
