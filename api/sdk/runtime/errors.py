"""The exceptions of the client.

Every exception derives from `WaybillError`. A refusal of the API is an `ApiError`; each `error.type` has a class of its
own, such as `SuppressedError` for `suppressed`. Catch the class, never compare messages.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class WaybillError(Exception):
    """Base class of all exceptions of this client. They can be pickled and copied, as process pools do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


class ConnectionFailedError(WaybillError):
    """The request got no complete answer. Unless it is safe to repeat, the service may have carried it out."""


class RequestTimeoutError(ConnectionFailedError):
    """The service did not answer in time."""


class EventsLostError(WaybillError):
    """The account log no longer holds all events between the last one of a tail and the present."""


class TailClosedError(WaybillError):
    """The service closed the tail, and a new connection would not help; `reason` is that of its `bye` event."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WebhookVerificationError(WaybillError):
    """A webhook request is not from the service, or too old. `reason` is a short, stable word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ApiError(WaybillError):
    """A refusal of the API.

    `status` is the HTTP status, `type` the stable name of the error, `fields` the other members of the error object,
    `request_id` the id of the request in the service's logs, and `retry_after` the seconds to wait, if stated.
    """

    TYPE: ClassVar[str] = ""
    FIELDS: ClassVar[tuple[str, ...]] = ()
    CLASSES: ClassVar[dict[str, type["ApiError"]]] = {}

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str = "",  # noqa: A002 - the API's own name
        fields: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.fields = dict(fields or {})
        self.request_id = request_id
        self.retry_after = retry_after
        self.docs: str | None = self.fields.get("docs")  # the page that explains the error
        for name in self.FIELDS:
            setattr(self, _CAMEL.sub("_", name).lower(), self.fields.get(name))

    def __init_subclass__(cls) -> None:
        if cls.TYPE:
            ApiError.CLASSES[cls.TYPE] = cls

    def __str__(self) -> str:
        request = f"request {self.request_id}" if self.request_id else ""
        shown = [part for part in (self.type, f"HTTP {self.status}", request) if part]
        return f"{self.message} ({', '.join(shown)})"


def _restored(kind: type[WaybillError], args: tuple[Any, ...], state: dict[str, Any]) -> WaybillError:
    """Return a copy of an exception, without its constructor: `args` hold the message alone."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def api_error(status: int, answer: object, *, request_id: str | None, retry_after: float | None) -> ApiError:
    """Return the exception for an error answer; `answer` is its decoded body, or None if that is not JSON."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        message = f"The server answered {status} without an error object."
        return ApiError(message, status=status, request_id=request_id, retry_after=retry_after)
    kind = str(error.get("type", ""))
    return ApiError.CLASSES.get(kind, ApiError)(
        str(error.get("message", "")),
        status=status,
        type=kind,
        fields={name: value for name, value in error.items() if name not in {"type", "message"}},
        request_id=request_id,
        retry_after=retry_after,
    )
