"""System mail is stored with its change and sent once, to its recipient, before it expires."""

import asyncio
import email.policy
from collections.abc import AsyncIterator
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from uuid import UUID

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.accounts import platform_account
from engine.accounts import send_system_mail as system_mail
from engine.accounts.send_system_mail import Mailer
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import BadSetting, Settings, load
from engine.people.system_mail.store import TAKE_DUE, enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import rules as token_rules
from engine.people.tokens.rules import Purpose, token_of
from tests.conftest import NewDatabase
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Api, serving
from tests.harness.outbound import World, world
from tests.harness.people import TestPerson, make_person


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a database of its own, whose account is the platform's."""
    async with world(settings, await new_database(), public_url="https://app.a.test/base/") as made:
        await platform_account.appoint(
            made.pool, made.settings, made.account.id, f"Waybill <no-reply@{made.account.domain}>"
        )
        yield made


@pytest.fixture
async def mailer(here: World) -> AsyncIterator[Mailer]:
    made = Mailer(here.pool, here.settings)
    yield made
    await made.close()


async def wrote(here: World, kind: SystemMailKind, address: str, mail: UUID | None = None, **detail: object) -> UUID:
    async with here.pool.acquire() as connection:
        return await enqueue(connection, kind, address, at=clock.now(), mail=mail, **detail)


async def waiting(pool: asyncpg.Pool) -> list[asyncpg.Record]:
    return list(await pool.fetch("SELECT * FROM system_mail ORDER BY id"))


async def accepted(pool: asyncpg.Pool) -> list[asyncpg.Record]:
    return list(
        await pool.fetch(
            "SELECT m.*, r.address, q.deliver_by FROM messages m JOIN recipients r ON r.message_id = m.id"
            " LEFT JOIN queue q ON q.message_id = m.id ORDER BY m.id"
        )
    )


async def stranger(here: World, **how: object) -> TestPerson:
    """Somebody on an account of their own."""
    account = await make_account(here.pool)
    return await make_person(here.pool, account.id, **how)  # type: ignore[arg-type]


async def good_token(pool: asyncpg.Pool, mail: UUID, purpose: Purpose) -> bool:
    digest = token_rules.digest_of(token_of(PEPPER, mail))
    return bool(
        await pool.fetchval(
            "SELECT 1 FROM single_use_tokens WHERE digest = $1 AND purpose = $2 AND expires_at > now()", digest, purpose
        )
    )


def read(content: bytes) -> tuple[EmailMessage, str, str]:
    """A mail with its text and its HTML."""
    mail = email.message_from_bytes(content, policy=email.policy.default)
    assert isinstance(mail, EmailMessage)
    plain, rich = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert rich is not None
    return mail, plain.get_content(), rich.get_content()


# -- what arrives ------------------------------------------------------------------------------------


async def test_a_mail_arrives_signed_in_text_and_html_with_the_link_of_its_token(here: World, mailer: Mailer) -> None:
    mail = await wrote(here, SystemMailKind.VERIFY_EMAIL, "ann@peer.test")
    assert await mailer.send_due() == 1
    await here.mta()
    await here.sink.until(1)

    received, text, html = read(here.sink.messages[0].content)
    link = f"https://app.a.test/base/verify-email#token={token_of(PEPPER, mail)}"
    assert received["From"] == f"Waybill <no-reply@{here.account.domain}>"
    assert (received["To"], received["Subject"]) == ("ann@peer.test", "Confirm your address")
    assert (received["Auto-Submitted"], received["X-Auto-Response-Suppress"]) == ("auto-generated", "All")
    assert "DKIM-Signature" in received
    assert link in text.split()
    assert f'href="{link}"' in html
    assert "<img" not in html
    assert await waiting(here.pool) == []


