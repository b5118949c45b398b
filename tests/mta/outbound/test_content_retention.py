"""Content that is not retained: encrypted until the last outcome, and gone with it, at every door and every end."""

import base64
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from engine.base import clock
from engine.base.settings import Settings
from engine.mail.address import parse_mailbox
from engine.sending import cancel_schedule, forget_content, release
from engine.sending.messages import store
from engine.sending.preparation import Origin, read_message
from engine.sending.reschedule import reschedule
from tests.conftest import NewDatabase
from tests.harness.accounts import PEPPER
from tests.harness.content_canaries import canary, dump, places, shows
from tests.harness.outbound import BRIEF_LEASE_S, World, world
from tests.harness.schedules import comes_due
from tests.harness.sending import accept, accept_set, accepted, message_id, request_of
from tests.harness.stalled_settling import end_sessions, kept_outcomes, locked_heads
from tests.mta.processes import process as mta_process


@pytest.fixture(scope="module")
async def around(settings: Settings, lasting_database: NewDatabase) -> AsyncIterator[World]:
    async with world(settings, await lasting_database()) as made:
        await made.live()
        yield made


async def found(around: World, *words: str) -> set[str]:
    return await places(around.pool, around.redis, around.settings.state, words=words)


async def keys(around: World, message: UUID) -> int:
    return int(await around.pool.fetchval("SELECT count(*) FROM content_keys WHERE message_id = $1", message))


async def bodies(around: World, message: UUID) -> int:
    return int(await around.pool.fetchval("SELECT count(*) FROM message_bodies WHERE message_id = $1", message))


async def until_forgotten(around: World, message: UUID) -> None:
    await around.until_idle()
    assert (await keys(around, message), await bodies(around, message)) == (0, 0)
    assert await store.body(around.pool, around.account.id, message, pepper=PEPPER) is None


def arrived(around: World, word: str) -> int:
    return sum(shows(one.content, (word,)) for one in around.sink.messages)


async def test_the_search_finds_content_that_is_retained(around: World) -> None:
    word = canary()
    message = await around.send("ann@peer.test", text=word)
    await around.until_step(message, "delivered")

    assert await found(around, word) == {"message_bodies"}
    assert shows(await dump(str(around.settings.database_url)), (word,))


async def test_body_attachment_and_headers_are_nowhere_before_and_after_the_delivery(
    around: World, capfd: pytest.CaptureFixture[str]
) -> None:
    words = tuple(canary() for _ in range(4))
    text, html, file, header = words
    around.sink.script("RCPT TO:<late@peer.test>", "450 4.2.2 mailbox full", times=1)
    message = await around.send(
        "late@peer.test", text=text, html=f"<p>{html}</p>", headers={"X-Case": header}, retainContent=False,
        attachments=[{
            "filename": "a.txt", "contentType": "text/plain", "content": base64.b64encode(file.encode()).decode(),
        }],
    )  # fmt: skip
    shown = await store.body(around.pool, around.account.id, message, pepper=PEPPER)
    waiting = await found(around, *words), shows(await dump(str(around.settings.database_url)), words)
    await around.until_step(message, "deferred")
    deferred = await found(around, *words)
    await around.until_step(message, "delivered")

    assert shown is not None
    assert all(shows(shown, (word,)) for word in words)
    assert (waiting, deferred) == ((set(), False), set())
    await until_forgotten(around, message)
    assert await found(around, *words) == set()
    assert not shows(await dump(str(around.settings.database_url)), words)
    assert [arrived(around, word) for word in words] == [1, 1, 1, 1]
    said = capfd.readouterr()
    assert not shows((said.out + said.err).encode(), words)
    facts = await around.pool.fetchrow("SELECT subject, size_bytes, attachments FROM messages WHERE id = $1", message)
    assert facts is not None
    assert (facts["subject"], facts["size_bytes"]) == ("Hello", len(shown))
    assert '"sha256"' in facts["attachments"]


async def test_a_large_body_is_encrypted_delivered_and_deleted(around: World) -> None:
    word = canary()
    text = "\n".join([word, *["filler " * 10] * 8_000])
    message = await around.send("ann@peer.test", text=text, retainContent=False)
    before = await found(around, word)
    await around.until_step(message, "delivered")

    assert before == set()
    assert arrived(around, word) == 1
    await until_forgotten(around, message)


