"""Bounces that arrive as mail: what they move, and what they leave as it is."""

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.delivery.late_notices import MAX_LATE_DELAYS
from engine.mail import return_path, simulator
from engine.mail.return_path import shared_place
from engine.receiving.reports import read_reports
from engine.receiving.reports.types import Reporter
from engine.sending.complaint import complain
from engine.sending.settle import Settler
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.report_mails import add, dsn, failed, mail, stored
from tests.harness.sending import (
    BOUNCED,
    DEFERRED,
    DELIVERED,
    Process,
    attempt_at,
    message_id,
    rows_of,
)
from tests.harness.settling import settle
from tests.harness.stored_messages import day_counts, events, recipients, sent, status, statuses, suppressed

ANN = "ann@people.test"


async def delivered(door: Process, settler: Settler, pool: asyncpg.Pool, *to: str) -> tuple[TestAccount, UUID]:
    """A message that all of them got, of an account of its own."""
    account, message = await sent(door, *to)
    for row in await rows_of(pool, message):
        assert await settler.settle(attempt_at(row, DELIVERED))
    return account, message


async def at_hoster(door: Process, settler: Settler, pool: asyncpg.Pool, **to: list[str]) -> tuple[TestAccount, UUID]:
    """A message that all of them got in one transaction with `mx.hoster.test`, of an account of its own."""
    account = await make_account(pool)
    message = message_id(await door.send(account, **to))
    for row in await rows_of(pool, message):
        attempt = structs.replace(attempt_at(row, DELIVERED), conversation={"mx": "mx.hoster.test", "tls": None})
        assert await settler.settle(attempt)
    return account, message


def token(message: UUID, place: int = 0) -> str:
    """The local part of a return path."""
    return return_path.return_path(return_path.key_of(PEPPER), message, place, "x").partition("@")[0]


async def come(
    pool: asyncpg.Pool,
    settings: Settings,
    message: UUID,
    raw: bytes,
    place: int = 0,
    reporter: Reporter | None = None,
) -> tuple[str, str | None]:
    """Let a report arrive at the message's return path and be read; return its state and result."""
    await add(pool, mail(raw, local=token(message, place), reporter=reporter))
    await read_reports.read_due(pool, settings)
    row = (await stored(pool, token(message, place)))[-1]
    return row["state"], row["result"]


async def test_a_late_bounce_moves_the_recipient_suppresses_and_counts_as_a_live_one(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await come(pool, settings, message, failed(ANN)) == ("applied", "bounced")

    assert (await status(pool, message), await statuses(pool, message)) == ("bounced", {ANN: "bounced"})
    kind, detail = (await events(pool, message))[-1]
    assert kind == "bounced"
    assert detail == {
        "recipient": ANN, "scope": "recipient", "class": "user_unknown", "smtp_code": 550, "enhanced_code": "5.1.1",
        "iana_class": detail["iana_class"], "diagnostic": detail["diagnostic"], "late": True, "suppressed": True,
        "reporting_mta": "mx.people.test",
    }  # fmt: skip
    assert "User unknown" in detail["diagnostic"]
    assert (await recipients(pool, message))[ANN]["last_response"] == detail["diagnostic"]
    assert await day_counts(pool, account) == {"bounced": 1}
    entry = await pool.fetchrow("SELECT * FROM suppressions WHERE account_id = $1", account.id)
    assert entry is not None
    assert (entry["address"], entry["reason"], entry["message_id"]) == (ANN, "bounce", message)
    kinds = [row["type"] for row in await pool.fetch(
        "SELECT type FROM events WHERE account_id = $1 ORDER BY seq", account.id
    )]  # fmt: skip
    assert kinds == ["accepted", "attempted", "delivered", "bounced", "suppression.added"]
    assert (await stored(pool, token(message)))[0]["raw"] is None


async def test_the_delivery_is_taken_back_on_the_day_that_counted_it(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    yesterday = clock.now() - timedelta(days=1)
    await pool.execute("UPDATE account_days SET day = $2 WHERE account_id = $1", account.id, yesterday.date())
    await pool.execute(
        "UPDATE events SET occurred_at = $2 WHERE message_id = $1 AND type = 'delivered'", message, yesterday
    )
    await come(pool, settings, message, failed(ANN))

    rows = await pool.fetch(
        "SELECT day, delivered, bounced FROM account_days WHERE account_id = $1 ORDER BY day", account.id
    )
    assert [tuple(row)[1:] for row in rows] == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("550 5.7.1 Message rejected: your IP is on our blocklist", "5.7.1"),
        ("552 5.2.2 Mailbox full", "5.2.2"),
        ("554 5.7.1 This message looks like spam", "5.7.1"),
        ("450 4.4.1 No answer from host for 5 days", "4.4.1"),
    ],
)
async def test_only_a_bounce_that_concerns_the_address_suppresses(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, said: str, code: str
) -> None:
    account, message = await delivered(door, settler, pool)
    assert await come(pool, settings, message, failed(ANN, said, code)) == ("applied", "bounced")

    assert await status(pool, message) == "bounced"
    assert (await events(pool, message))[-1][1]["suppressed"] is False
    assert await suppressed(pool, account) == []