async def test_names_of_others_are_escaped_and_are_no_links(here: World, mailer: Mailer) -> None:
    await wrote(
        here, SystemMailKind.INVITE, "ann@peer.test", account_name='<b>"Win at evil.test"</b>\r\nBcc: x@y.test',
        inviter="https://evil.test/x", role="admin",
    )  # fmt: skip
    await mailer.send_due()
    await here.mta()
    await here.sink.until(1)

    received, text, html = read(here.sink.messages[0].content)
    assert received["Bcc"] is None
    assert "\n" not in str(received["Subject"])
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    for shown in (text, html, str(received["Subject"])):
        assert "evil.test" not in shown
        assert "://evil" not in shown


# -- sealed ----------------------------------------------------------------------------------------------


async def test_no_key_and_no_member_of_the_platform_account_reads_a_link(
    here: World, mailer: Mailer, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    person = await stranger(here, email="ann@peer.test")
    mail = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    await mailer.send_due()
    token = token_of(PEPPER, mail)
    attacker = await make_person(here.pool, here.account.id, "owner")
    [message] = await accepted(here.pool)
    public = ids.format_id(ids.Kind.MESSAGE, message["id"])
    with serving(structs.replace(here.settings, public_url="http://127.0.0.1"), tmp_path / "api.log") as url:
        api = Api(url, http)
        for delivered in (False, True):
            if delivered:
                await here.mta()
                await here.sink.until(1)
                assert token in read(here.sink.messages[0].content)[1]  # the recipient does
            for path in (
                f"/v1/messages/{public}", f"/v1/messages/{public}/raw", "/v1/messages", "/v1/messages/export",
                f"/v1/messages?to={person.email}", f"/v1/messages?search={person.email}", "/v1/events",
            ):  # fmt: skip
                answers = [await api.get(path, here.account.token), await api.get(path, person=attacker)]
                assert not any(token.encode() in one.body or person.email.encode() in one.body for one in answers), path
            assert (await api.get(f"/v1/messages/{public}/raw", here.account.token)).status == 404
        resent = await api.post(f"/v1/messages/{public}/resend", here.account.token, {})
        assert (resent.status, resent.error["type"]) == (409, "invalid_state")


async def test_no_table_holds_a_link_or_its_recipient_once_it_is_delivered(here: World, mailer: Mailer) -> None:
    person = await stranger(here, email="ann@peer.test")
    mail = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    await mailer.send_due()
    token = token_of(PEPPER, mail)
    for done in (False, True):
        if done:
            await here.mta()
            await here.sink.until(1)
        for table in ("messages", "message_bodies", "queue", "recipients", "events", "system_mail"):
            rows = await here.pool.fetch(f"SELECT convert_to(t::text, 'UTF8') AS row FROM {table} t")
            assert not [row for row in rows if token.encode() in row["row"] or person.email.encode() in row["row"]], (
                table
            )
        bodies = await here.pool.fetch("SELECT mime FROM message_bodies")
        assert not [row for row in bodies if token.encode() in row["mime"]]


# -- once ------------------------------------------------------------------------------------------------


async def test_a_crash_after_acceptance_sends_nothing_twice(here: World, mailer: Mailer) -> None:
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    await here.pool.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    await here.pool.execute("CREATE TRIGGER keep BEFORE DELETE ON system_mail FOR EACH ROW EXECUTE FUNCTION keep()")
    assert await mailer.send_due() == 1
    await here.pool.execute("DROP TRIGGER keep ON system_mail")
    await here.pool.execute("UPDATE system_mail SET due_at = now() - interval '1 second'")

    assert await mailer.send_due() == 1
    assert await waiting(here.pool) == []
    assert len(await accepted(here.pool)) == 1


async def test_two_workers_send_each_mail_once(here: World, mailer: Mailer) -> None:
    for n in range(20):
        await wrote(here, SystemMailKind.PASSWORD_CHANGED, f"p{n}@peer.test")
    other = Mailer(here.pool, here.settings)
    sent = await asyncio.gather(mailer.send_due(), other.send_due())
    await other.close()

    assert sum(sent) == 20
    await here.mta()
    await here.sink.until(20)
    arrived = [one.recipients[0] for one in here.sink.messages]
    assert sorted(arrived) == sorted(f"p{n}@peer.test" for n in range(20))


async def test_a_mail_that_somebody_holds_is_taken_again_after_a_minute(here: World, mailer: Mailer) -> None:
    mail = await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    now = clock.now()
    taken = await TAKE_DUE.fetch(here.pool, now, 10, now + system_mail.TAKEN_FOR)
    assert [one.id for one in taken] == [mail]
    assert await mailer.send_due() == 0
    await here.pool.execute("UPDATE system_mail SET due_at = due_at - interval '1 minute'")
    assert await mailer.send_due() == 1


# -- later, or never -------------------------------------------------------------------------------------


async def test_an_exhausted_allowance_puts_mail_off(here: World, mailer: Mailer) -> None:
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", here.account.id)
    assert await mailer.send_due() == 0
    [row] = await waiting(here.pool)
    assert row["attempts"] == 1
    assert timedelta(seconds=20) < row["due_at"] - clock.now() < timedelta(seconds=40)

    await here.pool.execute("UPDATE accounts SET daily_cap = 10 WHERE id = $1", here.account.id)
    await here.pool.execute("UPDATE system_mail SET due_at = now() - interval '1 second'")
    assert await mailer.send_due() == 1


async def test_mail_is_tried_for_a_day_and_then_given_up(here: World, mailer: Mailer) -> None:
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", here.account.id)
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    await here.pool.execute("UPDATE system_mail SET created_at = created_at - interval '23 hours', attempts = 20")
    assert await mailer.send_due() == 0
    assert await waiting(here.pool) == []  # the next try would come too late

    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "bob@peer.test")
    await here.pool.execute("UPDATE system_mail SET created_at = created_at - interval '25 hours', due_at = 'infinity'")
    fresh = Mailer(here.pool, here.settings)
    assert await fresh.send_due() == 0
    assert await waiting(here.pool) == []


