"""Check a domain's DNS records and apply the result: domain status, signing keys, events, and a mail if it failed.

Without a DNS answer nothing changes. A verified domain fails only after two checks without its required record. At most
one account has a name verified: if DNS shows another account's key instead of the holder's, the name moves to that
account; if it shows both, it stays.
"""

import asyncio
import math
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Final, cast
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, existing, not_found
from engine.base.events import AccountEvent
from engine.base.settings import Settings
from engine.cells import claims
from engine.cells.claims import ClaimKind
from engine.cells.directory import ClaimedElsewhere
from engine.ledger import heads, log
from engine.ledger.events import append_locked
from engine.sending.domains import drift, lookups, mistakes, records, rules, sample, store
from engine.sending.domains.lookups import RecordLookup
from engine.sending.domains.records import Answers
from engine.sending.domains.rules import DomainState, DomainVerdict, Rival
from engine.sending.domains.service import identity
from engine.sending.domains.types import (
    CheckedRecord,
    DomainKeyRow,
    DomainRow,
    DomainStatus,
    Place,
    RecordFinding,
    RecordStatus,
    ReturnPathState,
)
from engine.store import caches
from engine.store.concurrency_limiter import ConcurrencyLimiter
from engine.store.database_errors import UniqueViolation
from engine.store.queries import Conn

MAX_CHECKS: Final = 24  # concurrent checks of a process, with a dozen queries each
AGAIN_S: Final = 0.5  # between an account's two checks of one name, to spare the owner's name servers
MAX_WAIT_S: Final = 5.0
_MAX_NAMES: Final = 1_000
MAX_SHOWN_RECORDS: Final = 5  # records of one name in an event, which is posted to webhooks

NOT_FOUND_TWICE: Final = "The required record was missing on two checks in a row."
PASSED_OVER: Final = "DNS shows another account's key for this name, which has moved to that account."

SAMPLE_FAILED: Final = (
    "The required record is published, but a verifier rejects a sample that the domain's key signed: {why}. Publish the"
    " record exactly as shown; if it is, contact support."
)

_checks = ConcurrencyLimiter("checks of domains", at_once=MAX_CHECKS, each=8)
_next: dict[tuple[str, UUID], float] = {}  # name and account -> time of the next allowed check (loop time)


class Verified(Struct, frozen=True):
    """A domain after a check; `notice` explains an inconclusive check, or why signatures fail all the same."""

    domain: DomainRow
    keys: list[DomainKeyRow]
    records: list[CheckedRecord]
    notice: str | None = None


class _Contest(Struct, frozen=True):
    """The domain of the same name that another account has verified, and the state of its key in DNS."""

    rival: Rival = "none"
    holder: DomainRow | None = None
    found: tuple[CheckedRecord, ...] = ()
    elsewhere: bool = False  # an account of another cell has it verified


async def verify_now(pool: asyncpg.Pool, settings: Settings, account: UUID, domain: UUID) -> Verified:
    """Check a domain on request; raise the 404 for an unknown domain.

    Takes at most 8 s of DNS. Raises the 429 if the name is checked too often or the account runs too many checks at
    once.
    """
    row = existing(await store.FIND.first(pool, account, domain), "domain")
    await _wait_turn(row.name, account)
    async with _checks.of(account, wait_s=MAX_WAIT_S):
        resolver = lookups.for_checks(settings)
        try:
            return await _with_sample(pool, settings, await verify(pool, settings, row, resolver))
        finally:
            await resolver.close()


