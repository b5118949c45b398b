"""Verification of addresses and password resets: links work once, and answers reveal nothing."""

import asyncio
import statistics
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.people.sessions import store as sessions
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import Purpose, token_of
from tests.harness.account_log import kinds_mailed
from tests.harness.accounts import PEPPER, add_key, make_account
from tests.harness.api import Answer, Api, serving
from tests.harness.canaries import note, note_phrase
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in

NEW = note_phrase("an entirely different passphrase")
GUESSABLE = "password123"


@pytest.fixture
async def ann(pool: asyncpg.Pool) -> TestPerson:
    """The owner of an account, whose address is not confirmed yet."""
    return await make_person(pool, (await make_account(pool)).id, verified=False)


async def link(
    pool: asyncpg.Pool, person: TestPerson, purpose: Purpose, *, detail: str | None = None, hours_ago: float = 0
) -> str:
    """A token as a mail carries it."""
    token = note(token_of(PEPPER, ids.uuid7()))
    at = clock.now() - timedelta(hours=hours_ago)
    async with pool.acquire() as connection:
        await tokens.issue(connection, token, purpose, person.id, at=at, detail=detail or person.email)
    return token


async def events(pool: asyncpg.Pool, account: UUID) -> list[str]:
    rows = await pool.fetch("SELECT type FROM events WHERE account_id = $1 ORDER BY seq", account)
    return [row["type"] for row in rows if row["type"] != "member.signed_in"]


async def is_verified(pool: asyncpg.Pool, person: TestPerson) -> bool:
    return await pool.fetchval("SELECT email_verified_at FROM users WHERE id = $1", person.id) is not None


async def may_sign_in(api: Api, address: str, password: str) -> bool:
    answer = await api.post("/v1/auth/login", json={"email": address, "password": password})
    assert answer.status in {200, 401}, answer
    return answer.status == 200


async def lives(api: Api, person: TestPerson) -> bool:
    """Whether the person's session does."""
    return bool((await api.get("/v1/auth/me", person=person)).json["signedIn"])


def refused(answer: Answer, status: int, kind: str) -> None:
    assert (answer.status, answer.error["type"]) == (status, kind), answer


# -- confirming an address ---------------------------------------------------------------------------