async def test_mail_whose_token_is_dead_by_now_is_not_sent(here: World, mailer: Mailer) -> None:
    await wrote(here, SystemMailKind.FORGOT_PASSWORD, (await stranger(here)).email)
    await here.pool.execute("UPDATE system_mail SET created_at = created_at - interval '61 minutes'")
    assert await mailer.send_due() == 0
    assert await waiting(here.pool) == []


async def test_a_link_is_not_delivered_after_its_token_has_died(here: World, mailer: Mailer) -> None:
    person = await stranger(here)
    await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    [row] = await waiting(here.pool)
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "bob@peer.test")
    assert await mailer.send_due() == 2
    ends = {one["subject"]: one["deliver_by"] for one in await accepted(here.pool)}
    assert ends == {"Set a new password": row["created_at"] + timedelta(hours=1), "Your password was changed": None}


async def test_one_bad_mail_stops_no_other(here: World, mailer: Mailer) -> None:
    await here.pool.execute(
        "INSERT INTO system_mail (id, kind, address, detail, due_at, created_at)"
        " VALUES ($1, 'of a later version', 'x@peer.test', '{}', now(), now())",
        ids.uuid7(),
    )
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "no address")
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    assert await mailer.send_due() == 1
    assert [row["kind"] for row in await waiting(here.pool)] == ["of a later version"]


async def test_a_suppressed_mailbox_gets_nothing_and_its_mail_waits(here: World, mailer: Mailer) -> None:
    await here.pool.execute(
        "INSERT INTO suppressions (account_id, address, reason) VALUES ($1, 'ann@peer.test', 'bounce')",
        here.account.id,
    )
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    assert await mailer.send_due() == 0
    assert len(await waiting(here.pool)) == 1


# -- to whom ---------------------------------------------------------------------------------------------


async def test_a_forgotten_password_of_nobody_is_dropped(here: World, mailer: Mailer) -> None:
    await wrote(here, SystemMailKind.FORGOT_PASSWORD, "nobody@peer.test")
    assert await mailer.send_due() == 0
    assert await waiting(here.pool) == []
    assert await accepted(here.pool) == []


