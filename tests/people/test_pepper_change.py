"""A change of the key pepper: with both peppers all that was made under the old one works, and moves to the new one."""

import asyncio
import base64
import hashlib
from typing import Any

import asyncpg
import dkim
import msgspec
import orjson
import pyotp
import pytest

from engine.accounts.delivery_certificates import store as certificate_keys
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.secrets import Pepper, Unsealable, derived, seal
from engine.base.settings import Settings
from engine.codes.verifications import service as verifications
from engine.codes.verifications.rules import CodeKeys
from engine.delivery.sealed_mail import MailSealer
from engine.events.webhooks import service as webhooks
from engine.events.webhooks.post_options import PostOptions
from engine.mail import feedback_headers, return_path, unsubscribe_token
from engine.people.api_keys import rules as key_rules
from engine.people.api_keys.key_auth import Keys
from engine.people.identity import rules as identity
from engine.people.identity.types import SignInStep
from engine.people.people import challenge
from engine.people.second_factor import rules as factor_rules
from engine.people.second_factor import service as second_factor
from engine.people.second_factor import store as factors
from engine.people.second_factor.rules import Factor
from engine.people.sessions.rules import Device
from engine.people.sessions.session_auth import SessionAuth
from engine.people.tokens import rules as token_rules
from engine.people.tokens import store as tokens
from engine.receiving.analytics import delivery_page
from engine.retention import reseal
from engine.sending.agent_sends import service as agent_sends
from engine.sending.agent_sends.types import NewAgentSend
from engine.sending.domains import reports
from engine.sending.domains import service as domains
from engine.sending.domains import store as domain_store
from ops.commands.pepper import advice, report
from ops.doctor.peppers import peppers
from tests.harness import patience
from tests.harness.accounts import PEPPER, TestAccount, make_account
from tests.harness.api import Api
from tests.harness.codes import code_of, queued, start
from tests.harness.outbound import world
from tests.harness.people import TestPerson, make_person
from tests.harness.receiver import Receiver, World, verify

ALONE = Pepper("the pepper after the change")
BOTH = Pepper(ALONE, PEPPER)
SECRET = factor_rules.new_secret()
DEVICE = Device.of("127.0.0.1", "tests")


def changed(settings: Settings, pepper: Pepper = BOTH) -> Settings:
    """Settings of a host with these peppers."""
    return msgspec.structs.replace(settings, key_pepper=str(pepper), key_pepper_previous=pepper.previous)


class People(msgspec.Struct):
    """The services that `second_factor.proven` takes."""

    pool: asyncpg.Pool
    settings: Settings
    passwords: Any = None
    limits: Any = None


async def enrolled(pool: asyncpg.Pool, account: TestAccount, code: str) -> TestPerson:
    """A person with an authenticator app and one recovery code, both under the old pepper."""
    ann = await make_person(pool, account.id)
    sealed = factor_rules.sealed(PEPPER, ann.id, SECRET)
    await pool.execute("UPDATE users SET totp_sealed = $2, totp_enabled_at = now() WHERE id = $1", ann.id, sealed)
    async with pool.acquire() as connection:
        digest = factor_rules.recovery_digest(PEPPER, ann.id, code)
        await factors.INSERT_CODES.execute(connection, ann.id, [digest], PEPPER.fingerprint)
    return ann


async def fill(pool: asyncpg.Pool) -> TestAccount:
    """Store a secret under the old pepper in each sealed column, two for signing keys, and one digest of each kind."""
    account = await make_account(pool)
    await enrolled(pool, account, "abcdefghjkmn")
    hook = await webhooks.create(
        pool, account.id, url="http://127.0.0.1:9/", event_types=(), pepper=PEPPER,
        options=PostOptions(headers={"X-A": "1"}),
    )  # fmt: skip
    await webhooks.rotate(pool, account.id, hook.row.id, pepper=PEPPER, at=clock.now())
    domain = await pool.fetchval("SELECT id FROM domains WHERE account_id = $1", account.id)
    key = derived(PEPPER, "certificates")
    async with pool.acquire() as connection:
        await domain_store.keep_token(connection, account.id, "cloudflare", pepper=PEPPER)
    await certificate_keys.rotate(pool, PEPPER, clock.now())
    await pool.execute("INSERT INTO acme_accounts VALUES ('https://ca.test', $1)", seal(key, b"a", b"https://ca.test"))
    await pool.execute(
        "INSERT INTO tls_certificates (host, domain_id, sealed_key, due_at) VALUES ('mta-sts.a.test', $1, $2, now())",
        domain, seal(key, b"b", b"mta-sts.a.test"),
    )  # fmt: skip
    message = ids.uuid7()
    await pool.execute(
        "INSERT INTO content_keys (message_id, account_id, sealed_key, hours) VALUES ($1, $2, $3, 0)",
        message, account.id, MailSealer(PEPPER).seal_apart(message, b"Hi")[1],
    )  # fmt: skip
    asked = NewAgentSend(
        key_id=await pool.fetchval("SELECT id FROM api_keys WHERE account_id = $1", account.id), agent=None,
        digest=b"d" * 32, sender=account.sender, subject="Hi", recipients=["ann@people.test"], email=b"{}",
    )  # fmt: skip
    await agent_sends.ask(pool, account.id, asked, PEPPER, clock.now())
    return account


