"""Define the rows and filters of the request log."""

from uuid import UUID

from msgspec import Struct


class RequestRow(Struct, frozen=True):
    """An answered request."""

    id: UUID
    key_id: UUID | None
    user_id: UUID | None
    method: str
    path: str
    status: int
    microseconds: int
    request_id: str
    error_type: str | None
    agent: str | None


class RequestFilters(Struct, frozen=True, kw_only=True):
    """The filters of a list of requests; None means no filter. Ids are in [low, high), statuses are inclusive."""

    low: UUID
    high: UUID
    first_status: int = 0
    last_status: int = 999
    key: UUID | None = None
    method: str | None = None
    path: str | None = None  # its beginning
    error_type: str | None = None
    by_key: bool | None = None  # False: by a signed-in person
    by_agent: bool | None = None

    @property
    def only_failed(self) -> bool:
        """Return True if the index of failed requests holds all that match."""
        return self.first_status >= 400 or self.error_type is not None

    @property
    def scans(self) -> str | None:
        """Name the filter that may skip any number of requests that do not match, or None."""
        names = {
            "errorType": self.error_type, "status": self.first_status or None, "path": self.path, "key": self.key,
            "method": self.method, "by": self.by_key if self.by_agent is None else self.by_agent,
        }  # fmt: skip
        return next((name for name, value in names.items() if value is not None), None)