async def test_a_forgotten_password_makes_a_link_when_it_is_sent(here: World, mailer: Mailer) -> None:
    person = await stranger(here)
    mail = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    assert not await good_token(here.pool, mail, Purpose.RESET_PASSWORD)
    assert await mailer.send_due() == 1
    assert await good_token(here.pool, mail, Purpose.RESET_PASSWORD)


async def test_a_second_try_to_send_does_not_revive_a_used_link(here: World, mailer: Mailer) -> None:
    person = await stranger(here)
    mail = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    await here.pool.execute("UPDATE accounts SET daily_cap = 0 WHERE id = $1", here.account.id)
    assert await mailer.send_due() == 0
    await here.pool.execute("DELETE FROM single_use_tokens")  # as if it had been used meanwhile
    await here.pool.execute("UPDATE accounts SET daily_cap = 10 WHERE id = $1", here.account.id)
    await here.pool.execute("UPDATE system_mail SET due_at = now() - interval '1 second'")
    assert await mailer.send_due() == 1
    assert not await good_token(here.pool, mail, Purpose.RESET_PASSWORD)


async def test_a_fresh_link_is_not_followed_by_another(here: World, mailer: Mailer) -> None:
    person = await stranger(here)
    first = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    await mailer.send_due()
    await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    assert await mailer.send_due() == 0
    assert await waiting(here.pool) == []
    assert await good_token(here.pool, first, Purpose.RESET_PASSWORD)

    await here.pool.execute("UPDATE single_use_tokens SET created_at = created_at - interval '6 minutes'")
    later = await wrote(here, SystemMailKind.FORGOT_PASSWORD, person.email)
    assert await mailer.send_due() == 1
    assert await good_token(here.pool, later, Purpose.RESET_PASSWORD)
    assert not await good_token(here.pool, first, Purpose.RESET_PASSWORD)


async def test_an_address_that_is_somebodys_is_told_and_gets_no_link_to_take_it(here: World, mailer: Mailer) -> None:
    person = await stranger(here, email="taken@peer.test")
    mail = await wrote(here, SystemMailKind.CONFIRM_EMAIL, person.email)
    await mailer.send_due()
    await here.mta()
    await here.sink.until(1)

    received, text, _ = read(here.sink.messages[0].content)
    assert received["Subject"] == "You have an account already"
    assert token_of(PEPPER, mail) not in text


async def test_nobody_can_fill_a_mailbox_by_naming_it(here: World, mailer: Mailer) -> None:
    async def invited_by(requester: str) -> None:
        named = {"account_name": "A", "inviter": "B", "role": "member", "requester": requester}
        await wrote(here, SystemMailKind.INVITE, "ann@peer.test", None, **named)

    for _ in range(15):
        await invited_by("acc_one")
    assert await mailer.send_due() == system_mail.PER_REQUESTER_AND_DAY
    assert await waiting(here.pool) == []

    # Neither another account nor another kind of mail suffers from it.
    await invited_by("acc_two")
    await wrote(here, SystemMailKind.VERIFY_EMAIL, "ann@peer.test", requester="usr_ann")
    assert await mailer.send_due() == 2
    for number in range(15):
        await invited_by(f"acc_{number}")
    assert await mailer.send_due() == system_mail.TO_STRANGERS_PER_DAY - system_mail.PER_REQUESTER_AND_DAY - 1


# -- whom from -------------------------------------------------------------------------------------------