async def test_the_same_report_counts_once_by_whatever_way_it_comes(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    first = failed(ANN)
    await add(pool, *[mail(b"Received: by %d\r\n" % n + first, local=token(message)) for n in range(3)])
    await add(pool, mail(failed(ANN, "550 5.1.1 unknown user"), local=token(message)))
    await asyncio.gather(*[read_reports.read_due(pool, settings) for _ in range(3)])

    results = [row["result"] for row in await stored(pool, token(message))]
    assert sorted(results) == ["already_bounced", "bounced"]
    assert await day_counts(pool, account) == {"bounced": 1}
    assert [kind for kind, _ in await events(pool, message)].count("bounced") == 1


async def test_three_delays_per_recipient_are_recorded_and_a_bounce_after_them(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    _, message = await delivered(door, settler, pool, ANN, "bob@people.test")

    def delays(numbers: range, address: str) -> list[bytes]:
        return [dsn((address, "delayed", "4.4.7", f"451 4.4.7 still trying {number}")) for number in numbers]

    assert await come(pool, settings, message, delays(range(1), ANN)[0]) == ("applied", "deferred")
    await add(pool, *[mail(one, local=token(message)) for one in delays(range(1, 30), ANN)])
    await add(pool, mail(delays(range(1), "bob@people.test")[0], local=token(message, 1)))
    await read_reports.read_due(pool, settings)

    results = Counter(row["result"] for row in await stored(pool, token(message)))
    assert results == {"deferred": MAX_LATE_DELAYS, "delayed_often": 30 - MAX_LATE_DELAYS}
    recorded = [detail["recipient"] for kind, detail in await events(pool, message) if kind == "deferred"]
    assert sorted(recorded) == [ANN] * MAX_LATE_DELAYS + ["bob@people.test"]
    assert await come(pool, settings, message, failed(ANN)) == ("applied", "bounced")


async def test_a_delay_writes_deferred_and_moves_nothing(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    raw = dsn((ANN, "delayed", "4.4.7", "451 4.4.7 still trying"))
    assert await come(pool, settings, message, raw) == ("applied", "deferred")

    kind, detail = (await events(pool, message))[-1]
    assert (kind, detail["late"], detail["recipient"]) == ("deferred", True, ANN)
    assert (await status(pool, message), await statuses(pool, message)) == ("delivered", {ANN: "delivered"})
    assert await day_counts(pool, account) == {"delivered": 1}


AUTO = b"From: ann@people.test\r\nSubject: Out of office\r\nAuto-Submitted: auto-replied\r\n\r\nI am away.\r\n"


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (dsn((ANN, "delivered", "2.0.0", "")), ("ignored", "delivered")),
        (dsn((ANN, "relayed", "2.0.0", "")), ("ignored", "relayed")),
        (dsn((ANN, "expanded", "2.0.0", "")), ("ignored", "expanded")),
        (AUTO, ("ignored", "auto_reply")),
        (b"Subject: hello\r\n\r\nWhat is this?\r\n", ("unreadable", "unreadable")),
        (b"", ("unreadable", "unreadable")),
    ],
)
async def test_what_is_no_failure_changes_nothing_and_is_kept(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, raw: bytes, found: tuple[str, str]
) -> None:
    account, message = await delivered(door, settler, pool)
    before = await events(pool, message)
    assert await come(pool, settings, message, raw) == found

    assert await events(pool, message) == before
    assert await day_counts(pool, account) == {"delivered": 1}
    assert (await stored(pool, token(message)))[0]["raw"] == raw


async def test_only_a_delivered_recipient_moves(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await sent(door)
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, BOUNCED))
    assert await come(pool, settings, message, failed(ANN)) == ("ignored", "already_bounced")
    assert await day_counts(pool, account) == {"bounced": 1}

    account, message = await delivered(door, settler, pool)
    await complain(pool, message, 0, at=clock.now())
    assert await come(pool, settings, message, failed(ANN)) == ("ignored", "already_complained")
    assert await status(pool, message) == "complained"
    assert await day_counts(pool, account) == {"delivered": 1, "complained": 1}


