"""Explain each error type: what it means, what to do, and whether the same request may succeed later."""

from typing import Final, NamedTuple

from engine.base.errors import ErrorType


class ErrorText(NamedTuple):
    """`again`: whether repeating the same request can help."""

    meaning: str
    remedy: str
    again: str


_NO: Final = "No: change the request first."
_AFTER: Final = "Yes, after the number of seconds in `Retry-After`."

ERROR_TEXTS: Final[dict[ErrorType, ErrorText]] = {
    ErrorType.INVALID_REQUEST: ErrorText(
        "A value in the body, query or path isn't valid. `field` names it; `line` and `column` locate a fault in JSON "
        "or a template.",
        "Correct the field that the message names. For a misspelled field, the message suggests the nearest name.",
        _NO,
    ),
    ErrorType.UNAUTHORIZED: ErrorText(
        "Your API key or session is missing, unknown, revoked or expired; the key isn't allowed from your IP "
        "address, or its account is suspended.",
        "Send `Authorization: Bearer svc_live_…` with a key that `GET /v1/api-keys` lists as active. If the "
        "account is suspended, contact the operator.",
        _NO,
    ),
    ErrorType.TOTP_REQUIRED: ErrorText(
        "The password is correct. This person also needs a second factor to sign in.",
        "Repeat the sign-in with `code` from the authenticator app. After an identity provider, send `code` and "
        "`ticket` to `POST /v1/auth/idp/totp`.",
        "Yes, with the code.",
    ),
    ErrorType.INVALID_CREDENTIALS: ErrorText(
        "The address, password, code, link or ticket is wrong, used or expired. For privacy, the response doesn't say "
        "which one.",
        "Enter them again, or request a new link.",
        _NO,
    ),
    ErrorType.FORBIDDEN: ErrorText(
        "Your key isn't allowed to do this: it lacks a `scope`, is limited to other domains or streams, "
        "or your role is too low.",
        "Use a key with the scope, or ask an owner or admin of your account.",
        _NO,
    ),
    ErrorType.EMAIL_UNVERIFIED: ErrorText(
        "You haven't confirmed your email address yet.",
        "Open the link in the confirmation email, or request another with `POST /v1/auth/verify-email/send`.",
        "Yes, once the address is confirmed.",
    ),
    ErrorType.CSRF_FAILED: ErrorText(
        "A request with a session changes something, but its CSRF token is missing or out of date.",
        "Send the `csrfToken` from `GET /v1/auth/me` in the `X-CSRF-Token` header. API keys don't need one.",
        _NO,
    ),
    ErrorType.ACCOUNT_SUSPENDED: ErrorText(
        "Your account is suspended. You can still read data and revoke access.",
        "Read the reason in `GET /v1/me`, then contact the operator of this instance.",
        "Yes, once the account is active again.",
    ),
    ErrorType.PLAN_LIMIT_REACHED: ErrorText(
        "You've reached your plan's limit for `resource` (`used` of `limit`).",
        "Delete what you no longer need, or upgrade your plan.",
        "Yes, once you're below the limit. A monthly limit resets after the seconds in `Retry-After`.",
    ),
    ErrorType.DOMAIN_NOT_VERIFIED: ErrorText(
        "The domain of `from` isn't verified in your account.",
        "Publish the records that `GET /v1/domains/{id}/setup` lists, then call `POST /v1/domains/{id}/verify`.",
        "Yes, once the domain is verified.",
    ),
    ErrorType.NOT_FOUND: ErrorText(
        "Your account has no such object, or the API has no such path.",
        "Check the id and which account the key belongs to. Encode a `/` within an id or address as `%2F`.",
        _NO,
    ),
    ErrorType.METHOD_NOT_ALLOWED: ErrorText(
        "The path exists but doesn't support this HTTP method.",
        "Use one of the methods in the `Allow` header of the response.",
        _NO,
    ),
    ErrorType.CONFLICT: ErrorText(
        "The name is taken, the object changed since you read it, the alert kind has a rule, or the account would lose "
        "its last owner.",
        "Choose another name, fetch the object again and reapply your change, change the existing rule, or make "
        "another member an owner first.",
        _NO,
    ),
    ErrorType.TERMINAL_STATE: ErrorText(
        "The object has ended, in the `state` given. For example, an approved or expired verification accepts no more "
        "codes.",
        "Start a new one, for example with `POST /v1/verifications`.",
        _NO,
    ),
    ErrorType.INVALID_STATE: ErrorText(
        "The object's current `state` doesn't allow this. For example, you can't cancel a message that is already "
        "being sent.",
        "Fetch the object and check its `status` before you retry.",
        _NO,
    ),
    ErrorType.PAYLOAD_TOO_LARGE: ErrorText(
        "The body or the composed message is larger than `limit` bytes.",
        "Send less per request, for example a link instead of a large attachment.",
        _NO,
    ),
    ErrorType.UNSUPPORTED_MEDIA_TYPE: ErrorText(
        "The body isn't JSON, or `Content-Type` names another format.",
        "Send JSON with the header `Content-Type: application/json`.",
        _NO,
    ),
    ErrorType.INVALID_ADDRESS: ErrorText(
        "An email address is malformed. `address` and `field` name it.",
        "Correct the address, or remove that recipient.",
        _NO,
    ),
    ErrorType.SUPPRESSED: ErrorText(
        "A recipient is on your suppression list because it bounced, complained, unsubscribed or was added manually "
        "(`reason`). Nothing was sent.",
        "Remove the recipient. Delete the suppression only if the person asked for mail again and the mailbox works.",
        _NO,
    ),
    ErrorType.ATTACHMENT_BLOCKED: ErrorText(
        "Mailbox providers reject attachments of this type, such as programs. `filename` names the file.",
        "Send a link instead, or use another file format.",
        _NO,
    ),
    ErrorType.ATTACHMENT_INFECTED: ErrorText(
        "The virus scanner found malware in this attachment, so you can't download it.",
        "Don't open it. Ask the sender for a clean copy.",
        _NO,
    ),
    ErrorType.TEMPLATE_ERROR: ErrorText(
        "The template can't be rendered: a required variable is missing (listed in `missing`), or its syntax is wrong.",
        "Send the variables, or correct the template. `POST /v1/templates/{id}/preview` reports the same errors.",
        _NO,
    ),
    ErrorType.THRESHOLD_REFUSED: ErrorText(
        "The alert's threshold is above the maximum (`limit`).",
        "Set `threshold` to `limit` or lower.",
        _NO,
    ),
    ErrorType.RATE_LIMITED: ErrorText(
        "You sent too many requests per second, or too many at the same time.",
        "Wait, then send more slowly. The `RateLimit` header of each response says how many requests are left.",
        _AFTER,
    ),
    ErrorType.DAILY_LIMIT_REACHED: ErrorText(
        "You've reached today's limit of `limit` emails. It rises automatically while few emails bounce.",
        "Retry after midnight UTC, or ask the operator for a higher limit.",
        _AFTER,
    ),
    ErrorType.MONTHLY_LIMIT_REACHED: ErrorText(
        "You've used this month's allowance of `allowance` emails.",
        "Upgrade your plan, or retry on the first of next month (UTC).",
        _AFTER,
    ),
    ErrorType.PLATFORM_PAUSED: ErrorText(
        "The operator has paused sending on this instance.",
        "Keep the message and retry later. Ask the operator if the pause is unexpected.",
        _AFTER,
    ),
    ErrorType.TOO_MANY_STREAMS: ErrorText(
        "Too many live tails are open for your account or on this server.",
        "Close one, or read the events with `GET /v1/events`.",
        _AFTER,
    ),
    ErrorType.DESTINATION_LOCKED: ErrorText(
        "Three verifications in a row for this address ended without the right code.",
        "Wait an hour. Someone may be guessing codes.",
        _AFTER,
    ),
    ErrorType.UNAVAILABLE: ErrorText(
        "A part of the instance is unreachable, starting or stopping. The request was probably not accepted.",
        "Retry after a few seconds. For a send, reuse the same `idempotencyKey`, so that it can't be sent twice.",
        _AFTER,
    ),
}
