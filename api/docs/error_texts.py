"""Explain each error type: what it means, what to do, and whether the same request may succeed later."""

from typing import Final, NamedTuple

from engine.base.errors import ErrorType


class ErrorText(NamedTuple):
    """`again`: whether repeating the same request can help."""

    meaning: str
    remedy: str
    again: str


_NO: Final = "No: change the request first."
_AFTER: Final = "Yes, after the seconds in `Retry-After`."

ERROR_TEXTS: Final[dict[ErrorType, ErrorText]] = {
    ErrorType.INVALID_REQUEST: ErrorText(
        "The body, a query parameter or the path has a value that the operation does not take; `field` names it where "
        "one field is wrong, `line` and `column` the place in malformed JSON or in a template.",
        "Correct the field that the message names. For a misspelt field the message suggests the nearest name.",
        _NO,
    ),
    ErrorType.UNAUTHORIZED: ErrorText(
        "The request has no valid API key or session: none was sent, or it is unknown, revoked, expired, or used from "
        "an address that the key does not allow.",
        "Send `Authorization: Bearer svc_live_…` with a key that `GET /v1/api-keys` lists as active.",
        _NO,
    ),
    ErrorType.TOTP_REQUIRED: ErrorText(
        "The password is right, and the person has a second factor.",
        "Ask for the code of the authenticator app and send the same sign-in again with `code`; after the sign-in with "
        "an identity provider, send `code` and the `ticket` of the answer to `POST /v1/auth/idp/totp`.",
        "Yes, with the code.",
    ),
    ErrorType.INVALID_CREDENTIALS: ErrorText(
        "Address, password, code, link or ticket is wrong, used or expired. The answer does not say which, so that "
        "nobody can find out who has an account.",
        "Enter them again, or request a new link.",
        _NO,
    ),
    ErrorType.FORBIDDEN: ErrorText(
        "The credential is valid and may not do this: the key lacks a scope (`scope` names it), or is limited to other "
        "domains or streams, or the person's role is too low.",
        "Use a key with the scope, or ask an owner or admin of the account.",
        _NO,
    ),
    ErrorType.EMAIL_UNVERIFIED: ErrorText(
        "The person has not confirmed their address yet.",
        "Open the link in the confirmation mail, or request another with `POST /v1/auth/verify-email/send`.",
        "Yes, once the address is confirmed.",
    ),
    ErrorType.CSRF_FAILED: ErrorText(
        "A change with a session came without the session's CSRF token, or with another one.",
        "Send the `csrfToken` of `GET /v1/auth/me` in the header `X-CSRF-Token`. An API key needs none.",
        _NO,
    ),
    ErrorType.ACCOUNT_SUSPENDED: ErrorText(
        "The account is suspended; it can read, and revoke access.",
        "Read the reason in `GET /v1/me` and write to the operator of the service.",
        "Yes, once the account is resumed.",
    ),
    ErrorType.PLAN_LIMIT_REACHED: ErrorText(
        "The plan of the account does not hold more of this; `resource`, `limit` and `used` say of what.",
        "Delete what is not needed, or choose a larger plan.",
        "Yes, once there is room; a limit per month ends with the month (`Retry-After`).",
    ),
    ErrorType.DOMAIN_NOT_VERIFIED: ErrorText(
        "The domain of `from` is not a verified domain of the account.",
        "Publish the records that `GET /v1/domains/{id}/setup` lists, then `POST /v1/domains/{id}/verify`.",
        "Yes, once the domain is verified.",
    ),
    ErrorType.NOT_FOUND: ErrorText(
        "There is no such object in this account, or no such path in the API.",
        "Check the id and the account that the key belongs to. Encode a `/` within an id or address as `%2F`.",
        _NO,
    ),
    ErrorType.METHOD_NOT_ALLOWED: ErrorText(
        "The path exists, and does not take this method; `Allow` lists those that it takes.",
        "Use one of them.",
        _NO,
    ),
    ErrorType.CONFLICT: ErrorText(
        "Another object has this name, or the object was changed meanwhile.",
        "Choose another name, or read the object again and repeat the change.",
        _NO,
    ),
    ErrorType.TERMINAL_STATE: ErrorText(
        "The object has ended, in the `state` given: an approved or expired verification takes no more codes.",
        "Start a new one.",
        _NO,
    ),
    ErrorType.INVALID_STATE: ErrorText(
        "The object is in a `state` in which this is not possible: a message whose release has begun can't be "
        "canceled.",
        "Fetch the object and check its status before you retry.",
        _NO,
    ),
    ErrorType.PAYLOAD_TOO_LARGE: ErrorText(
        "The body, or the composed message, is larger than the limit in octets.",
        "Send less, for example a link in place of a large attachment.",
        _NO,
    ),
    ErrorType.UNSUPPORTED_MEDIA_TYPE: ErrorText(
        "The body is not JSON, or `Content-Type` says so.",
        "Send `Content-Type: application/json`.",
        _NO,
    ),
    ErrorType.INVALID_ADDRESS: ErrorText(
        "An address is malformed: `address` and `field` name it. The service does not send what no server could take.",
        "Correct the address.",
        _NO,
    ),
    ErrorType.SUPPRESSED: ErrorText(
        "The account does not send to this address: it bounced, complained, unsubscribed, or was added by hand. "
        "`reason` says which. Nothing of the message was sent.",
        "Remove the recipient. Lift the suppression (`DELETE /v1/suppressions/{address}`) only if you know that the "
        "address wants and gets mail.",
        _NO,
    ),
    ErrorType.ATTACHMENT_BLOCKED: ErrorText(
        "Mailbox providers refuse attachments of this type, such as programs; `filename` names it.",
        "Send a link, or another format.",
        _NO,
    ),
    ErrorType.ATTACHMENT_INFECTED: ErrorText(
        "The virus scanner found something in this attachment; its bytes are not handed out.",
        "Leave it alone.",
        _NO,
    ),
    ErrorType.TEMPLATE_ERROR: ErrorText(
        "The template can't be rendered: a variable that it requires is missing (`missing` lists them), or its syntax "
        "is wrong.",
        "Send the variables, or correct the template; `POST /v1/templates/{id}/preview` shows the same refusals.",
        _NO,
    ),
    ErrorType.THRESHOLD_REFUSED: ErrorText(
        "The alert's threshold is above the largest that the service allows (`limit`).",
        "Choose a lower one.",
        _NO,
    ),
    ErrorType.RATE_LIMITED: ErrorText(
        "Too many requests, or too many of them at once.",
        "Wait, then go on more slowly: `RateLimit` on each answer says how many requests are left.",
        _AFTER,
    ),
    ErrorType.DAILY_LIMIT_REACHED: ErrorText(
        "The account has sent its messages of today (`limit`, `sentToday`). The limit rises by itself with good "
        "results.",
        "Wait for the next day (UTC), or ask the operator.",
        _AFTER,
    ),
    ErrorType.MONTHLY_LIMIT_REACHED: ErrorText(
        "The plan's messages of this month are used up.",
        "Choose a larger plan, or wait for the first of the month (UTC).",
        _AFTER,
    ),
    ErrorType.PLATFORM_PAUSED: ErrorText(
        "The operator has paused sending on the whole installation.",
        "Wait.",
        _AFTER,
    ),
    ErrorType.TOO_MANY_STREAMS: ErrorText(
        "Too many live tails are open for this account or on this server.",
        "Close one, or read the events with `GET /v1/events`.",
        _AFTER,
    ),
    ErrorType.DESTINATION_LOCKED: ErrorText(
        "Three verifications in a row for this address ended without the right code.",
        "Wait an hour; codes may be guessed by somebody.",
        _AFTER,
    ),
    ErrorType.UNAVAILABLE: ErrorText(
        "A part of the service does not answer, or is starting or stopping. Nothing was accepted as far as it could "
        "tell.",
        "Repeat the request; a send with the same `idempotencyKey`, so that it can't happen twice.",
        _AFTER,
    ),
}
