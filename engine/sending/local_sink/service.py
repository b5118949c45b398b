"""List and find the mail that the local sink received for an account.

The envelope sender of each mail is a return path with a keyed digest, which names the message; the message names the
account. Mail with any other sender belongs to nobody.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.secrets import DerivedKey
from engine.base.settings import Settings
from engine.mail import return_path
from engine.sending.local_sink import store
from engine.sending.local_sink.types import SinkFilters, SinkMail, SinkMailPage
from engine.store import sink_folder
from engine.store.sink_folder import SinkEntry

BATCH: Final = 500  # entries looked up in the database at once
MAX_LOOKED_AT: Final = 20_000  # entries for one page: those of other accounts may stand between
MAX_OF_MESSAGE: Final = 1_000  # mails of one message: 50 recipients, and repeated deliveries
POLL_S: Final = 0.05  # between two looks at the size of the index, in a waiting request
CLOCK_SLACK: Final = timedelta(minutes=5)
WHAT: Final = "mail in the local sink"


def folder_of(settings: Settings) -> Path:
    """Return the folder of the local sink; raise the 404 outside of local mode."""
    if settings.delivery != "local":
        raise Refusal(
            ErrorType.NOT_FOUND,
            f"This instance has no local sink: WAYBILL_DELIVERY is {settings.delivery}, so mail is delivered.",
        )
    return settings.state / "sink"


async def page(
    pool: asyncpg.Pool, settings: Settings, account: UUID, wanted: SinkFilters, *, limit: int
) -> SinkMailPage:
    """Return a page of the account's mail, newest first; if little of much matches, a short one with more to come."""
    folder, key = folder_of(settings), return_path.key_of(settings.pepper)
    if wanted.message_id is not None:
        entries = await asyncio.to_thread(_of_message, folder, wanted.message_id)
        older = [mail for mail in await _own(pool, account, key, entries, wanted) if _is_before(mail, wanted)]
        return _cut(older, limit, None)
    found: list[SinkMail] = []
    before = wanted.before
    for _ in range(MAX_LOOKED_AT // BATCH):
        entries = await asyncio.to_thread(sink_folder.newest_before, folder, before, BATCH)
        found += await _own(pool, account, key, entries, wanted)
        if len(found) > limit or len(entries) < BATCH or wanted.is_over(entries[-1]):
            return _cut(found, limit, None)
        before = sink_folder.position_of(entries[-1].id)
    return _cut(found, limit, entries[-1].id)


async def waited_page(
    pool: asyncpg.Pool, settings: Settings, account: UUID, wanted: SinkFilters, *, limit: int, wait_s: float
) -> SinkMailPage:
    """Return a page as `page` does; while no mail matches, wait up to `wait_s` seconds for one to arrive."""
    folder, loop = folder_of(settings), asyncio.get_running_loop()
    ends_at = loop.time() + wait_s
    while True:
        seen = sink_folder.version_of(folder)
        found = await page(pool, settings, account, wanted, limit=limit)
        if found.mails or found.cursor is not None:
            return found
        while seen == sink_folder.version_of(folder):
            left_s = ends_at - loop.time()
            if left_s <= 0:
                return found
            await asyncio.sleep(min(left_s, POLL_S))


async def empty(pool: asyncpg.Pool, settings: Settings, account: UUID) -> None:
    """Delete all mails of the account from the sink."""
    folder, key = folder_of(settings), return_path.key_of(settings.pepper)
    chosen: set[str] = set()
    before = None
    while entries := await asyncio.to_thread(sink_folder.newest_before, folder, before, BATCH):
        chosen |= {mail.entry.id for mail in await _own(pool, account, key, entries, SinkFilters())}
        before = sink_folder.position_of(entries[-1].id)
    await asyncio.to_thread(sink_folder.empty, folder, chosen)


def _cut(found: list[SinkMail], limit: int, cursor: str | None) -> SinkMailPage:
    """Return the first `limit` mails as a page; `cursor` applies if there are no more."""
    return SinkMailPage(found[:limit], found[limit - 1].entry.id if len(found) > limit else cursor)


async def one(pool: asyncpg.Pool, settings: Settings, account: UUID, entry_id: str) -> SinkMail:
    """Return one mail of the account; raise the 404 for any other."""
    folder, key = folder_of(settings), return_path.key_of(settings.pepper)
    position = sink_folder.position_of(entry_id)
    entry = None if position is None else await asyncio.to_thread(sink_folder.find, folder, position)
    own = [] if entry is None else await _own(pool, account, key, [entry], SinkFilters())
    if not own:
        raise not_found(WHAT)
    return own[0]


async def forget(pool: asyncpg.Pool, settings: Settings, account: UUID, addresses: Sequence[str]) -> int:
    """Delete the account's mails to any of the addresses (lower case), and mask these in the index; return how many."""
    folder, key = folder_of(settings), return_path.key_of(settings.pepper)
    named = await asyncio.to_thread(sink_folder.naming, folder, addresses)
    origins = {entry.id: origin for entry in named if (origin := return_path.origin(key, entry.sender)) is not None}
    mine = await store.own(pool, account, {origin.message_id for origin in origins.values()})
    chosen = [entry for entry in named if entry.id in origins and origins[entry.id].message_id in mine]
    await asyncio.to_thread(sink_folder.forget, folder, chosen, addresses)
    return len(chosen)


async def content(settings: Settings, mail: SinkMail) -> bytes:
    """Return the octets of a mail; raise the 404 if the sink did not keep them."""
    return existing(await asyncio.to_thread(sink_folder.content_of, folder_of(settings), mail.entry), WHAT)


async def beginnings(settings: Settings, mails: Iterable[SinkMail], octets: int) -> list[bytes]:
    """Return the first octets of each mail, for its header; empty where the sink did not keep it."""
    folder = folder_of(settings)

    def read() -> list[bytes]:
        return [sink_folder.content_of(folder, mail.entry, octets) or b"" for mail in mails]

    return await asyncio.to_thread(read)


def _of_message(folder: Path, message_id: UUID) -> list[SinkEntry]:
    """Return the entries of one message, newest first."""
    text = b'"from":"' + return_path.beginning_of(message_id).encode()
    since = clock.iso(clock.at_milliseconds(ids.milliseconds_of(message_id)) - CLOCK_SLACK)
    return sink_folder.with_text(folder, text, since=since, most=MAX_OF_MESSAGE)[::-1]


async def _own(
    pool: asyncpg.Pool, account: UUID, key: DerivedKey, entries: Iterable[SinkEntry], wanted: SinkFilters
) -> list[SinkMail]:
    """Return the mails of the account among these entries that match, in the same order."""
    named = []
    for entry in entries:
        origin = return_path.origin(key, entry.sender) if wanted.takes(entry) else None
        if origin is not None:
            named.append(SinkMail(entry, origin.message_id))
    mine = await store.own(pool, account, {mail.message_id for mail in named})
    return [mail for mail in named if mail.message_id in mine]


def _is_before(mail: SinkMail, wanted: SinkFilters) -> bool:
    position = sink_folder.position_of(mail.entry.id)
    return wanted.before is None or (position is not None and position < wanted.before)
