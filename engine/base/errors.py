"""Define every error that a client of the API can get: its type, HTTP status and fields, in one table.

Clients branch on the type, which is stable; the message says what to do and may change. All areas raise
`Refusal`; the API and the SMTP relay turn it into their replies.
"""

from enum import StrEnum
from typing import NamedTuple, TypeVar

MAX_SHOWN = 100  # characters of a client's name or value in an error
MAX_MESSAGE = 2_000  # characters of the sentences
MAX_FIELD = 400  # characters of a text beside them: a path of several names, an address (at most 320)


Row = TypeVar("Row")


class RefusalEntry(NamedTuple):
    """The HTTP status of one error type, and the extra fields that its error body may carry.

    `former` are earlier names of fields, each with the present one: error bodies carry both.
    """

    status: int
    fields: tuple[str, ...] = ()
    former: tuple[tuple[str, str], ...] = ()


class ErrorType(StrEnum):
    """The stable, machine-readable names of the errors."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    TOTP_REQUIRED = "totp_required"
    INVALID_CREDENTIALS = "invalid_credentials"
    FORBIDDEN = "forbidden"
    EMAIL_UNVERIFIED = "email_unverified"
    CSRF_FAILED = "csrf_failed"
    ACCOUNT_SUSPENDED = "account_suspended"
    PLAN_LIMIT_REACHED = "plan_limit_reached"
    DOMAIN_NOT_VERIFIED = "domain_not_verified"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TERMINAL_STATE = "terminal_state"
    INVALID_STATE = "invalid_state"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    INVALID_ADDRESS = "invalid_address"
    SUPPRESSED = "suppressed"
    ATTACHMENT_BLOCKED = "attachment_blocked"
    ATTACHMENT_INFECTED = "attachment_infected"
    TEMPLATE_ERROR = "template_error"
    THRESHOLD_REFUSED = "threshold_refused"
    RATE_LIMITED = "rate_limited"
    DAILY_LIMIT_REACHED = "daily_limit_reached"
    MONTHLY_LIMIT_REACHED = "monthly_limit_reached"
    PLATFORM_PAUSED = "platform_paused"
    TOO_MANY_STREAMS = "too_many_streams"
    DESTINATION_LOCKED = "destination_locked"
    UNAVAILABLE = "unavailable"


REGISTRY: dict[ErrorType, RefusalEntry] = {
    ErrorType.INVALID_REQUEST: RefusalEntry(400, ("field", "limit", "line", "column")),
    ErrorType.UNAUTHORIZED: RefusalEntry(401),
    ErrorType.TOTP_REQUIRED: RefusalEntry(401, ("ticket",)),
    ErrorType.INVALID_CREDENTIALS: RefusalEntry(401),
    ErrorType.FORBIDDEN: RefusalEntry(403, ("scope",)),
    ErrorType.EMAIL_UNVERIFIED: RefusalEntry(403),
    ErrorType.CSRF_FAILED: RefusalEntry(403),
    ErrorType.ACCOUNT_SUSPENDED: RefusalEntry(403),
    ErrorType.PLAN_LIMIT_REACHED: RefusalEntry(403, ("resource", "limit", "used")),
    ErrorType.DOMAIN_NOT_VERIFIED: RefusalEntry(403, ("domain",)),
    ErrorType.NOT_FOUND: RefusalEntry(404),
    ErrorType.METHOD_NOT_ALLOWED: RefusalEntry(405),
    ErrorType.CONFLICT: RefusalEntry(409, ("id",)),
    ErrorType.TERMINAL_STATE: RefusalEntry(409, ("state",), former=(("status", "state"),)),
    ErrorType.INVALID_STATE: RefusalEntry(409, ("state",), former=(("status", "state"),)),
    ErrorType.PAYLOAD_TOO_LARGE: RefusalEntry(413, ("limit",)),
    ErrorType.UNSUPPORTED_MEDIA_TYPE: RefusalEntry(415),
    ErrorType.INVALID_ADDRESS: RefusalEntry(422, ("address", "field")),
    ErrorType.SUPPRESSED: RefusalEntry(422, ("address", "reason")),
    ErrorType.ATTACHMENT_BLOCKED: RefusalEntry(422, ("filename",)),
    ErrorType.ATTACHMENT_INFECTED: RefusalEntry(422),
    ErrorType.TEMPLATE_ERROR: RefusalEntry(422, ("missing", "template", "version")),
    ErrorType.THRESHOLD_REFUSED: RefusalEntry(422, ("limit",)),
    ErrorType.RATE_LIMITED: RefusalEntry(429),
    ErrorType.DAILY_LIMIT_REACHED: RefusalEntry(429, ("limit", "sentToday")),
    ErrorType.MONTHLY_LIMIT_REACHED: RefusalEntry(429, ("limit", "sentThisMonth", "allowance")),
    ErrorType.PLATFORM_PAUSED: RefusalEntry(429),
    ErrorType.TOO_MANY_STREAMS: RefusalEntry(429, ("limit",)),
    ErrorType.DESTINATION_LOCKED: RefusalEntry(429),
    ErrorType.UNAVAILABLE: RefusalEntry(503),
}


def shown(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text of the client for an error: at most `most` characters, the last of them "…" if it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault
    """A request that the service declines, with the reason and its details.

    `fields` go beside `type` and `message` into the error body; `retry_after_s` becomes the `Retry-After` header. Long
    texts are cut here, so that no error echoes megabytes of a request.
    """

    def __init__(self, kind: ErrorType, message: str, *, retry_after_s: int | None = None, **fields: object) -> None:
        self.message = shown(message, MAX_MESSAGE)
        super().__init__(self.message)
        self.kind = kind
        self.fields = {name: _cut(value) for name, value in fields.items()}
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """Return the HTTP status of this error type."""
        return REGISTRY[self.kind].status

    def envelope(self, docs: str = "") -> dict[str, dict[str, object]]:
        """Return the error body of the HTTP response; `docs` is the address of the page that explains the errors."""
        link = {"docs": f"{docs}#{self.kind.value}"} if docs else {}
        former = {old: self.fields[new] for old, new in REGISTRY[self.kind].former if new in self.fields}
        return {"error": {"type": self.kind.value, "message": self.message, **link, **self.fields, **former}}


def _cut(value: object) -> object:
    if isinstance(value, str):
        return shown(value, MAX_FIELD)
    return [_cut(one) for one in value] if isinstance(value, list) else value


class NoRoom(Refusal):
    """The database server has no disk space left: HTTP 503; at the SMTP relay a reply with code 4.3.1 (RFC 3463)."""

    def __init__(self) -> None:
        super().__init__(
            ErrorType.UNAVAILABLE,
            "Insufficient system storage, so the request was not accepted. Retry later; for a send, reuse the same "
            "idempotencyKey.",
            retry_after_s=30,
        )


def invalid(field: str, message: str) -> Refusal:
    """Return a 400 that names the wrong field."""
    return Refusal(ErrorType.INVALID_REQUEST, message, field=field)


def existing(row: Row | None, what: str) -> Row:
    """Return the row; raise the 404 of `not_found` if there is none."""
    if row is None:
        raise not_found(what)
    return row


def not_found(what: str) -> Refusal:
    """Return a 404 for an id that does not exist, belongs to another account or names another type of object."""
    where = "" if what == "account" else " in this account"
    return Refusal(ErrorType.NOT_FOUND, f"No such {what}{where}. Check the id.")


def unavailable(retry_after_s: int = 5) -> Refusal:
    """Return a 503: PostgreSQL or another dependency does not answer, and nothing was accepted."""
    return Refusal(
        ErrorType.UNAVAILABLE,
        "Temporarily unavailable; the request was probably not accepted. Retry in a few seconds. For a send, reuse the "
        "same idempotencyKey.",
        retry_after_s=retry_after_s,
    )