async def counted(pool: asyncpg.Pool, pepper: Pepper) -> dict[str, tuple[int, int, int]]:
    """Present, previous and unreadable secrets by kind."""
    return {one.what: (one.present, one.previous, one.unreadable) for one in await reseal.count(pool, pepper)}


# -- digests ----------------------------------------------------------------------------------


async def test_a_key_under_the_previous_pepper_authenticates_and_moves_at_use(own_pool: asyncpg.Pool) -> None:
    account = await make_account(own_pool)
    presented = key_rules.parse(account.token)
    assert presented is not None
    assert (await counted(own_pool, BOTH))["API keys"] == (0, 1, 0)
    assert (await counted(own_pool, ALONE))["API keys"] == (0, 0, 1)
    keys = Keys(own_pool, BOTH)

    assert (await keys.caller(presented, None)).account_id == account.id
    wrong = msgspec.structs.replace(presented, secret="x" * len(presented.secret))
    with pytest.raises(Refusal):
        await keys.caller(wrong, None)
    await keys.write_last_uses()

    assert (await keys.caller(presented, None)).account_id == account.id
    assert (await counted(own_pool, ALONE))["API keys"] == (1, 0, 0)
    assert (await Keys(own_pool, ALONE).caller(presented, None)).account_id == account.id
    with pytest.raises(Refusal):
        await Keys(own_pool, PEPPER).caller(presented, None)


async def test_a_host_that_still_has_the_old_order_moves_nothing_back(own_pool: asyncpg.Pool) -> None:
    await own_pool.execute("INSERT INTO installation (shards, pepper_print) VALUES (16, $1)", PEPPER.fingerprint)
    account = await make_account(own_pool)
    presented = key_rules.parse(account.token)
    assert presented is not None
    keys = Keys(own_pool, BOTH)  # this host's present pepper is not the installation's

    await keys.caller(presented, None)
    await keys.write_last_uses()

    assert await reseal.reseal(own_pool, BOTH) == 0
    assert (await Keys(own_pool, PEPPER).caller(presented, None)).account_id == account.id


async def test_a_session_under_the_previous_pepper_stays_signed_in_and_moves_at_use(pool: asyncpg.Pool) -> None:
    ann = await make_person(pool, (await make_account(pool)).id)
    sessions = SessionAuth(pool, BOTH)

    known = await sessions.person(ann.secret, DEVICE)
    await sessions.drain()

    assert known is not None
    assert known.csrf_tokens[1] == ann.csrf  # a page that was loaded before the change
    alone = await SessionAuth(pool, ALONE).person(ann.secret, DEVICE)
    assert alone is not None
    assert alone.csrf == known.csrf != ann.csrf
    assert await SessionAuth(pool, PEPPER).person(ann.secret, DEVICE) is None