async def test_mail_waits_while_there_is_no_platform_account_and_the_log_says_so_once(
    settings: Settings, new_database: NewDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(settings, await new_database()) as here:
        mailer = Mailer(here.pool, here.settings)
        await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
        assert await mailer.send_due() == 0
        assert await mailer.send_due() == 0
        assert [row["attempts"] for row in await waiting(here.pool)] == [0]
        assert "".join(capsys.readouterr()).count("ops platform set") == 1
        await platform_account.appoint(here.pool, here.settings, here.account.id, f"a@{here.account.domain}")
        assert await mailer.send_due() == 1
        await mailer.close()


async def test_the_setting_names_the_sender_before_the_account_does(here: World) -> None:
    named = structs.replace(here.settings, system_from=f"Post <post@{here.account.domain}>")
    mailer = Mailer(here.pool, named)
    await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
    assert await mailer.send_due() == 1
    await mailer.close()
    assert [row["sender"] for row in await accepted(here.pool)] == [f"Post <post@{here.account.domain}>"]


async def test_only_an_account_that_may_send_so_becomes_the_platforms(here: World) -> None:
    other = await make_account(here.pool, verified=False)
    with pytest.raises(ValueError, match="is not verified"):
        await platform_account.appoint(here.pool, here.settings, other.id, f"a@{other.domain}")
    with pytest.raises(ValueError, match="is not a domain of this account"):
        await platform_account.appoint(here.pool, here.settings, other.id, None)
    with pytest.raises(Refusal, match="No such account"):
        await platform_account.appoint(here.pool, here.settings, ids.uuid7(), None)
    standing = await platform_account.state(here.pool, here.settings)
    assert (standing.account_id, standing.domain_status) == (here.account.id, "verified")


async def test_a_local_service_makes_its_platform_account_once_and_completes_it(
    settings: Settings, new_database: NewDatabase
) -> None:
    async with world(settings, await new_database()) as here:
        first, again = await asyncio.gather(
            *[platform_account.ensure_local(here.pool, here.settings) for _ in range(2)]
        )
        assert first == again
        standing = await platform_account.state(here.pool, here.settings)
        assert (standing.domain, standing.domain_status) == (here.settings.mail_host, "verified")
        assert standing.sender == f"Waybill <no-reply@{here.settings.mail_host}>"
        assert await here.pool.fetchval("SELECT count(*) FROM domains WHERE account_id = $1", first) == 1

        moved = structs.replace(here.settings, mail_host="post.moved.test")
        assert await platform_account.ensure_local(here.pool, moved) == first
        assert (await platform_account.state(here.pool, moved)).domain_status == "verified"
        held = structs.replace(here.settings, mail_host=here.account.domain)  # verified on somebody's account
        assert await platform_account.ensure_local(here.pool, held) == first
        assert (await platform_account.state(here.pool, held)).domain_status is None

        mailer = Mailer(here.pool, here.settings)
        await wrote(here, SystemMailKind.PASSWORD_CHANGED, "ann@peer.test")
        assert await mailer.send_due() == 1
        await mailer.close()


async def test_an_account_that_the_operator_has_named_is_left_as_it_is(here: World) -> None:
    assert await platform_account.ensure_local(here.pool, here.settings) == here.account.id
    assert await here.pool.fetchval("SELECT count(*) FROM domains WHERE name = $1", here.settings.mail_host) == 0


async def test_appointing_is_written_to_the_accounts_log(here: World) -> None:
    payload = await here.pool.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'platform.appointed'", here.account.id
    )
    assert orjson.loads(payload)["detail"]["actor"] == "operator"


@pytest.mark.parametrize("good", ["a@b.test", "Waybill <no-reply@mail.b.test>", "Größe & Co. <a@b.test>"])
def test_the_sender_setting_is_an_address_with_or_without_a_name(good: str) -> None:
    assert load({"WAYBILL_SYSTEM_FROM": good}).settings.system_from == good


@pytest.mark.parametrize(
    "bad", ["b.test", "A <a@b.test", "a@b.test\r\nBcc: c@d.test", "a@b.test, c@d.test", "<a@b.test>"]
)
def test_a_sender_setting_that_is_no_address_is_refused(bad: str) -> None:
    with pytest.raises(BadSetting, match="WAYBILL_SYSTEM_FROM"):
        load({"WAYBILL_SYSTEM_FROM": bad})
