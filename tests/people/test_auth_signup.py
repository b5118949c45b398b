"""Signing up: an account with its owner, the same answer for an address that is taken, proof of work when asked for."""

import asyncio
import base64
from datetime import timedelta

import asyncpg
import orjson
import pytest
from altcha import v1 as altcha
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.people.people import challenge
from engine.people.people.rules import check_password
from engine.people.tokens.rules import digest_of, token_of
from tests.conftest import ServeApi
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import make_person

PASSWORD = "lighthouse-mango-tractor-88"


def somebody() -> str:
    return f"{ids.encode(ids.uuid7())}@people.test"


async def sign_up(api: Api, email: str, **more: object) -> Answer:
    return await api.post("/v1/auth/signup", json={"email": email, "password": PASSWORD, **more})


async def mail_to(pool: asyncpg.Pool, email: str) -> list[asyncpg.Record]:
    return list(await pool.fetch("SELECT id, kind FROM system_mail WHERE address = $1 ORDER BY created_at, id", email))


async def test_signing_up_makes_account_owner_and_transactional_stream(api: Api, pool: asyncpg.Pool) -> None:
    email, name = somebody(), "Lemon Works \U0001f469\u200d\U0001f4bb"  # an emoji that a format character joins

    answer = await sign_up(api, email, accountName=name)

    assert (answer.status, answer.json) == (201, {"status": "verification_sent", "email": email})
    assert not answer.set_cookies
    (row,) = await pool.fetch(
        "SELECT a.id, a.name, a.plan, a.status, m.role, u.email_verified_at, u.id AS user_id FROM users u "
        "JOIN members m ON m.user_id = u.id JOIN accounts a ON a.id = m.account_id WHERE u.email = $1",
        email,
    )
    assert (row["name"], row["plan"], row["status"]) == (name, "free", "active")
    assert (row["role"], row["email_verified_at"]) == ("owner", None)
    assert await pool.fetchval("SELECT slug FROM streams WHERE account_id = $1", row["id"]) == "transactional"
    payload = await pool.fetchval("SELECT payload FROM events WHERE account_id = $1 AND seq = 1", row["id"])
    assert orjson.loads(payload)["detail"]["owner"] == ids.format_id(ids.Kind.USER, row["user_id"])


async def test_whoever_signed_up_signs_in_with_the_same_password(api: Api) -> None:
    email = somebody()
    await sign_up(api, email)

    answer = await api.post("/v1/auth/login", json={"email": email, "password": PASSWORD})

    assert answer.status == 200
    assert answer.json["user"]["emailVerified"] is False


async def test_the_mail_that_asks_for_confirmation_carries_a_token_that_no_table_holds(
    api: Api, pool: asyncpg.Pool
) -> None:
    email = somebody()
    await sign_up(api, email)

    (mail,) = await mail_to(pool, email)
    assert mail["kind"] == "verify_email"
    token = token_of(PEPPER, mail["id"])
    (stored,) = await pool.fetch("SELECT * FROM single_use_tokens WHERE digest = $1", digest_of(token))
    assert stored["purpose"] == "verify_email"
    assert stored["expires_at"] - stored["created_at"] == timedelta(hours=48)
    assert token not in str(dict(stored))


async def test_a_taken_address_hears_the_same_and_only_its_mailbox_is_told(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    ann = await make_person(pool, account.id)
    fresh = somebody()

    taken, free = await sign_up(api, ann.email), await sign_up(api, fresh)

    assert taken.status == free.status == 201
    assert taken.body.replace(ann.email.encode(), b"") == free.body.replace(fresh.encode(), b"")
    assert set(taken.headers) == set(free.headers)
    assert [mail["kind"] for mail in await mail_to(pool, ann.email)] == ["address_taken"]
    assert await pool.fetchval("SELECT count(*) FROM members WHERE user_id = $1", ann.id) == 1


async def test_sign_ups_with_a_taken_address_do_not_flood_its_mailbox(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    ann = await make_person(pool, account.id)

    for _ in range(5):
        assert (await sign_up(api, ann.email)).status == 201

    assert len(await mail_to(pool, ann.email)) == 3


async def test_of_many_sign_ups_at_once_with_one_address_one_makes_the_account(api: Api, pool: asyncpg.Pool) -> None:
    email = somebody()

    answers = await asyncio.gather(*[sign_up(api, email) for _ in range(4)])

    assert {answer.status for answer in answers} == {201}
    assert await pool.fetchval("SELECT count(*) FROM users WHERE email = $1", email) == 1
    assert await pool.fetchval(
        "SELECT count(*) FROM accounts a JOIN members m ON m.account_id = a.id JOIN users u ON u.id = m.user_id "
        "WHERE u.email = $1", email,
    ) == 1  # fmt: skip


@pytest.mark.parametrize("password", ["short", "password12", "1234567890", "qwertyuiop", "aaaaaaaaaaaa"])
async def test_a_password_that_is_short_or_guessable_is_refused(api: Api, pool: asyncpg.Pool, password: str) -> None:
    email = somebody()
    answer = await api.post("/v1/auth/signup", json={"email": email, "password": password})

    assert (answer.status, answer.error["field"]) == (400, "password")
    assert await mail_to(pool, email) == []


def test_a_password_made_of_the_persons_own_words_is_refused() -> None:
    with pytest.raises(Refusal):
        check_password("lemonworks7", ["lemonworks"])


def test_a_long_password_is_judged_in_little_time() -> None:
    check_password("correct horse battery staple " * 8)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"accountName": ""}, "accountName"),
        ({"accountName": "x" * 121}, "accountName"),
        ({"accountName": "a\x00b"}, "accountName"),
        ({"accountName": "  "}, "accountName"),
        ({"challengeToken": "x" * 4_001}, "challengeToken"),
        ({"plan": "enterprise"}, "plan"),
    ],
)
async def test_a_malformed_sign_up_names_the_field(api: Api, more: dict[str, object], field: str) -> None:
    answer = await sign_up(api, somebody(), **more)

    assert (answer.status, answer.error["field"]) == (400, field)


