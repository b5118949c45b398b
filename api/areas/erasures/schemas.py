"""Requests and replies of erasing the data of one recipient."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class ErasureIn(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The address to erase, for `POST /v1/erasures`."""

    address: Annotated[str, Meta(min_length=3, max_length=320, examples=["ann@example.com"])]


class Erasure(Struct, rename="camel", kw_only=True):
    """The receipt of an erasure. It never shows the address."""

    id: str
    state: Literal["queued", "running", "completed"]
    counts: Annotated[
        dict[str, int],
        Meta(description="Numbers by kind, such as `messages` or `logEntries`; kinds without any are left out"),
    ]
    requested_at: str
    started_at: str | None
    finished_at: str | None


class ErasurePage(Struct, rename="camel"):
    """Erasures, newest first."""

    data: list[Erasure]
    next_cursor: str | None
