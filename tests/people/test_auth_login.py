"""Sign-in with a password: uniform refusals, and delays for guessing without locking accounts."""

import asyncio
import base64
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import orjson
import pytest
from altcha import v1 as altcha
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.people.log_in import STRANGERS, log_in, slow_down
from engine.people.open_session import Outdated, open_session, sign_out
from engine.people.people import challenge
from engine.people.people import store as people
from engine.people.sessions.rules import Device
from engine.store.passwords import LANES, MAX_WAITING, MEMORY_KIB, TIME_COST, Passwords
from engine.store.rate_limits import RateLimiter
from engine.store.redis import connect
from tests.conftest import ServeApi
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Api
from tests.harness.patience import PATIENCE_S
from tests.harness.people import PASSWORD, TestPerson, make_person


async def person_of(pool: asyncpg.Pool, role: str = "owner") -> TestPerson:
    account = await make_account(pool)
    return await make_person(pool, account.id, role)


async def test_address_and_password_open_a_session(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool, "admin")

    answer = await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    assert answer.status == 200
    (cookie,) = answer.set_cookies
    assert "; HttpOnly; SameSite=Lax" in cookie
    assert "Path=/" in cookie
    assert answer.json["user"]["email"] == ann.email
    assert answer.json["account"]["role"] == "admin"
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    assert (await api.post("/v1/auth/sessions/revoke-others", person=now)).status == 204


async def test_case_and_unicode_of_the_domain_do_not_matter(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    answer = await api.post("/v1/auth/login", json={"email": ann.email.upper(), "password": PASSWORD})

    assert answer.status == 200


async def test_every_wrong_pair_hears_the_same(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    account = await make_account(pool)
    without = await make_person(pool, account.id, password=None)
    wrong = [
        {"email": ann.email, "password": "wrong"},
        {"email": "nobody@people.test", "password": PASSWORD},
        {"email": without.email, "password": PASSWORD},
        {"email": ann.email, "password": PASSWORD + " "},
        {"email": ann.email, "password": "wrong", "code": "000000"},
    ]

    answers = [await api.post("/v1/auth/login", json=body) for body in wrong]

    assert {answer.status for answer in answers} == {401}
    assert {answer.error["type"] for answer in answers} == {"invalid_credentials"}
    assert len({answer.body for answer in answers}) == 1
    assert not any(answer.set_cookies for answer in answers)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"password": "x"}, "email"),
        ({"email": "a@b.test"}, "password"),
        ({"email": "a@b.test", "password": ""}, "password"),
        ({"email": "a@b.test", "password": "x" * 257}, "password"),
        ({"email": "a@b.test", "password": "x", "code": "1" * 33}, "code"),
        ({"email": "a@b.test", "password": "x", "admin": True}, "admin"),
        ({"email": "a" * 321, "password": "x"}, "email"),
        ({"email": 5, "password": "x"}, "email"),
    ],
)
async def test_a_malformed_sign_in_names_the_field(api: Api, body: dict[str, object], field: str) -> None:
    answer = await api.post("/v1/auth/login", json=body)

    assert (answer.status, answer.error["field"]) == (400, field)


@pytest.mark.parametrize("email", ["nobody", "a b@c.test", "Ann <ann@people.test>", "\x00@people.test"])
async def test_what_is_no_address_is_said_to_be_none(api: Api, email: str) -> None:
    answer = await api.post("/v1/auth/login", json={"email": email, "password": PASSWORD})

    assert (answer.status, answer.error["type"]) == (422, "invalid_address")