async def test_a_stored_ciphertext_does_not_open_without_its_key(around: World) -> None:
    word = canary()
    request = request_of(around.account, text=word, retainContent=False, scheduledAt=in_hours(2))
    message = message_id(await accept(around.acceptor, request, Origin(around.account.id, "api")))
    await around.pool.execute("DELETE FROM content_keys WHERE message_id = $1", message)

    assert await bodies(around, message) == 1
    assert await store.body(around.pool, around.account.id, message, pepper=PEPPER) is None


async def test_content_stays_until_the_last_recipient_has_an_outcome(around: World) -> None:
    around.domain("slow.test")
    around.sink.script("RCPT TO:<bob@slow.test>", "450 4.2.2 mailbox full", times=3)
    message = await around.send("ann@peer.test", "bob@slow.test", text=canary(), retainContent=False)
    await around.until_step(message, "delivered")
    await around.until_step(message, "deferred")
    if await around.queue(message):
        assert await keys(around, message) == 1
    await around.until_step(message, "delivered", times=2)

    await until_forgotten(around, message)


async def test_a_bounced_message_forgets_its_content(around: World) -> None:
    around.sink.script("RCPT TO:<gone@peer.test>", "550 5.1.1 no such user")
    message = await around.send("gone@peer.test", text=canary(), retainContent=False)
    await around.until_step(message, "bounced")

    await until_forgotten(around, message)
    assert await around.suppressed() == ["gone@peer.test"]


async def test_a_delivery_past_its_deliver_by_forgets_its_content(around: World) -> None:
    around.sink.script("RCPT TO:<full@peer.test>", "450 4.2.2 mailbox full", times=1_000)
    ends = clock.iso(clock.now() + timedelta(seconds=1))
    message = await around.send("full@peer.test", text=canary(), retainContent=False, deliverBy=ends)
    await around.until_step(message, "failed")

    await until_forgotten(around, message)


async def test_a_batch_and_a_composed_message_forget_their_content(around: World) -> None:
    words = [canary() for _ in range(3)]
    origin = Origin(around.account.id, "api")
    requests = [request_of(around.account, to="ann@peer.test", text=one, retainContent=False) for one in words[:2]]
    batch = accepted(await accept_set(around.acceptor, requests, origin))
    raw = (
        f"From: {around.account.sender}\r\nTo: ann@peer.test\r\nSubject: Hi\r\nX-Waybill-Retain-Content: false\r\n\r\n"
        f"{words[2]}\r\n"
    )
    mail = await read_message(raw.encode(), [parse_mailbox("ann@peer.test")], smtputf8=False, host="mail.test")
    single = await accept(around.acceptor, mail, Origin(around.account.id, "smtp"))
    before = await found(around, *words)
    await around.until_idle()

    assert before == set()
    assert [arrived(around, word) for word in words] == [1, 1, 1]
    for one in (*batch, single):
        await until_forgotten(around, message_id(one))


async def test_a_stream_says_what_its_messages_do_and_a_send_overrules_it(around: World) -> None:
    await around.pool.execute(
        "INSERT INTO streams (account_id, slug, name, content_hours) VALUES ($1, 'brief', 'Brief', 0)",
        around.account.id,
    )
    word = canary()
    asked = await around.send("ann@peer.test", text=word, stream="brief")
    kept = await around.send("ann@peer.test", text=canary(), stream="brief", retainContent=True)
    later = await around.send("ann@peer.test", text=canary(), stream="brief", contentUntil=2)
    for one in (asked, kept, later):
        await around.until_step(one, "delivered")

    await until_forgotten(around, asked)
    assert (await keys(around, kept), await bodies(around, kept)) == (0, 1)
    assert (await keys(around, later), await bodies(around, later)) == (1, 1)


async def test_content_until_keeps_it_readable_for_so_many_hours(around: World) -> None:
    word = canary()
    message = await around.send("ann@peer.test", text=word, contentUntil=3)
    await around.until_step(message, "delivered")
    await around.until_idle()
    due = await around.pool.fetchval(
        "SELECT due_at - clock_timestamp() FROM content_keys WHERE message_id = $1", message
    )
    await forget_content.forget_due(around.pool, around.settings)
    body = await store.body(around.pool, around.account.id, message, pepper=PEPPER)

    assert timedelta(hours=2, minutes=50) < due <= timedelta(hours=3)
    assert await found(around, word) == set()
    assert body is not None
    assert shows(body, (word,))
    await around.pool.execute(
        "UPDATE content_keys SET due_at = due_at - interval '3 hours' WHERE message_id = $1", message
    )
    assert await forget_content.forget_due(around.pool, around.settings) == 1
    await until_forgotten(around, message)


