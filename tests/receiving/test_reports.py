"""Report mails: stored as received, each once, read by one worker at a time, and kept for seven days."""

import asyncio
from datetime import timedelta

import asyncpg

from engine.base import clock, ids
from engine.receiving.reports import store
from engine.receiving.reports.types import ReportResult, ReportState
from tests.harness.report_mails import add, mail, stored


async def test_a_mail_that_comes_twice_is_stored_once_though_its_header_differs(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    first = mail(b"Received: from a\r\nSubject: x\r\n\r\nbody\r\n", local=local)
    again = mail(b"Received: from b\r\nSubject: x\r\n\r\nbody\r\n", local=local)
    await add(pool, first, again)
    await add(pool, again, mail(b"Subject: x\r\n\r\nother\r\n", local=local))

    assert len(await stored(pool, local)) == 2


async def test_mails_without_a_body_differ_by_their_header(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    await add(pool, mail(b"Subject: a\r\n\r\n", local=local), mail(b"Subject: b\r\n\r\n", local=local))

    assert len(await stored(pool, local)) == 2


async def test_of_a_mail_beyond_the_limit_no_bytes_are_kept(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    await add(pool, mail(b"\r\n\r\n" + b"x" * store.MAX_RAW_BYTES, local=local))

    (row,) = await stored(pool, local)
    assert (row["raw"], row["size_bytes"]) == (None, store.MAX_RAW_BYTES + 4)


async def test_two_workers_never_take_the_same_mail_and_an_unfinished_one_comes_again(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    await add(pool, *[mail(b"\r\n\r\n%d" % n, local=local) for n in range(20)])
    now = clock.now()
    batches = await asyncio.gather(*[store.take(pool, now, 200) for _ in range(4)])
    taken = [one.id for batch in batches for one in batch if one.local == local]

    assert len(taken) == len(set(taken)) == 20
    assert not [one for one in await store.take(pool, now, 500) if one.local == local]
    later = await store.take(pool, now + store.LEASE, 500)
    assert {one.id for one in later if one.local == local} == set(taken)


async def test_a_finished_mail_keeps_its_bytes_only_if_it_changed_nothing(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    await add(pool, mail(b"\r\n\r\none", local=local), mail(b"\r\n\r\ntwo", local=local))
    first, second = await stored(pool, local)
    await store.finish(
        pool,
        [
            ReportResult(id=first["id"], state=ReportState.APPLIED, result="bounced", reason="Bounced."),
            ReportResult(id=second["id"], state=ReportState.IGNORED, result="auto_reply", reason="An auto-reply."),
        ],
    )
    await store.finish(pool, [ReportResult(id=first["id"], state=ReportState.IGNORED, result="x", reason="x")])

    rows = await stored(pool, local)
    assert [(row["state"], row["result"], row["raw"] is None) for row in rows] == [
        ("applied", "bounced", True), ("ignored", "auto_reply", False),
    ]  # fmt: skip


async def test_reports_are_deleted_after_seven_days(pool: asyncpg.Pool) -> None:
    local = f"b+{ids.uuid7().hex}"
    now = clock.now()
    old, fresh = now - timedelta(days=7, minutes=1), now - timedelta(days=6, hours=23)
    await add(pool, *[mail(b"\r\n\r\n%d" % n, local=local, at=at) for n, at in enumerate((old, fresh))])
    await store.forget(pool, now)

    assert [row["received_at"] for row in await stored(pool, local)] == [fresh]