async def verify(pool: asyncpg.Pool, settings: Settings, domain: DomainRow, asked: RecordLookup) -> Verified:
    """Check a domain: query DNS, decide, store. Raise the 404 if it was removed in the meantime."""
    keys = await store.PUBLISHED.fetch(pool, domain.id)
    wanted = records.wanted_of(domain, keys, identity(settings))
    ends = asyncio.get_running_loop().time() + lookups.CHECK_S
    holder = await store.HOLDER.first(pool, domain.name, domain.id)
    rival_keys = await store.PUBLISHED.fetch(pool, holder.id) if holder else []
    places = records.places(wanted, domain.name) | _rival_places(domain.name, rival_keys)
    answers = await lookups.look_up_all(asked, places)
    checks = records.checked(wanted, domain.name, answers, records.decoded(domain.findings))
    left_s = max(0.0, ends - asyncio.get_running_loop().time())
    elsewhere = await lookups.look_up_all(asked, mistakes.appended_places(checks, domain.name), left_s)
    checks = mistakes.located(checks, domain.name, elsewhere)
    contest = _contest(holder, rival_keys, answers)
    if domain.status != "verified" and _is_published(checks):
        contest = await _claimed(domain, contest)
    try:
        return await _write(pool, settings, domain, keys, checks, contest)
    except UniqueViolation:  # another account was verified between the lookup and the write
        contest = _Contest("unsure", await store.HOLDER.first(pool, domain.name, domain.id))
        return await _write(pool, settings, domain, keys, checks, contest)


def _is_published(checks: Sequence[CheckedRecord]) -> bool:
    return any(one.wanted.purpose == "dkim" and one.wanted.required and one.finding.status == "ok" for one in checks)


async def _claimed(domain: DomainRow, contest: _Contest) -> _Contest:
    """Claim the name for this cell before the domain becomes verified; the claim of another cell is a contest."""
    try:
        await claims.claim(ClaimKind.DOMAIN, domain.name, domain.account_id)
    except ClaimedElsewhere:
        return _Contest("published", elsewhere=True)
    return contest


async def _with_sample(pool: asyncpg.Pool, settings: Settings, done: Verified) -> Verified:
    """Add a notice if the signing key's record is as wanted, but a sample signed with the key fails with it."""
    found = [one.finding for one in done.records if one.wanted.purpose == "dkim" and one.wanted.required]
    if settings.key_pepper is None or not found or found[0].status != "ok" or not found[0].found:
        return done
    key = await store.key_that_signs(pool, done.domain, pepper=settings.pepper)
    why = None if key is None else await asyncio.to_thread(sample.rejection, key, found[0].found[0])
    return done if why is None else structs.replace(done, notice=SAMPLE_FAILED.format(why=why))


def known_records(settings: Settings, domain: DomainRow, keys: Sequence[DomainKeyRow]) -> list[CheckedRecord]:
    """Return the records of a domain with the findings of the last check."""
    wanted = records.wanted_of(domain, keys, identity(settings))
    return records.known(wanted, domain.findings)


async def _write(
    pool: asyncpg.Pool,
    settings: Settings,
    domain: DomainRow,
    keys: Sequence[DomainKeyRow],
    checks: Sequence[CheckedRecord],
    contest: _Contest,
) -> Verified:
    """Decide on the current rows, under the locks of their accounts, and store the result."""
    at = clock.now()
    domains, accounts = {domain.id}, {domain.account_id}
    if contest.holder is not None:
        domains.add(contest.holder.id)
        accounts.add(contest.holder.account_id)
    async with pool.acquire() as connection, connection.transaction():
        locked = await heads.lock(connection, accounts)
        rows = {row.id: row for row in await store.LOCK.fetch(connection, list(domains))}
        row = rows.get(domain.id)
        if row is None or row.account_id not in locked:
            raise not_found("domain")
        now_keys = await store.PUBLISHED.fetch(connection, domain.id)
        holder = None if contest.holder is None else rows.get(contest.holder.id)
        rival = contest.rival if contest.elsewhere or (holder is not None and holder.status == "verified") else "none"
        state = DomainState(cast("DomainStatus", row.status), row.misses, row.vouched)
        verdict = rules.decide(state, now_keys, _by_selector(keys, now_keys, checks), rival)
        entries = _entries(row, now_keys, verdict, checks, at)
        path = rules.return_path_after(
            cast("ReturnPathState", row.return_path), row.return_path_misses, _return_path_status(row, checks)
        )
        if path[0] != row.return_path:
            entries.append(_return_path_changed(row, path[0], checks, at))
        if holder is not None and rival == "gone" and verdict.status == "verified":
            await store.MARK.execute(
                connection, holder.id, "failed"
            )  # first: a unique index allows one verified domain per name
            entries.append(_failed(holder, contest.found, at, reason=PASSED_OVER))
            await _mail_failed(connection, holder, PASSED_OVER, at)
        if verdict.status == "failed" and row.status == "verified":
            await _mail_failed(connection, row, NOT_FOUND_TWICE, at)
        await _save(connection, settings, row, now_keys, verdict, path, checks, at)
        if entries:
            await append_locked(connection, locked, entries)
        if entries or verdict.keys:
            for concerned in locked:
                await caches.bump(connection, "domains", concerned)
        after = await store.FIND.first(connection, row.account_id, row.id)
        assert after is not None
        shown = await store.PUBLISHED.fetch(connection, row.id)
    return Verified(after, shown, known_records(settings, after, shown), _notice(verdict, checks))