async def test_a_person_without_an_account_is_told_so(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await pool.execute("DELETE FROM members WHERE user_id = $1", ann.id)

    answer = await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


async def test_a_sign_in_leads_to_the_account_last_used(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    newer = await make_account(pool)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", newer.id, ann.id)

    answer = await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    assert answer.json["account"]["id"] != newer.public_id


async def test_a_hash_of_old_parameters_is_made_anew_at_sign_in(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    before = await pool.fetchval("SELECT password_hash FROM users WHERE id = $1", ann.id)

    await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    after = await pool.fetchval("SELECT password_hash FROM users WHERE id = $1", ann.id)
    assert after != before
    assert after.startswith(f"$argon2id$v=19$m={MEMORY_KIB},t={TIME_COST},p={LANES}$")


async def test_a_sign_in_stands_in_the_account_log(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await api.post("/v1/auth/login", json={"email": ann.email, "password": PASSWORD})

    payload = await pool.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'member.signed_in' ORDER BY seq DESC LIMIT 1",
        ann.account_id,
    )
    assert ann.public_id in payload
    assert ann.email not in payload


# -- guessing --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(settings: Settings, serve: ServeApi) -> Api:
    """An API that lets nobody try often."""
    return serve(structs.replace(settings, sign_in_rate=5))


async def test_after_five_tries_a_minute_the_sixth_waits(strict: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    answers = [await strict.post("/v1/auth/login", json={"email": ann.email, "password": "wrong"}) for _ in range(6)]

    assert [answer.status for answer in answers] == [401] * 5 + [429]
    assert answers[-1].error["type"] == "rate_limited"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


class Own(Struct):
    """What signing in works with, without an API around it: tests choose the networks that tries come from."""

    pool: asyncpg.Pool
    passwords: Passwords
    limits: RateLimiter
    settings: Settings


@pytest.fixture
async def own(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[Own]:
    assert settings.redis_url is not None
    client = connect(settings.redis_url, timeout_s=PATIENCE_S)
    passwords = Passwords()
    yield Own(pool, passwords, RateLimiter(client), structs.replace(settings, sign_in_rate=5))
    passwords.close()
    await client.aclose()


@pytest.mark.parametrize("signed_out", [False, True])
async def test_a_stranger_who_uses_up_the_tries_for_an_address_does_not_lock_its_person_out(
    own: Own, pool: asyncpg.Pool, *, signed_out: bool
) -> None:
    ann = await person_of(pool)
    home = Device.of("198.18.0.7", "browser")
    await pool.execute("UPDATE sessions SET address = $2 WHERE id = $1", ann.session_id, home.address)
    if signed_out:
        await sign_out(pool, PEPPER, ann.secret)
    for number in range(STRANGERS * own.settings.sign_in_rate):
        with pytest.raises(Refusal) as wrong:
            await log_in(own, ann.email, "wrong", None, Device.of(f"198.51.{number}.1", "robot"))
        assert wrong.value.kind is ErrorType.INVALID_CREDENTIALS

    with pytest.raises(Refusal) as refused:
        await log_in(own, ann.email, PASSWORD, None, Device.of("203.0.113.9", "robot"))
    made = await log_in(own, ann.email, PASSWORD, None, home)

    assert refused.value.kind is ErrorType.RATE_LIMITED
    assert made.account_id == ann.account_id


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", ""),
    ],
)
def test_an_ipv6_host_counts_as_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


# -- the threads -----------------------------------------------------------------------------------


async def test_more_sign_ins_than_can_wait_are_refused_and_none_is_lost() -> None:
    passwords = Passwords()
    results = await asyncio.gather(
        *[passwords.apart(lambda: time.sleep(0.01)) for _ in range(MAX_WAITING + 5)], return_exceptions=True
    )
    passwords.close()

    refused = [one for one in results if isinstance(one, Refusal)]
    assert len(refused) == 5
    assert {(one.status, one.kind) for one in refused} == {(429, ErrorType.RATE_LIMITED)}


async def test_people_who_are_known_go_first_while_strangers_fill_their_queue() -> None:
    passwords = Passwords()
    order: list[str] = []
    strangers = [
        asyncio.ensure_future(passwords.apart(lambda: order.append("stranger"))) for _ in range(MAX_WAITING + 5)
    ]
    await asyncio.sleep(0)  # all of them wait now, or are refused
    await passwords.apart(lambda: order.append("known"), known=True)
    await asyncio.gather(*strangers, return_exceptions=True)
    passwords.close()

    assert "known" in order[:2]  # one stranger's work may run already
    assert order.count("stranger") == MAX_WAITING


async def test_strangers_solve_a_challenge_while_half_of_their_queue_is_taken(own: Own, pool: asyncpg.Pool) -> None:
    ann, bob = await person_of(pool), await person_of(pool)
    home, robot = Device.of("198.18.0.8", "browser"), Device.of("198.51.77.1", "robot")
    await pool.execute("UPDATE sessions SET address = $2 WHERE id = $1", ann.session_id, home.address)
    given = challenge.make(PEPPER, clock.now())
    found = altcha.solve_challenge(given.challenge, given.salt, "SHA-256", given.maxnumber)
    assert found is not None
    payload = {name: getattr(given, name) for name in ("algorithm", "challenge", "salt", "signature")}
    solution = base64.b64encode(orjson.dumps(payload | {"number": found.number})).decode()
    released, spent = threading.Event(), await pool.fetchval("SELECT count(*) FROM spent_challenges")
    crowd = [asyncio.ensure_future(own.passwords.apart(released.wait)) for _ in range(MAX_WAITING // 2 + 2)]
    await asyncio.sleep(0)

    async def tried(device: Device, token: str | None) -> Refusal | None:
        email = ann.email if device is home else bob.email
        try:
            await log_in(own, email, PASSWORD, None, device, challenge_token=token)
        except Refusal as refusal:
            return refusal
        return None

    unsolved = await tried(robot, None)
    known, solved = asyncio.ensure_future(tried(home, None)), asyncio.ensure_future(tried(robot, solution))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        while await pool.fetchval("SELECT count(*) FROM spent_challenges") == spent:
            await asyncio.sleep(0.01)
    again = await tried(robot, solution)
    released.set()
    await asyncio.gather(*crowd)

    assert unsolved is not None
    assert unsolved.fields["field"] == "challengeToken"
    assert again is not None
    assert "already used" in again.message
    assert await known is None
    assert await solved is None


async def test_a_request_that_is_cancelled_while_it_waits_stops_no_other() -> None:
    passwords = Passwords()
    # In place of the work of a hash: it keeps the thread busy.
    waiting = [asyncio.ensure_future(passwords.apart(lambda: time.sleep(0.01))) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await passwords.apart(lambda: "done") == "done"
    passwords.close()

    assert [one.cancelled() for one in waiting] == [True, False, True, False, False]


@pytest.mark.parametrize(("length", "most"), [(56, 20), (48, 80)])
async def test_a_large_ipv6_network_has_a_limit_of_its_own_that_known_people_pass(
    own: Own, pool: asyncpg.Pool, length: int, most: int
) -> None:
    ann = await person_of(pool)
    prefix = f"2001:db8:{ids.uuid7().int % 0xFFFF:x}"
    home = Device.of(f"{prefix}:ff::1", "browser")
    await pool.execute("UPDATE sessions SET address = $2 WHERE id = $1", ann.session_id, home.address)

    def stranger(number: int) -> Device:
        network = number if length == 56 else number << 8  # /64s of one /56, or /56s of one /48
        return Device.of(f"{prefix}:{network:x}::1", "robot")

    allowed = 0
    with suppress(Refusal):
        while allowed < 2 * most:
            await slow_down(own.limits, "login", None, stranger(allowed), own.settings)
            allowed += 1

    assert most <= allowed < 2 * most  # the bucket fills again meanwhile
    with pytest.raises(Refusal) as refused:
        await log_in(own, ann.email, PASSWORD, None, stranger(2 * most))
    assert refused.value.kind is ErrorType.RATE_LIMITED
    assert (await log_in(own, ann.email, PASSWORD, None, home)).account_id == ann.account_id


async def test_a_sign_in_with_a_password_that_was_changed_meanwhile_opens_nothing(own: Own, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    person = await people.READ.first(pool, ann.id)
    assert person is not None
    await pool.execute("UPDATE users SET password_hash = 'another' WHERE id = $1", ann.id)

    with pytest.raises(Outdated):
        await open_session(pool, PEPPER, ann.id, method="password", device=Device.of(None, None), proven=person)

    assert await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id) == 1