async def test_a_report_before_the_delivery_is_on_record_is_read_again_for_an_hour(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    _, message = await sent(door)
    assert await come(pool, settings, message, failed(ANN)) == ("waiting", None)
    [row] = await rows_of(pool, message)
    assert await settler.settle(attempt_at(row, DELIVERED))
    await pool.execute("UPDATE report_mails SET due_at = now() - interval '1 s' WHERE local = $1", token(message))
    await read_reports.read_due(pool, settings)
    assert await status(pool, message) == "bounced"

    _, other = await sent(door)
    [row] = await rows_of(pool, other)
    assert await settler.settle(attempt_at(row, DEFERRED, next_at=clock.now() + timedelta(hours=1)))
    await add(pool, mail(failed(ANN), local=token(other), at=clock.now() - timedelta(minutes=61)))
    await read_reports.read_due(pool, settings)
    assert [(row["state"], row["result"]) for row in await stored(pool, token(other))] == [("ignored", "not_delivered")]
    assert await status(pool, other) == "sending"


async def test_a_shared_return_path_needs_a_recipient_that_the_message_has(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool, ANN, "Bob@people.test", "eve@people.test")
    stranger = failed("stranger@people.test")
    assert await come(pool, settings, message, stranger, shared_place(0)) == ("ignored", "unknown_recipient")
    raw = dsn(
        ("bob@PEOPLE.test", "failed", "5.1.1", "550 5.1.1 nobody here"),
        (ANN, "delivered", "2.0.0", ""),
        ("stranger@people.test", "failed", "5.1.1", "550 5.1.1 nobody here"),
    )
    daemon = Reporter("mailer-daemon@people.test", "people.test")
    assert await come(pool, settings, message, raw, shared_place(0), daemon) == ("applied", "bounced")

    assert await statuses(pool, message) == {
        ANN: "delivered", "Bob@people.test": "bounced", "eve@people.test": "delivered",
    }  # fmt: skip
    assert await suppressed(pool, account) == ["bob@people.test"]
    assert await status(pool, message) == "bounced"


BOB = "bob@people.test"
AUTHORS = {
    "nobody": None,
    "the recipients domain": Reporter("mailer-daemon@people.test", None),
    "its mail server": Reporter("mailer-daemon@mx.hoster.test", None),
    "above its mail server": Reporter("postmaster@hoster.test", "hoster.test"),
    "another server of the hoster": Reporter("mailer-daemon@web.hoster.test", "web.hoster.test"),
    "below the recipients domain": Reporter("mailer-daemon@web.people.test", "people.test"),
    "anybody": Reporter("eve@evil.test", "evil.test"),
}


@pytest.mark.parametrize(
    ("author", "suppresses"),
    [
        ("nobody", False),
        ("the recipients domain", True),
        ("its mail server", True),
        ("above its mail server", True),
        ("another server of the hoster", False),
        ("below the recipients domain", False),
        ("anybody", False),
    ],
)
async def test_a_bounce_with_a_shared_token_suppresses_only_with_an_author_of_the_receiving_side(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, author: str, *, suppresses: bool
) -> None:
    account, message = await at_hoster(door, settler, pool, to=[ANN, BOB])
    said = failed(BOB, "550 5.1.1 no such user")
    assert await come(pool, settings, message, said, shared_place(0), AUTHORS[author]) == ("applied", "bounced")

    assert await statuses(pool, message) == {ANN: "delivered", BOB: "bounced"}
    assert await suppressed(pool, account) == ([BOB] if suppresses else [])
    detail = (await events(pool, message))[-1][1]
    assert (detail["late"], detail["suppressed"], detail.get("unverified")) == (
        True,
        suppresses,
        not suppresses or None,
    )


@pytest.mark.parametrize(("author", "bounces"), [("nobody", False), ("anybody", False), ("its mail server", True)])
async def test_a_bounce_with_a_shared_token_reaches_no_recipient_in_bcc_without_such_an_author(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings, author: str, *, bounces: bool
) -> None:
    account, message = await at_hoster(door, settler, pool, to=[ANN], bcc=[BOB])
    before = await events(pool, message)
    raw = dsn((BOB, "failed", "5.1.1", "550 5.1.1 no such user"))
    late = dsn((BOB, "delayed", "4.2.2", "452 4.2.2 mailbox full"))
    applied = ("applied", "bounced"), ("ignored", "already_bounced")
    refused = (("ignored", "not_authenticated"),) * 2
    for said, wanted in zip((raw, late), applied if bounces else refused, strict=True):
        assert await come(pool, settings, message, said, shared_place(0), AUTHORS[author]) == wanted

    assert await suppressed(pool, account) == ([BOB] if bounces else [])
    assert (await events(pool, message) == before) is not bounces


async def test_an_unverified_bounce_is_not_the_first_of_two_unexplained_ones(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool, ANN, BOB)
    said = failed(ANN, "550 Rejected (in reply to RCPT TO command)", "5.0.0")
    assert await come(pool, settings, message, said, shared_place(0)) == ("applied", "bounced")
    await age(pool, account, timedelta(days=2))

    await bounced_for_no_reason(door, pool, account)

    assert await suppressed(pool, account) == []


async def test_a_message_takes_the_worst_of_its_recipients_after_a_late_bounce(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    _, message = await sent(door, ANN, "bob@far.test")
    far, people = await rows_of(pool, message)
    assert await settler.settle(attempt_at(people, DELIVERED))
    assert await come(pool, settings, message, failed(ANN)) == ("applied", "bounced")
    assert await status(pool, message) == "sending"
    assert await settler.settle(attempt_at(far, DELIVERED))
    assert await status(pool, message) == "bounced"

    _, message = await sent(door, ANN, "bob@far.test")
    far, people = await rows_of(pool, message)
    assert await settler.settle(attempt_at(people, DELIVERED))
    assert await settler.settle(attempt_at(far, DEFERRED))
    assert await status(pool, message) == "failed"
    await come(pool, settings, message, failed(ANN))
    assert await status(pool, message) == "bounced"


async def test_a_forward_bounces_for_the_recipient_but_a_list_with_other_members_does_not(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    _, forwarded = await delivered(door, settler, pool)
    assert await come(pool, settings, forwarded, failed("ann@elsewhere.test")) == ("applied", "bounced")

    _, listed = await delivered(door, settler, pool)
    raw = dsn(("one@elsewhere.test", "failed", "5.1.1", ""), ("two@elsewhere.test", "relayed", "2.0.0", ""))
    assert await come(pool, settings, listed, raw) == ("ignored", "several_recipients")
    assert await status(pool, listed) == "delivered"


async def test_without_a_genuine_token_nothing_changes(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool)
    forged = token(message)[:-1] + ("0" if token(message)[-1] != "0" else "1")
    await add(pool, mail(failed(ANN), local=forged), mail(failed(ANN), local=f"b+{message.hex}"))
    unknown = token(ids.uuid7())
    await add(pool, mail(failed(ANN), local=unknown), mail(failed(ANN), local=token(message, 7)))
    await read_reports.read_due(pool, settings)

    assert await status(pool, message) == "delivered"
    assert await suppressed(pool, account) == []
    found = [(await stored(pool, one))[0]["result"] for one in (forged, f"b+{message.hex}", unknown, token(message, 7))]
    assert found == ["no_token", "no_token", "unknown_message", "unknown_recipient"]


async def test_simulated_mail_that_bounces_late_suppresses_nobody_and_is_not_held_against_the_account(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    address = f"delivered@{simulator.domain_of(settings.mail_host)}"
    account, message = await sent(door, address)
    [row] = await rows_of(pool, message)
    assert await settler.settle(structs.replace(attempt_at(row, DELIVERED), simulated=True))
    assert await come(pool, settings, message, failed(address)) == ("applied", "bounced")

    detail = (await events(pool, message))[-1][1]
    assert (detail["simulated"], detail["suppressed"]) == (True, False)
    assert await suppressed(pool, account) == []
    judged = await pool.fetchrow("SELECT settled, bounced FROM simulated_days WHERE account_id = $1", account.id)
    assert judged is not None
    assert tuple(judged) == (1, 1)


async def test_parallel_workers_apply_each_report_of_a_batch_once(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account, message = await delivered(door, settler, pool, *[f"r{n}@people.test" for n in range(50)])
    mails = [mail(failed(f"r{n}@people.test"), local=token(message, n)) for n in range(50)]
    await add(pool, *mails)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(read_reports.read_due(pool, settings))

    assert set((await statuses(pool, message)).values()) == {"bounced"}
    assert await day_counts(pool, account) == {"bounced": 50}
    assert len(await suppressed(pool, account)) == 50


SUPPRESS = """
INSERT INTO suppressions (account_id, address, reason, created_at)
SELECT $1, address, 'manual', now() FROM recipients WHERE message_id = $2
"""


@pytest.mark.parametrize(
    ("change", "result", "kinds"),
    [
        (
            "UPDATE recipients SET status = 'complained' WHERE account_id = $1 AND message_id = $2",
            ("ignored", "already_complained"),
            [],
        ),
        (
            SUPPRESS.replace("manual", "complaint"),
            ("applied", "bounced"),
            ["bounced"],
        ),
        (
            SUPPRESS,
            ("applied", "bounced"),
            ["bounced", "suppression.added"],
        ),
        ("UPDATE accounts SET status = 'closing' WHERE id = $1 AND $2::uuid > $1", ("ignored", "unknown_message"), []),
    ],
    ids=["the recipient complained", "suppressed for a complaint", "suppressed by hand", "the account is being closed"],
)
async def test_what_changes_between_reading_and_locking_is_heeded(
    change: str, result: tuple[str, str], kinds: list[str],
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings,
) -> None:  # fmt: skip
    account, message = await delivered(door, settler, pool)
    before = await pool.fetchval("SELECT seq FROM account_heads WHERE account_id = $1", account.id)
    async with pool.acquire() as other:
        async with other.transaction():
            await other.execute("SELECT FROM account_heads WHERE account_id = $1 FOR UPDATE", account.id)
            reading = asyncio.create_task(come(pool, settings, message, failed(ANN)))
            async with asyncio.timeout(30):
                while not await pool.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await other.execute(change, account.id, message)
        assert await reading == result

    rows = await pool.fetch(
        "SELECT type FROM events WHERE account_id = $1 AND seq > $2 ORDER BY seq", account.id, before
    )
    assert [row["type"] for row in rows] == kinds
    head = await pool.fetchrow("SELECT seq, hash FROM account_heads WHERE account_id = $1", account.id)
    last = await pool.fetchrow(
        "SELECT seq, hash FROM events WHERE account_id = $1 ORDER BY seq DESC LIMIT 1", account.id
    )
    assert head == last


async def bounced_for_no_reason(door: Process, pool: asyncpg.Pool, account: TestAccount | None = None) -> TestAccount:
    """A message of an account, its own by default, that was refused at RCPT without a reason."""
    account = account or await make_account(pool)
    message = message_id(await door.send(account, to=[ANN]))
    await settle(pool, ids.format_id(ids.Kind.MESSAGE, message), (ANN, 550, "Rejected"))
    assert await status(pool, message) == "bounced"
    return account


async def age(pool: asyncpg.Pool, account: TestAccount, by: timedelta) -> None:
    await pool.execute(
        "UPDATE events SET occurred_at = occurred_at - $2::interval WHERE account_id = $1", account.id, by
    )


@pytest.mark.parametrize(("hours", "repeats"), [(23, False), (25, True)])
async def test_an_unexplained_bounce_suppresses_when_it_repeats_a_day_later(
    door: Process, pool: asyncpg.Pool, hours: int, repeats: bool
) -> None:
    account = await bounced_for_no_reason(door, pool)
    assert await suppressed(pool, account) == []
    await age(pool, account, timedelta(hours=hours))

    await bounced_for_no_reason(door, pool, account)

    assert await suppressed(pool, account) == ([ANN] if repeats else [])
    last = await pool.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'bounced' ORDER BY seq DESC LIMIT 1", account.id
    )
    assert orjson.loads(last)["detail"]["suppressed"] is repeats


async def test_an_unexplained_late_bounce_counts_as_a_repetition_only_at_rcpt(
    door: Process, settler: Settler, pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await bounced_for_no_reason(door, pool)
    await age(pool, account, timedelta(days=2))
    for command, after in (("end of DATA", []), ("RCPT TO", [ANN])):
        message = message_id(await door.send(account, to=[ANN]))
        for row in await rows_of(pool, message):
            assert await settler.settle(attempt_at(row, DELIVERED))
        said = f"550 Rejected (in reply to {command} command)"
        assert await come(pool, settings, message, failed(ANN, said, "5.0.0")) == ("applied", "bounced")
        assert await suppressed(pool, account) == after


async def test_the_bounces_of_another_account_or_with_a_reason_are_no_repetition(
    door: Process, pool: asyncpg.Pool
) -> None:
    other = await bounced_for_no_reason(door, pool)
    account, message = await sent(door)
    await settle(pool, ids.format_id(ids.Kind.MESSAGE, message), (ANN, 550, "5.7.1 blocked by policy"))
    for one in (account, other):
        await age(pool, one, timedelta(days=2))

    await bounced_for_no_reason(door, pool, account)

    assert await suppressed(pool, account) == []