async def test_a_link_confirms_its_persons_address_once(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = await link(pool, ann, Purpose.VERIFY_EMAIL)
    answer = await api.post("/v1/auth/verify-email", json={"token": token})
    again = await api.post("/v1/auth/verify-email", json={"token": token})

    assert (answer.status, answer.body) == (204, b"")
    assert await is_verified(pool, ann)
    refused(again, 400, "invalid_request")
    assert again.error["field"] == "token"
    assert await events(pool, ann.account_id) == ["member.email_verified"]


@pytest.mark.parametrize("case", ["unknown", "late", "of another purpose", "of an old address", "malformed", "hostile"])
async def test_every_bad_token_gets_the_same_answer(case: str, api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = {
        "unknown": token_of(PEPPER, ids.uuid7()),
        "late": await link(pool, ann, Purpose.VERIFY_EMAIL, hours_ago=48.1),
        "of another purpose": await link(pool, ann, Purpose.RESET_PASSWORD),
        "malformed": "x",
        "hostile": "\u0000\U0001f600' OR 1=1 --",
    }.get(case)
    if token is None:
        token = await link(pool, ann, Purpose.VERIFY_EMAIL, detail="before@people.test")
    answer = await api.post("/v1/auth/verify-email", json={"token": token})

    refused(answer, 400, "invalid_request")
    assert answer.error["message"] == "This link was already used or has expired. Request a new one."
    assert not await is_verified(pool, ann)


@pytest.mark.parametrize("body", [b'{"token": 1}', b"{}", b'{"token": "a", "more": 1}', b'{"token": "\\ud800"}', b"["])
async def test_a_body_that_is_none_is_refused_by_name(body: bytes, api: Api) -> None:
    for path in ("/v1/auth/verify-email", "/v1/auth/email/change/confirm", "/v1/auth/password/reset"):
        refused(await api.post(path, body=body), 400, "invalid_request")


async def test_another_link_is_sent_and_the_earlier_one_is_dead(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    first = await link(pool, ann, Purpose.VERIFY_EMAIL)
    answer = await api.post("/v1/auth/verify-email/send", person=ann)
    mail = await pool.fetchval("SELECT id FROM system_mail WHERE address = $1", ann.email)

    assert (answer.status, answer.json) == (202, {"status": "accepted"})
    assert await kinds_mailed(pool, ann.email) == ["verify_email"]
    refused(await api.post("/v1/auth/verify-email", json={"token": first}), 400, "invalid_request")
    assert (await api.post("/v1/auth/verify-email", json={"token": token_of(PEPPER, mail)})).status == 204


async def test_a_confirmed_address_needs_no_link(api: Api, pool: asyncpg.Pool) -> None:
    bob = await make_person(pool, (await make_account(pool)).id)
    answer = await api.post("/v1/auth/verify-email/send", person=bob)

    refused(answer, 409, "invalid_state")
    assert answer.error["status"] == "verified"
    assert await kinds_mailed(pool, bob.email) == []


async def test_a_person_gets_five_links_a_minute(api: Api, ann: TestPerson) -> None:
    answers = [await api.post("/v1/auth/verify-email/send", person=ann) for _ in range(6)]

    assert [answer.status for answer in answers] == [202] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) >= 1


async def test_what_a_person_does_for_themselves_takes_no_key_and_no_forgery(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    key = await add_key(pool, ann.account_id)
    forged = structs.replace(ann, csrf="x" * 43)
    bodies = {
        "/v1/auth/verify-email/send": None,
        "/v1/auth/email/change": {"newEmail": "new@people.test", "currentPassword": PASSWORD},
        "/v1/auth/password/change": {"newPassword": NEW, "currentPassword": PASSWORD},
    }
    for path, body in bodies.items():
        refused(await api.post(path, key, body), 403, "forbidden")
        refused(await api.post(path, json=body), 401, "unauthorized")
        refused(await api.post(path, json=body, person=forged), 403, "csrf_failed")
    assert await kinds_mailed(pool, ann.email) == []


# -- a forgotten password ----------------------------------------------------------------------------


async def test_a_known_and_an_unknown_address_get_identical_answers(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    known = await api.post("/v1/auth/password/forgot", json={"email": f"  {ann.email.upper()} "})
    unknown = await api.post("/v1/auth/password/forgot", json={"email": f"nobody-{ann.email}"})

    varying = {"x-request-id", "date", "ratelimit-remaining", "ratelimit-reset"}
    assert (known.status, known.body) == (unknown.status, unknown.body) == (202, b'{"status":"accepted"}')
    assert {k: v for k, v in known.headers.items() if k not in varying} == {
        k: v for k, v in unknown.headers.items() if k not in varying
    }
    assert await kinds_mailed(pool, ann.email) == ["forgot_password"]
    assert await kinds_mailed(pool, f"nobody-{ann.email}") == ["forgot_password"]


async def test_the_time_of_the_answer_tells_nothing(api: Api, ann: TestPerson) -> None:
    took: dict[str, list[float]] = {ann.email: [], f"nobody-{ann.email}": []}
    for _ in range(60):
        for address, times in took.items():
            began = time.perf_counter()
            assert (await api.post("/v1/auth/password/forgot", json={"email": address})).status == 202
            times.append(time.perf_counter() - began)

    known, unknown = (statistics.median(times) for times in took.values())
    assert abs(known - unknown) < max(0.002, 0.25 * max(known, unknown))


@pytest.mark.parametrize("address", ["no address", "a@b@c", "x" * 300 + "@a.test", "Ann <a@b.test>", "a\u0000@b.test"])
async def test_what_is_no_address_is_told_so(address: str, api: Api) -> None:
    refused(await api.post("/v1/auth/password/forgot", json={"email": address}), 422, "invalid_address")


async def test_a_link_sets_a_password_once_and_ends_every_session(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    other = await signed_in(pool, ann.id, ann.account_id, ann.email)
    change = await link(pool, ann, Purpose.CHANGE_EMAIL, detail="thief@people.test")
    token = await link(pool, ann, Purpose.RESET_PASSWORD)
    answer = await api.post("/v1/auth/password/reset", json={"token": token, "password": NEW})
    again = await api.post("/v1/auth/password/reset", json={"token": token, "password": f"{NEW} again"})
    places = await sessions.PLACES.records(pool, ann.id)

    assert (answer.status, answer.body, answer.set_cookies) == (204, b"", ())
    assert [row["address"] for row in places] == ["127.0.0.1"]  # known from there: no stranger's tries keep them out
    refused(again, 400, "invalid_request")
    assert not await lives(api, ann)
    assert not await lives(api, other)
    assert await may_sign_in(api, ann.email, NEW)
    assert not await may_sign_in(api, ann.email, PASSWORD)
    assert await is_verified(pool, ann)  # whoever has the link reads the mailbox
    assert await kinds_mailed(pool, ann.email) == ["password_changed"]
    changed = ["api_key.revoked", "member.email_verified", "member.password_reset"]
    assert await events(pool, ann.account_id) == changed
    refused(await api.post("/v1/auth/email/change/confirm", json={"token": change}), 400, "invalid_request")


async def test_a_guessable_password_leaves_the_link_good(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = await link(pool, ann, Purpose.RESET_PASSWORD)
    local = ann.email.partition("@")[0]
    for weak in (GUESSABLE, "short", local, "nul\u0000 in a long passphrase", "x" * 257):
        answer = await api.post("/v1/auth/password/reset", json={"token": token, "password": weak})
        refused(answer, 400, "invalid_request")
        assert answer.error["field"] == "password"
        assert weak not in answer.error["message"]
    assert (await api.post("/v1/auth/password/reset", json={"token": token, "password": NEW})).status == 204


async def test_a_link_to_an_address_that_is_given_up_sets_nothing(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    token = await link(pool, ann, Purpose.RESET_PASSWORD, detail="before@people.test")
    answer = await api.post("/v1/auth/password/reset", json={"token": token, "password": NEW})

    refused(answer, 400, "invalid_request")
    assert await may_sign_in(api, ann.email, PASSWORD)


async def test_of_two_resets_at_once_one_counts(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = await link(pool, ann, Purpose.RESET_PASSWORD)
    answers = await asyncio.gather(
        *[api.post("/v1/auth/password/reset", json={"token": token, "password": f"{NEW} {n}"}) for n in range(4)]
    )

    assert sorted(answer.status for answer in answers) == [204, 400, 400, 400]


async def test_all_links_of_a_person_at_once_get_their_answers(api: Api, pool: asyncpg.Pool) -> None:
    """The person is locked before any token: none waits for another's end and is sent away."""
    for _ in range(6):
        bob = await make_person(pool, (await make_account(pool)).id, verified=False)
        links = {one: await link(pool, bob, one) for one in (Purpose.VERIFY_EMAIL, Purpose.RESET_PASSWORD)}
        change = await link(pool, bob, Purpose.CHANGE_EMAIL, detail=f"new-{bob.email}")
        body = {"currentPassword": PASSWORD, "newPassword": f"{NEW} too"}
        answers = await asyncio.gather(
            api.post("/v1/auth/verify-email", json={"token": links[Purpose.VERIFY_EMAIL]}),
            api.post("/v1/auth/email/change/confirm", json={"token": change}),
            api.post("/v1/auth/password/reset", json={"token": links[Purpose.RESET_PASSWORD], "password": NEW}),
            api.post("/v1/auth/password/change", json=body, person=bob),
        )

        assert {answer.status for answer in answers} <= {204, 400, 401}


async def with_factors(pool: asyncpg.Pool, person: TestPerson) -> None:
    await pool.execute("UPDATE users SET totp_sealed = '\\x00', totp_enabled_at = now() WHERE id = $1", person.id)
    await pool.execute("INSERT INTO recovery_codes (user_id, digest) VALUES ($1, '\\x01')", person.id)
    await pool.execute(
        "INSERT INTO passkeys (id, user_id, credential_id, public_key, sign_count, name, transports, backup_eligible,"
        " backed_up, created_at) VALUES ($1, $2, $3, '', 0, 'Key', '{}', false, false, now())",
        ids.uuid7(), person.id, person.id.bytes,
    )  # fmt: skip


async def factors(pool: asyncpg.Pool, person: TestPerson) -> tuple[int, ...]:
    row = await pool.fetchrow(
        "SELECT (SELECT count(*) FROM users WHERE id = $1 AND totp_enabled_at IS NOT NULL),"
        " (SELECT count(*) FROM recovery_codes WHERE user_id = $1), (SELECT count(*) FROM passkeys WHERE user_id = $1)",
        person.id,
    )
    return tuple(row or ())


async def test_a_reset_leaves_the_second_factor(api: Api, pool: asyncpg.Pool) -> None:
    bob = await make_person(pool, (await make_account(pool)).id)
    await with_factors(pool, bob)
    token = await link(pool, bob, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": token, "password": NEW})).status == 204
    assert await factors(pool, bob) == (1, 1, 1)


async def test_who_signs_up_with_the_address_of_another_leaves_no_way_in(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    await with_factors(pool, ann)  # by whoever signed up: nobody has shown yet that the mailbox is theirs
    token = await link(pool, ann, Purpose.RESET_PASSWORD)
    assert (await api.post("/v1/auth/password/reset", json={"token": token, "password": NEW})).status == 204

    assert await factors(pool, ann) == (0, 0, 0)
    assert not await lives(api, ann)
    assert await may_sign_in(api, ann.email, NEW)


async def test_a_person_on_two_accounts_is_written_down_in_both(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    second = await make_account(pool)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", second.id, ann.id)
    token = await link(pool, ann, Purpose.VERIFY_EMAIL)
    await api.post("/v1/auth/verify-email", json={"token": token})

    for account in (ann.account_id, second.id):
        payload = await pool.fetchval("SELECT payload FROM events WHERE account_id = $1 ORDER BY seq DESC", account)
        assert orjson.loads(payload)["detail"] == {"id": ann.public_id, "actor": ann.public_id}


async def test_guessing_tokens_and_asking_for_links_is_slowed_down(
    settings: Settings, api_log: Path, http: aiohttp.ClientSession
) -> None:
    own = structs.replace(settings, sign_in_rate=3, redis_url=f"{settings.redis_url}?db=5")
    with serving(own, api_log) as url:
        slow = Api(url, http)
        for path, body in (
            ("/v1/auth/verify-email", {"token": "x"}),
            ("/v1/auth/email/change/confirm", {"token": "x"}),
            ("/v1/auth/password/reset", {"token": "x", "password": NEW}),
            ("/v1/auth/password/forgot", {"email": "ann@people.test"}),
        ):
            answers = [await slow.post(path, json=body) for _ in range(4)]
            assert [answer.status for answer in answers][-1] == 429, path
            assert 429 not in [answer.status for answer in answers][:3], path
            refused(answers[-1], 429, "rate_limited")
            assert int(answers[-1].headers["retry-after"]) >= 1


async def test_a_token_is_nowhere_in_the_database(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    await api.post("/v1/auth/verify-email/send", person=ann)
    mail = await pool.fetchval("SELECT id FROM system_mail WHERE address = $1", ann.email)
    token = token_of(PEPPER, mail)
    for table in ("system_mail", "single_use_tokens"):
        rows = await pool.fetch(f"SELECT t::text AS row FROM {table} t")
        assert not any(token in row["row"] for row in rows)


async def test_a_mail_is_written_with_its_change_or_not_at_all(pool: asyncpg.Pool, ann: TestPerson) -> None:
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await enqueue(connection, SystemMailKind.PASSWORD_CHANGED, ann.email, at=clock.now())
        await transaction.rollback()
    assert await kinds_mailed(pool, ann.email) == []