async def _save(
    connection: Conn,
    settings: Settings,
    row: DomainRow,
    keys: Sequence[DomainKeyRow],
    verdict: DomainVerdict,
    path: tuple[ReturnPathState, int],
    checks: Sequence[CheckedRecord],
    at: datetime,
) -> None:
    for selector, status in verdict.keys.items():
        until = at + rules.RETIRE_AFTER if status == "retiring" else None
        await store.MOVE_KEY.execute(connection, row.id, selector, status, until)
    drifted = drift.counts(checks)
    wait_s = rules.next_check_s(
        verdict,
        soon=(verdict.rotated is None and rules.next_pair(keys) is not None) or path[1] > 0 or drifted.suspected > 0,
        age=at - row.created_at,
        every_s=settings.domain_check_s,
        jitter=random.random(),
    )
    await store.SAVE_CHECK.execute(
        connection, row.id, at, verdict.status, verdict.misses, records.encoded(checks), wait_s, *path,
        drifted.drifted, drifted.unanswered,
    )  # fmt: skip


async def _mail_failed(connection: Conn, row: DomainRow, reason: str, at: datetime) -> None:
    public_id = ids.format_id(ids.Kind.DOMAIN, row.id)
    await store.MAIL_FAILED.execute(connection, row.account_id, row.name, reason, at, public_id)


async def _wait_turn(name: str, account: UUID) -> None:
    """Wait until the account may check the name again; raise the 429 if that takes too long.

    Each account has turns of its own: a stranger who adds the name can't keep its owner waiting.
    """
    turn = (name, account)
    now = asyncio.get_running_loop().time()
    if len(_next) >= _MAX_NAMES:
        for passed in [one for one, at in _next.items() if at < now]:
            del _next[passed]
    wait_s = max(0.0, _next.get(turn, now) - now)
    if wait_s > MAX_WAIT_S:
        raise Refusal(
            ErrorType.RATE_LIMITED,
            f"{name} was checked too often. DNS changes need minutes to spread; retry later.",
            retry_after_s=math.ceil(wait_s),
        )
    _next[turn] = now + wait_s + AGAIN_S
    await asyncio.sleep(wait_s)


def _rival_places(name: str, keys: Sequence[DomainKeyRow]) -> set[Place]:
    return {records.key_record(name, key).place for key in keys if key.is_rsa and key.status == "active"}


def _contest(holder: DomainRow | None, keys: Sequence[DomainKeyRow], answers: Answers) -> _Contest:
    """Return whether the holder's key is still published."""
    if holder is None:
        return _Contest()
    if holder.vouched:
        return _Contest("published", holder)
    signing = [records.key_record(holder.name, key) for key in keys if key.is_rsa and key.status == "active"]
    for wanted in signing:
        found = answers[wanted.place]
        if found is None:
            return _Contest("unsure", holder)
        status = records.status_of(wanted, found)
        return _Contest(
            "published" if status == "ok" else "gone", holder, (CheckedRecord(wanted, RecordFinding(status, found)),)
        )
    return _Contest("gone", holder)


def _by_selector(
    keys: Sequence[DomainKeyRow], now_keys: Sequence[DomainKeyRow], checks: Sequence[CheckedRecord]
) -> dict[str, RecordStatus | None]:
    """Return the status of each record whose key has not changed since the lookup."""
    same = {key.public_txt for key in keys} & {key.public_txt for key in now_keys}
    return {
        check.wanted.selector: None if check.finding.problem else check.finding.status
        for check in checks
        if check.wanted.selector is not None and check.wanted.value in same
    }