async def test_a_sign_up_needs_an_address(api: Api) -> None:
    answer = await api.post("/v1/auth/signup", json={"email": "not an address", "password": PASSWORD})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (422, "invalid_address", "email")


# -- proof of work ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asking(settings: Settings, serve: ServeApi) -> Api:
    """An API that asks for a proof of work."""
    return serve(structs.replace(settings, signup_challenge="required"))


async def solved(api: Api) -> str:
    """A fresh challenge's solution, found by ALTCHA's own solver."""
    given = (await api.get("/v1/auth/signup/challenge")).json
    found = await asyncio.to_thread(
        altcha.solve_challenge, given["challenge"], given["salt"], given["algorithm"], given["maxnumber"]
    )
    assert found is not None
    payload = {name: given[name] for name in ("algorithm", "challenge", "salt", "signature")} | {"number": found.number}
    return base64.b64encode(orjson.dumps(payload)).decode()


async def test_a_solved_challenge_lets_in_once(asking: Api, pool: asyncpg.Pool) -> None:
    solution = await solved(asking)
    first, second = somebody(), somebody()

    assert (await sign_up(asking, first, challengeToken=solution)).status == 201
    again = await sign_up(asking, second, challengeToken=solution)

    assert (again.status, again.error["field"]) == (400, "challengeToken")
    assert await pool.fetchval("SELECT count(*) FROM users WHERE email = $1", second) == 0


@pytest.mark.parametrize(
    "token",
    [None, "", "x", *(base64.b64encode(text).decode() for text in (b"{}", b"null", b"[" * 2_900, b'{"algorithm":[]}'))],
    ids=["none", "empty", "x", "object", "null", "nested", "list"],
)  # fmt: skip
async def test_what_solves_no_challenge_is_refused(asking: Api, token: str | None) -> None:
    answer = await sign_up(asking, somebody(), **({} if token is None else {"challengeToken": token}))

    assert (answer.status, answer.error["field"]) == (400, "challengeToken")


async def test_a_forged_challenge_is_refused(asking: Api) -> None:
    options = altcha.ChallengeOptions("SHA-256", 10, hmac_key=b"not ours", number=5)
    made = altcha.create_challenge(options)
    payload = {"algorithm": "SHA-256", "challenge": made.challenge, "salt": made.salt, "signature": made.signature,
               "number": 5}  # fmt: skip

    answer = await sign_up(asking, somebody(), challengeToken=base64.b64encode(orjson.dumps(payload)).decode())

    assert answer.status == 400


def test_a_challenge_that_is_too_old_is_refused() -> None:
    made = challenge.make(PEPPER, clock.now() - challenge.LIFETIME - timedelta(seconds=1))
    found = altcha.solve_challenge(made.challenge, made.salt, "SHA-256", made.maxnumber)
    assert found is not None
    payload = {"algorithm": made.algorithm, "challenge": made.challenge, "salt": made.salt,
               "signature": made.signature, "number": found.number}  # fmt: skip

    with pytest.raises(Refusal):
        challenge.checked(PEPPER, base64.b64encode(orjson.dumps(payload)).decode())


async def test_without_the_setting_no_challenge_is_asked_for(api: Api) -> None:
    assert (await api.get("/v1/auth/signup/challenge")).json["required"] is False


async def test_closed_sign_up_lets_nobody_in(settings: Settings, serve: ServeApi) -> None:
    answer = await sign_up(serve(structs.replace(settings, signup="closed")), somebody())

    assert (answer.status, answer.error["type"]) == (403, "forbidden")
