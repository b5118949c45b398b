"""Look up the DNS records of a domain within a bounded time.

Nothing is cached between checks, so that a newly published record is found.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar, cast

from dns.rdtypes.ANY.CNAME import CNAME

from engine.base.settings import HostPort, Settings
from engine.sending.domains.types import Place
from engine.store.dns_exchange import RecordType
from engine.store.resolver import Answered, NoData, NxDomain, RecordReader, Records, Resolver

QUERY_S: Final = 2.0
LOOKUP_S: Final = 6.0
CHECK_S: Final = 8.0  # all lookups of a domain together
MAX_FOUND: Final = 30  # records kept of one name and type
MAX_TEXT: Final = 1_024  # characters kept of one record, enough for an RSA-4096 key

T = TypeVar("T")


class RecordLookup(Protocol):
    """Look up DNS records; tests replace it."""

    async def look_up(self, place: Place) -> tuple[str, ...] | None:
        """Return the records of a name and type in canonical form: () if there are none, None if DNS gave no answer."""


class SetupResolver(Resolver):
    """Query the configured resolvers for one check or one round of checks; `close` it afterwards."""

    def __init__(self, servers: Sequence[HostPort]) -> None:
        super().__init__(servers, query_timeout_s=QUERY_S, budget_s=LOOKUP_S)  # a request may be waiting

    async def look_up(self, place: Place) -> tuple[str, ...] | None:
        """Return joined TXT strings, MX as `10 host`, CNAME targets; names in lower case without the final dot."""
        kind, name = place
        if kind == "TXT":
            return _texts(await self.txt(name), lambda value: value.decode("utf-8", "replace"))
        if kind == "MX":
            return _texts(await self.mx(name), lambda mx: f"{mx.preference} {mx.host or '.'}")
        return _texts(await self._look_up(name, cast("RecordType", "CNAME"), RecordReader(_target)), str)


def for_checks(settings: Settings) -> SetupResolver:
    """Return a resolver with the configured servers and an empty cache."""
    return cast("SetupResolver", SetupResolver.from_settings(settings))


async def look_up_all(
    asked: RecordLookup, places: Iterable[Place], within_s: float = CHECK_S
) -> dict[Place, tuple[str, ...] | None]:
    """Look up all places concurrently; the value is None for those without an answer in time."""
    wanted = list(places)
    if not wanted:
        return {}
    tasks = [asyncio.ensure_future(asked.look_up(place)) for place in wanted]
    try:
        await asyncio.wait(tasks, timeout=within_s)
        return {place: task.result() if task.done() else None for place, task in zip(wanted, tasks, strict=True)}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _texts(answer: Answered[T], text: Callable[[T], str]) -> tuple[str, ...] | None:
    if isinstance(answer, Records):
        return tuple(sorted({_clean(text(value)) for value in answer.values})[:MAX_FOUND])
    return () if isinstance(answer, NoData | NxDomain) else None


def _clean(text: str) -> str:
    """Limit the length of a record and replace control characters: owners control the text, PostgreSQL takes no NUL."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:MAX_TEXT])


def _target(rdata: object) -> str:
    assert isinstance(rdata, CNAME)
    return rdata.target.to_text(omit_final_dot=True).lower()
