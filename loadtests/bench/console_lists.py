"""The requests by which the console reads lists: each list, each filter and each search, for one large account.

All GET operations that the console's modules name and that need no id in the path are among them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from api.console import assets
from loadtests.kit.http_client import ApiClient

PAGE: Final = 50
_NAMED: Final = re.compile(r'"GET (/v1/[^"\s{]*)"')
# Operations that are no lists: they stream, export everything, or are about the person or the host.
_NO_LISTS: Final = re.compile(r"/(export|tail|verify)$|^/v1/(auth/|instance$)")
_CURSORS: Final = {"/v1/events": "after", "/v1/analytics/delivery": "cursor"}
_FILTERS: Final[Mapping[str, tuple[dict[str, str], ...]]] = {
    "/v1/messages": (
        {"status": "bounced"}, {"status": "scheduled"}, {"domain": "past.test"}, {"stream": "transactional"},
        {"tag": "order"}, {"metadata": "order:4711"}, {"source": "smtp"}, {"source": "api"}, {"template": "receipt"},
        {"recipientDomain": "d7.test"}, {"scope": "recipient"}, {"search": "your order"}, {"search": "order 123456"},
        {"search": "nowhere"}, {"status": "bounced", "search": "order 500"},
    ),
    "/v1/suppressions": (
        {"reason": "complaint"}, {"reason": "manual"}, {"search": "d7.test"}, {"search": "person4711@"},
        {"search": "nowhere"}, {"reason": "complaint", "search": "4710"},
    ),
    "/v1/events": ({"type": "message.bounced"},),
    "/v1/bounces": (
        {"scope": "recipient"}, {"class": "user_unknown"}, {"class": "mailbox_full"},
        {"recipientDomain": "d50.test"},
    ),
    "/v1/bounces/classes": ({"recipientDomain": "d50.test"},),
    "/v1/contacts": ({"search": "d7.test"}, {"search": "person4711@"}, {"search": "nowhere"}),
    "/v1/requests": (
        {"status": "422"}, {"method": "GET"}, {"path": "/v1/emails"},
    ),
    "/v1/stats/messages": ({"days": "28"},),
    "/v1/operator/accounts": ({"search": "past 0"}, {"search": "nowhere"}),
}  # fmt: skip


def requests(recipient: str) -> Iterator[str]:
    """Yield the paths to read; `recipient` is an address that the account has written to."""
    for path in sorted(_paths()):
        yield path
        for query in _FILTERS.get(path, ()):
            yield f"{path}?{urlencode(query)}"
    yield f"/v1/messages?{urlencode({'to': recipient})}"


async def second_page(client: ApiClient, path: str) -> str | None:
    """Return the path of a list's second page; None if it has no such page."""
    page: Any = (await client.call("GET", path)).json
    cursor = page.get("nextCursor") if isinstance(page, dict) else None
    if cursor is None:
        return None
    parameter = _CURSORS.get(path.partition("?")[0], "before")
    return f"{path}{'&' if '?' in path else '?'}{urlencode({parameter: cursor})}"


def _paths() -> set[str]:
    modules = (assets.FILES / "app").rglob("*.js")
    named = {path for module in modules for path in _NAMED.findall(module.read_text("utf-8"))}
    return {path for path in named if not _NO_LISTS.search(path)}