def _return_path_check(row: DomainRow, checks: Sequence[CheckedRecord]) -> CheckedRecord | None:
    """Return the check of the return path; None if its label was changed since the look-up.

    It is that of the alias, or that of the SPF record behind it if only this one is missing: mail would fail SPF there.
    """
    alias = next((one for one in checks if one.wanted.place == ("CNAME", row.return_path_host)), None)
    if alias is None or alias.finding.status != "ok":
        return alias
    missing = (one for one in checks if one.wanted.purpose == "return_path" and one.finding.status == "missing")
    return next((one for one in missing if one.wanted.type == "TXT"), alias)


def _return_path_status(row: DomainRow, checks: Sequence[CheckedRecord]) -> RecordStatus | None:
    check = _return_path_check(row, checks)
    return None if check is None or check.finding.problem else check.finding.status


def _return_path_changed(
    row: DomainRow, state: ReturnPathState, checks: Sequence[CheckedRecord], at: datetime
) -> log.Entry:
    check = _return_path_check(row, checks)
    assert check is not None
    kind = AccountEvent.DOMAIN_RETURN_PATH_VERIFIED if state == "verified" else AccountEvent.DOMAIN_RETURN_PATH_FAILED
    detail = {
        "id": ids.format_id(ids.Kind.DOMAIN, row.id),
        "name": row.name,
        "host": check.wanted.host,
        "value": check.wanted.value,
        "found": list(check.finding.found[:MAX_SHOWN_RECORDS]),
    }
    return log.Entry(row.account_id, kind, log.detail_text(detail), at)


def _entries(
    row: DomainRow, keys: Sequence[DomainKeyRow], verdict: DomainVerdict, checks: Sequence[CheckedRecord], at: datetime
) -> list[log.Entry]:
    detail = {"id": ids.format_id(ids.Kind.DOMAIN, row.id), "name": row.name}
    entries = []
    if verdict.rotated is not None:
        before, now = verdict.rotated
        keep = {"from": before, "to": now, "keep_until": clock.iso(at + rules.RETIRE_AFTER)}
        entries.append(log.Entry(row.account_id, AccountEvent.DOMAIN_KEY_ROTATED, log.detail_text(detail | keep), at))
    if verdict.status == row.status:
        return entries
    if verdict.status == "failed":
        selector = rules.signing_pair(keys)
        found = tuple(check for check in checks if check.wanted.selector == selector)
        entries.append(_failed(row, found, at, reason=NOT_FOUND_TWICE))
    else:
        entries.append(log.Entry(row.account_id, AccountEvent.DOMAIN_VERIFIED, log.detail_text(detail), at))
    return entries


def _failed(row: DomainRow, checks: Sequence[CheckedRecord], at: datetime, *, reason: str) -> log.Entry:
    detail = {
        "id": ids.format_id(ids.Kind.DOMAIN, row.id),
        "name": row.name,
        "reason": reason,
        "records": [
            {
                "type": check.wanted.type,
                "host": check.wanted.host,
                "value": check.wanted.value,
                "status": check.finding.status,
                "found": list(check.finding.found[:MAX_SHOWN_RECORDS]),
            }
            for check in checks
        ],
    }
    return log.Entry(row.account_id, AccountEvent.DOMAIN_FAILED, log.detail_text(detail), at)


def _notice(verdict: DomainVerdict, checks: Sequence[CheckedRecord]) -> str | None:
    if verdict.required is None:
        return "DNS gave no usable answer for the required record, so the status is unchanged. Check again in a minute."
    if verdict.contested:
        return (
            "The required record is published, but another account has verified this name and its DKIM record is"
            " published as well. Remove that record from DNS, then check again."
        )
    if verdict.status == "verified" and verdict.required != "ok":
        return (
            "The required record was not found. Publish it; the domain fails if the next check does not find it either."
        )
    if any(check.finding.problem for check in checks):
        return "DNS gave no usable answer for some records; they show the result of an earlier check."
    return None
