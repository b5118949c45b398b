"""Check the filters of the request log, and shorten what it stores. Pure."""

import re
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from engine.accounts.request_log.types import RequestFilters
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.list_filters import LAST_ID, first_id, without_nul

KEPT: Final = timedelta(days=7)
MAX_PATH: Final = 300  # characters kept
MAX_MICROSECONDS: Final = 2**31 - 1  # 36 minutes, the largest integer of the column
# Path parameters that name a person or open something; the log shows their name instead.
PRIVATE_PARAMETERS: Final = frozenset({"address", "email", "token"})
MAX_AGENT: Final = 100  # characters kept
MCP_CLIENT: Final = "waybill-mcp/"  # the beginning of the User-Agent of our MCP server: `waybill-mcp/1.0 (client 2.1)`
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


def is_private(template: str) -> bool:
    """Return True if paths of this form hold a parameter that the log must not keep."""
    return not PRIVATE_PARAMETERS.isdisjoint(_PARAMETER.findall(template))


def stored_path(path: str) -> str:
    """Return a path as the log keeps it: cut to MAX_PATH, with U+FFFD for what PostgreSQL cannot store as text."""
    path = path[:MAX_PATH]
    if path.isprintable():  # true of nearly every path, and the fastest test
        return path
    return path.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def agent_of(user_agent: str | None) -> str | None:
    """Return the agent that a User-Agent of our MCP server names, None for any other."""
    if user_agent is None or not user_agent.startswith(MCP_CLIENT):
        return None
    client = user_agent.partition("(")[2].rstrip().removesuffix(")")
    return agent_name(client or user_agent)


def agent_name(text: str) -> str | None:
    """Return the name of a client as it is stored: printable, at most MAX_AGENT characters; None if nothing is left."""
    return "".join(one for one in text[:MAX_AGENT] if one.isprintable()).strip() or None


def filters(
    *,
    at: datetime,
    before: UUID | None,
    status: str | None,
    key: str | None,
    method: str | None,
    path: str | None,
    error_type: str | None,
    by: str | None,
    since: str | None,
    until: str | None,
) -> RequestFilters:
    """Return the filters of a list request at time `at`; raise the 400 that names the invalid parameter."""
    without_nul("path", path or "")
    oldest = ids.floor_of(clock.milliseconds(at - KEPT))
    high = LAST_ID if until is None else first_id("until", until)
    first, last = (0, 999) if status is None else _statuses(status)
    return RequestFilters(
        low=oldest if since is None else max(oldest, first_id("from", since)),
        high=high if before is None else min(high, before),
        first_status=first,
        last_status=last,
        key=None if key is None else _key(key),
        method=method,
        path=path,
        error_type=error_type,
        by_key=None if by is None else by != "person",
        by_agent=True if by == "agent" else None,
    )


def too_slow(wanted: RequestFilters) -> Refusal | None:
    """Return the 400 for a list that timed out, naming the filter to narrow; None if no filter causes it."""
    name = wanted.scans
    if name is None:
        return None
    return Refusal(
        ErrorType.INVALID_REQUEST,
        f"The filter `{name}` would read too many requests. Narrow the period with `from` and `until`.",
        field=name,
    )


def _statuses(text: str) -> tuple[int, int]:
    """Return the first and last status of a class such as `4xx`, or of one status; the schema has checked the form."""
    if text.endswith("xx"):
        return int(text[0]) * 100, int(text[0]) * 100 + 99
    return int(text), int(text)


def _key(text: str) -> UUID:
    try:
        return ids.parse_id(ids.Kind.API_KEY, text)
    except ids.WrongId as error:
        raise invalid("key", f"`key` is not the id of an API key: {error}.") from None