async def test_second_factors_and_recovery_codes_work_under_the_previous_pepper(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    ann = await enrolled(pool, await make_account(pool), "abcdefghjkmn")
    both, alone = People(pool, changed(settings)), People(pool, changed(settings, ALONE))
    shown = pyotp.TOTP(factor_rules.shown_secret(SECRET).replace(" ", "")).now()

    assert await second_factor.proven(alone, ann.id, shown, clock.now()) is None
    assert await second_factor.proven(alone, ann.id, "abcdefghjkmn", clock.now()) is None
    assert await second_factor.proven(both, ann.id, shown, clock.now()) is Factor.TOTP
    assert await second_factor.proven(both, ann.id, "abcdefghjkmn", clock.now()) is Factor.RECOVERY


async def test_codes_under_the_previous_pepper_are_right_and_their_mail_opens(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    made = await start(api, account)
    row = await queued(pool, ids.parse_id(ids.Kind.MESSAGE, made["messageId"]))
    with pytest.raises(Unsealable):
        MailSealer(ALONE).open(row)
    assert [address for _, address in MailSealer(BOTH).open(row)] == ["ann@people.test"]
    assert row.mime is not None
    assert b"Subject:" in row.mime

    named, code = ids.parse_id(ids.Kind.VERIFICATION, made["id"]), await code_of(pool, made["messageId"])
    status, _ = await verifications.check(pool, CodeKeys(ALONE), account.id, named, code)
    assert status == "pending"
    status, _ = await verifications.check(pool, CodeKeys(BOTH), account.id, named, code)
    assert status == "approved"


# -- tokens -----------------------------------------------------------------------------------


def test_tokens_under_the_previous_pepper_are_genuine_and_new_ones_are_under_the_present_one() -> None:
    id_ = ids.uuid7()
    path, cfbl, link = return_path.key_of, feedback_headers.cfbl_key, unsubscribe_token.key_of
    for made, right in ((PEPPER, BOTH), (BOTH, ALONE)):
        address = return_path.return_path(path(made), id_, 1, "b.test")
        assert return_path.origin(path(right), address) == return_path.ReturnPathOrigin(id_, 1)
        assert return_path.origin(path(Pepper("another pepper")), address) is None
        value = feedback_headers.cfbl_feedback_id(cfbl(made), id_)
        assert feedback_headers.cfbl_origin(cfbl(right), value) is not None
        assert unsubscribe_token.link_of(link(right), unsubscribe_token.token(link(made), id_)) == id_
        assert CodeKeys(right).fits_link(CodeKeys(made).link(id_, 1), id_, 1)
        assert not CodeKeys(right).fits_link(CodeKeys(made).link(id_, 1), id_, 2)
        step = identity.token_of(made, SignInStep.STATE, id_)
        assert identity.step_of(right, SignInStep.STATE, step) == id_
        assert identity.pepper_of(right, SignInStep.STATE, id_, step) == made
        at = clock.now()
        cursor = delivery_page.cursor(made, id_, at.date(), 7)
        assert delivery_page.start(right, id_, 7, cursor, at)[1] == 7
    with pytest.raises(Refusal):
        delivery_page.start(ALONE, id_, 7, delivery_page.cursor(PEPPER, id_, at.date(), 7), at)


def test_report_addresses_under_the_previous_pepper_are_genuine(settings: Settings) -> None:
    domain = ids.uuid7()
    old, new = domains.identity(settings).report_key, domains.identity(changed(settings)).report_key
    address = reports.report_address(old, "dmarc", domain, "mail.test")

    assert reports.reported_domain(new, address) == ("dmarc", domain)
    assert reports.report_address(new, "dmarc", domain, "mail.test") != address


def test_a_challenge_of_before_the_change_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenge, "EFFORT", 100)
    made = challenge.make(PEPPER, clock.now())
    number = next(n for n in range(101) if _sha256(f"{made.salt}{n}") == made.challenge)
    solved = {"algorithm": made.algorithm, "challenge": made.challenge, "number": number, "salt": made.salt}
    solution = _base64(solved | {"signature": made.signature})

    assert challenge.checked(BOTH, solution)
    with pytest.raises(Refusal):
        challenge.checked(ALONE, solution)


async def test_a_mail_that_was_queued_before_the_change_carries_the_stored_token(pool: asyncpg.Pool) -> None:
    ann = await make_person(pool, (await make_account(pool)).id)
    old, new = ids.uuid7(), ids.uuid7()
    async with pool.acquire() as connection:
        for pepper, mail, purpose in (
            (PEPPER, old, token_rules.Purpose.SIGN_IN), (BOTH, new, token_rules.Purpose.CHANGE_EMAIL),
        ):  # fmt: skip
            await tokens.issue(connection, token_rules.token_of(pepper, mail), purpose, ann.id, at=clock.now())

    assert await tokens.pepper_of(pool, BOTH, old) == PEPPER
    assert await tokens.pepper_of(pool, BOTH, new) == BOTH


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _base64(value: object) -> str:
    return base64.b64encode(orjson.dumps(value)).decode()


# -- seals ------------------------------------------------------------------------------------


async def test_every_sealed_column_moves_to_the_present_pepper(own_pool: asyncpg.Pool, settings: Settings) -> None:
    await fill(own_pool)
    names = {column.name for column in reseal.SEALED}
    keys = await own_pool.fetchval("SELECT count(*) FROM domain_keys")
    before, early = await counted(own_pool, BOTH), await counted(own_pool, ALONE)
    assert {name: before[name] for name in names} == {
        name: (0, keys if name == "signing keys" else 1, 0) for name in names
    }
    assert all(early[name] == (0, 0, before[name][1]) for name in names)
    finding = await peppers(own_pool, changed(settings, ALONE))
    assert not finding.ok
    assert all(what in finding.found for what in {*names, "API keys", "recovery codes"})
    assert "WAYBILL_KEY_PEPPER_PREVIOUS" in (finding.mend or "")
    assert "still under the previous pepper" in (await peppers(own_pool, changed(settings))).found

    assert await reseal.reseal(own_pool, BOTH) == keys + len(names) - 1
    assert await reseal.reseal(own_pool, BOTH) == 0

    after = await counted(own_pool, ALONE)
    assert all(after[name] == (before[name][1], 0, 0) for name in names)


async def test_a_batch_ends_with_the_last_value_of_its_last_key(
    own_pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reseal, "BATCH", 1)
    for _ in range(3):
        await make_account(own_pool)
    keys = await own_pool.fetchval("SELECT count(*) FROM domain_keys")

    assert await reseal.reseal(own_pool, BOTH) == keys > 3
    assert (await counted(own_pool, ALONE))["signing keys"] == (keys, 0, 0)


async def test_no_sealed_column_is_left_out(pool: asyncpg.Pool) -> None:
    rows = await pool.fetch(
        "SELECT table_name || '.' || column_name AS name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'bytea' AND column_name LIKE '%sealed%'"
    )

    assert {row["name"] for row in rows} == {column.place for column in reseal.SEALED}


async def test_webhooks_are_signed_with_secrets_of_before_the_change(
    own_pool: asyncpg.Pool, settings: Settings
) -> None:
    here = World(settings, own_pool)
    async with Receiver() as receiver:
        endpoint = await here.endpoint(receiver.url)
        async with here.posting(key_pepper=str(ALONE), key_pepper_previous=str(PEPPER)):
            await here.event(endpoint.account)
            await patience.until(lambda: len(receiver.got) == 1)
        await reseal.reseal(own_pool, BOTH)
        async with here.posting(key_pepper=str(ALONE)):
            await here.event(endpoint.account)
            await patience.until(lambda: len(receiver.got) == 2)

    for post in receiver.got:
        verify(post, endpoint.secret)


async def test_mail_is_signed_with_dkim_keys_of_before_the_change(settings: Settings, own_database: str) -> None:
    async with world(settings, own_database) as here:
        peppers_of = {"key_pepper": str(ALONE), "key_pepper_previous": str(PEPPER)}
        mta = await here.mta(**peppers_of)
        await here.until_step(await here.send("ann@peer.test"), "delivered")
        await mta.stop()
        here.mtas.clear()
        await reseal.reseal(here.pool, BOTH)
        await here.mta("mta-2", key_pepper=str(ALONE))
        await here.until_step(await here.send("bob@peer.test"), "delivered")
        keys = await here.pool.fetch("SELECT selector, public_txt FROM domain_keys")
        mails = [one.content for one in here.sink.messages]

    texts = {f"{row['selector']}._domainkey.{here.account.domain}.": row["public_txt"].encode() for row in keys}
    assert len(mails) == 2
    for content in mails:
        find = lambda name, timeout=5: texts[name.decode() if isinstance(name, bytes) else name]  # noqa: E731
        assert await asyncio.to_thread(dkim.verify, content, dnsfunc=find)


async def test_the_report_says_when_the_previous_pepper_may_go(own_pool: asyncpg.Pool, settings: Settings) -> None:
    await fill(own_pool)
    both = changed(settings)
    assert advice(await report(own_pool, both)).startswith("Keep the previous pepper")
    assert advice(await report(own_pool, changed(settings, ALONE))).startswith("Some secrets open under no pepper")
    await own_pool.execute("DELETE FROM api_keys")
    await own_pool.execute("DELETE FROM recovery_codes")
    await own_pool.execute(
        "INSERT INTO installation (shards, pepper_print, pepper_changed_at) VALUES (16, $1, now())", BOTH.fingerprint
    )
    await own_pool.execute("DELETE FROM sessions")
    await reseal.reseal(own_pool, BOTH)

    assert advice(await report(own_pool, both)).startswith("Nothing stored needs the previous pepper, but links")
    await own_pool.execute("UPDATE installation SET pepper_changed_at = now() - interval '61 days'")
    assert advice(await report(own_pool, both)).startswith("The previous pepper can be removed")