def in_hours(hours: int) -> str:
    return clock.iso(clock.now() + timedelta(hours=hours))


async def scheduled(around: World, word: str, **fields: object) -> UUID:
    request = request_of(
        around.account, to="ann@peer.test", text=word, retainContent=False, scheduledAt=in_hours(2), **fields
    )
    return message_id(await accept(around.acceptor, request, Origin(around.account.id, "api")))


async def test_a_canceled_schedule_forgets_its_content(around: World) -> None:
    word = canary()
    message = await scheduled(around, word)
    before = await found(around, word)
    await cancel_schedule.cancel_schedule(around.pool, around.account.id, message)

    assert before == set()
    await until_forgotten(around, message)


async def test_a_moved_schedule_is_dated_anew_and_delivered(around: World) -> None:
    word = canary()
    message = await scheduled(around, word)
    wanted = await reschedule(around.pool, around.account.id, message, in_hours(5), give_up_s=3600, pepper=PEPPER)
    body = await store.body(around.pool, around.account.id, message, pepper=PEPPER)

    assert body is not None
    assert f"{wanted:%d %b %Y %H:%M:%S}".encode() in body
    assert await found(around, word) == set()
    await comes_due(around.pool, message)
    await release.release_due(around.pool, around.settings)
    await around.until_step(message, "delivered")
    await until_forgotten(around, message)


async def test_a_release_that_is_refused_forgets_its_content(around: World) -> None:
    message = await scheduled(around, canary())
    await comes_due(around.pool, message)
    await around.pool.execute("UPDATE domains SET status = 'failed' WHERE account_id = $1", around.account.id)
    await release.release_due(around.pool, around.settings)
    await around.pool.execute("UPDATE domains SET status = 'verified' WHERE account_id = $1", around.account.id)

    assert await around.steps(message) == ["scheduled", "schedule_failed"]
    await until_forgotten(around, message)


async def test_a_process_killed_between_the_250_and_settling_leaves_nothing_readable(
    here: World, tmp_path: Path
) -> None:
    word = canary()
    message = await here.send("ann@peer.test", text=word, retainContent=False)
    async with (
        locked_heads(str(here.settings.database_url)) as lock,
        mta_process(here, tmp_path, state=tmp_path) as killed,
    ):
        await here.until(lambda: kept_outcomes(tmp_path) == 1)
        killed.send(signal.SIGKILL)
        await killed.ended()
        await end_sessions(lock, "mta-1")
    stalled = await places(here.pool, here.redis, tmp_path, words=(word,))
    kept = await keys(here, message)
    async with mta_process(here, tmp_path, name="mta-2", state=tmp_path):
        await here.until_step(message, "delivered")
        await until_forgotten(here, message)

    assert (stalled, kept) == (set(), 1)
    assert arrived(here, word) == 1  # the file tells the next process of the delivery
    assert await places(here.pool, here.redis, tmp_path, words=(word,)) == set()


async def test_mail_that_a_crashed_process_had_in_hand_is_delivered_again_and_then_forgotten(here: World) -> None:
    word = canary()
    message = await here.send("ann@peer.test", text=word, retainContent=False)
    async with locked_heads(str(here.settings.database_url)):
        first = await here.live(lease_s=BRIEF_LEASE_S)
        await here.until(lambda: arrived(here, word) == 1)
        await first.crash()
        here.mtas.remove(first)
    await here.live(name="mta-2", lease_s=BRIEF_LEASE_S)
    await here.until_step(message, "delivered")

    assert arrived(here, word) in {1, 2}  # one if the statement that was cut off has committed all the same
    await until_forgotten(here, message)


async def test_a_message_whose_key_is_lost_is_rejected_and_says_so(around: World) -> None:
    message = await scheduled(around, canary())
    await around.pool.execute("DELETE FROM content_keys WHERE message_id = $1", message)
    await comes_due(around.pool, message)
    await release.release_due(around.pool, around.settings)
    await around.until_step(message, "suppressed")

    assert await around.status(message) == "rejected"
    assert dict(await around.waybill(message))["suppressed"]["reason"] == "unreadable"
