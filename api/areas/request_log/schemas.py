"""Requests and replies of the request log."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from engine.base.errors import ErrorType

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_MOMENT = Meta(max_length=40, examples=["2026-11-20T08:09:10Z"], extra_json_schema={"format": "date-time"})


class RequestsQuery(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """The query of `GET /v1/requests`: newest first; every given filter must match."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    before: Annotated[str, Meta(max_length=100, description="`nextCursor` of the previous page")] | None = None
    status: Annotated[
        str,
        Meta(
            pattern=r"^([1-5]xx|[1-5][0-9][0-9])$", max_length=3, description="A status, or a class of them",
            examples=["4xx"],
        ),
    ] | None = None  # fmt: skip
    key: Annotated[str, Meta(max_length=100, description="The id of the API key")] | None = None
    by: (
        Annotated[
            Literal["key", "person", "agent"],
            Meta(description="Sent with an API key, by a signed-in person, or by an agent over MCP, with its key"),
        ]
        | None
    ) = None
    method: Method | None = None
    path: Annotated[
        str, Meta(min_length=1, max_length=300, description="The beginning of the path", examples=["/v1/emails"])
    ] | None = None  # fmt: skip
    error_type: Annotated[ErrorType, Meta(description="The `type` of the error in the response")] | None = None
    from_: (
        Annotated[str, _MOMENT, Meta(description="Completed at this time or later: ISO 8601, UTC, with `Z`")] | None
    ) = None
    until: Annotated[str, _MOMENT, Meta(description="Completed before this time: ISO 8601, UTC, with `Z`")] | None = (
        None
    )


class LoggedRequest(Struct, rename="camel", kw_only=True):
    """A request that the API answered. `createdAt` is the time of the answer, `ms` the time until its head."""

    id: str
    created_at: str
    method: str
    path: Annotated[str, Meta(description="Without the query; an address or token in it is shown as its parameter")]
    status: int
    ms: float
    key_id: Annotated[str | None, Meta(description="The API key; null for a signed-in person")]
    user_id: Annotated[str | None, Meta(description="The signed-in person; null for an API key")]
    request_id: Annotated[str, Meta(description="`X-Request-Id` of the response")]
    error_type: str | None
    agent: Annotated[str | None, Meta(description="The program that called over MCP, null without one")]


class RequestPage(Struct, rename="camel"):
    """Requests, newest first. `nextCursor` is null on the last page."""

    data: list[LoggedRequest]
    next_cursor: str | None
