"""The second factor over the wire: enrolment, codes at sign-in, recovery, and what wrong codes cost."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import asyncpg
import orjson
import pyotp
import pytest
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.people.log_in import log_in
from engine.people.second_factor import service as second_factor
from engine.people.second_factor.rules import Factor
from engine.people.sessions.rules import Device
from engine.store.passwords import Passwords
from engine.store.rate_limits import RateLimiter
from engine.store.redis import connect
from tests.harness.account_log import logged, mails_to
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api, serving
from tests.harness.patience import PATIENCE_S, until
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in


class Enrolled(Struct, frozen=True):
    """A person with a second factor, signed in; `secret` as the app has it."""

    person: TestPerson
    secret: str
    codes: list[str]

    def code(self, shift: int = 0) -> str:
        """What the app shows now, or `shift` steps from now."""
        code: str = pyotp.TOTP(self.secret).at(clock.now() + timedelta(seconds=30 * shift))
        return code


class Parts(Struct):
    """The services that the functions under test take."""

    pool: asyncpg.Pool
    passwords: Passwords
    limits: RateLimiter
    settings: Settings


@pytest.fixture
async def parts(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[Parts]:
    """The services of one process."""
    assert settings.redis_url is not None
    client = connect(settings.redis_url, timeout_s=PATIENCE_S)
    passwords = Passwords()
    yield Parts(pool, passwords, RateLimiter(client), settings)
    passwords.close()
    await client.aclose()


async def person_of(pool: asyncpg.Pool, **given: str | None) -> TestPerson:
    account = await make_account(pool)
    return await make_person(pool, account.id, **given)  # type: ignore[arg-type]


async def enrolled(api: Api, pool: asyncpg.Pool, **given: str | None) -> Enrolled:
    """A person who has been through both steps, and whose next code is not used yet."""
    ann = await person_of(pool, **given)
    setup = await api.post("/v1/auth/2fa/setup", json={}, person=ann)
    assert setup.status == 200, setup.body
    secret = setup.json["secret"]
    answer = await api.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(secret).now()}, person=ann)
    assert answer.status == 200, answer.body
    await unused(pool, ann)
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    return Enrolled(now, secret, answer.json["recoveryCodes"])


async def unused(pool: asyncpg.Pool, person: TestPerson) -> None:
    """As if the last code had been given a while ago."""
    await pool.execute("UPDATE users SET totp_last_step = totp_last_step - 10 WHERE id = $1", person.id)


async def age(pool: asyncpg.Pool, person: TestPerson) -> None:
    """The session was opened eleven minutes ago."""
    await pool.execute(
        "UPDATE sessions SET created_at = created_at - interval '11 minutes' WHERE id = $1", person.session_id
    )


async def sign_in(api: Api, person: TestPerson, code: str | None = None) -> Answer:
    body = {"email": person.email, "password": PASSWORD} | ({} if code is None else {"code": code})
    return await api.post("/v1/auth/login", json=body)


# -- enrolment --------------------------------------------------------------------------------------


async def test_setup_gives_a_secret_in_three_forms_and_asks_for_nothing_yet(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    answer = await api.post("/v1/auth/2fa/setup", json={}, person=ann)

    assert answer.status == 200
    assert len(base64.b32decode(answer.json["secret"])) == 20
    assert answer.json["secret"] in answer.json["otpauthUri"]
    assert answer.json["qrSvg"].startswith("<svg ")
    assert (await sign_in(api, ann)).status == 200
    assert (await api.get("/v1/auth/2fa", person=ann)).json == {
        "enabled": False, "enabledAt": None, "recoveryCodesLeft": 0,
    }  # fmt: skip


async def test_setup_needs_no_body_or_an_empty_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    bare = await api.request("POST", "/v1/auth/2fa/setup", person=ann)
    empty = await api.post("/v1/auth/2fa/setup", json={}, person=ann)

    assert (bare.status, empty.status) == (200, 200)


async def test_a_new_setup_replaces_the_pending_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    first = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]
    second = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]

    refused = await api.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(first).now()}, person=ann)
    answer = await api.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(second).now()}, person=ann)

    assert (refused.status, refused.error["type"]) == (401, "invalid_credentials")
    assert answer.status == 200


async def test_the_secret_is_stored_sealed(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    secret = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]

    stored = await pool.fetchval("SELECT totp_sealed FROM users WHERE id = $1", ann.id)

    assert base64.b32decode(secret) not in stored
    assert secret.encode() not in stored


async def test_enabling_gives_recovery_codes_renews_the_session_and_ends_the_others(
    api: Api, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)
    other = await signed_in(pool, ann.id, ann.account_id, ann.email)
    secret = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]

    answer = await api.post("/v1/auth/2fa/enable", json={"code": pyotp.TOTP(secret).now()}, person=ann)

    assert len(set(answer.json["recoveryCodes"])) == 10
    assert answer.cookie("svc_session") not in {None, ann.secret}
    assert (await api.get("/v1/auth/sessions", person=other)).status == 401
    assert (await api.get("/v1/auth/sessions", person=ann)).status == 401  # its secret is dead
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    (session,) = (await api.get("/v1/auth/sessions", person=now)).json["data"]
    assert session["id"] == ids.format_id(ids.Kind.SESSION, ann.session_id)
    assert (await api.get("/v1/auth/me", person=now)).json["user"]["twoFactor"] is True
    state = (await api.get("/v1/auth/2fa", person=now)).json
    assert (state["enabled"], state["recoveryCodesLeft"]) == (True, 10)
    assert await mails_to(pool, ann.email) == [("second_factor_enabled", {})]


async def test_neither_codes_nor_secrets_stand_in_the_tables_or_the_log(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    await sign_in(api, ann.person, ann.codes[0])

    told = orjson.dumps([await logged(pool, ann.person.account_id), await mails_to(pool, ann.person.email)]).decode()
    rows = await pool.fetch("SELECT digest FROM recovery_codes WHERE user_id = $1", ann.person.id)

    assert "member.second_factor_enabled" in told
    for secret in (ann.secret, ann.person.secret, *ann.codes, *(code.replace("-", "") for code in ann.codes)):
        assert secret not in told
        assert not any(secret.encode() in row["digest"] for row in rows)
    assert ann.person.email not in orjson.dumps(await logged(pool, ann.person.account_id)).decode()


async def test_what_is_enabled_is_not_set_up_again(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)

    setup = await api.post("/v1/auth/2fa/setup", json={}, person=ann.person)
    enable = await api.post("/v1/auth/2fa/enable", json={"code": ann.code()}, person=ann.person)

    assert (setup.status, setup.error["type"], setup.error["status"]) == (409, "invalid_state", "enabled")
    assert (enable.status, enable.error["type"], enable.error["status"]) == (409, "invalid_state", "enabled")
    assert (await sign_in(api, ann.person, ann.code())).status == 200


@pytest.mark.parametrize(
    ("path", "proof"), [("enable", {}), ("recovery-codes", {"password": PASSWORD}), ("disable", {"password": PASSWORD})]
)
async def test_a_second_factor_is_not_changed_before_its_setup(
    api: Api, pool: asyncpg.Pool, path: str, proof: dict[str, str]
) -> None:
    ann = await person_of(pool)

    answer = await api.post(f"/v1/auth/2fa/{path}", json={"code": "123456"} | proof, person=ann)

    assert (answer.status, answer.error["type"], answer.error["status"]) == (409, "invalid_state", "disabled")


async def test_setup_asks_for_the_password_when_the_sign_in_is_old(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await age(pool, ann)

    missing = await api.post("/v1/auth/2fa/setup", json={}, person=ann)
    wrong = await api.post("/v1/auth/2fa/setup", json={"password": "wrong"}, person=ann)
    right = await api.post("/v1/auth/2fa/setup", json={"password": PASSWORD}, person=ann)

    assert (missing.status, missing.error["field"]) == (400, "password")
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")
    assert right.status == 200


async def test_a_person_without_a_password_signs_in_again_instead(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool, password=None)
    young = await api.post("/v1/auth/2fa/setup", json={}, person=ann)
    await age(pool, ann)

    old = await api.post("/v1/auth/2fa/setup", json={}, person=ann)

    assert young.status == 200
    assert (old.status, old.error["type"]) == (403, "forbidden")


# -- signing in -------------------------------------------------------------------------------------


async def test_the_password_alone_opens_nothing_and_asks_for_the_code(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)

    answer = await sign_in(api, ann.person)

    assert (answer.status, answer.error["type"]) == (401, "totp_required")
    assert "ticket" not in answer.error
    assert not answer.set_cookies


async def test_password_and_code_open_a_session_that_says_so(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)

    answer = await sign_in(api, ann.person, ann.code())

    assert answer.status == 200
    methods = [row["method"] for row in (await api.get("/v1/auth/sessions", person=ann.person)).json["data"]]
    assert "password+totp" in methods


async def test_a_wrong_code_hears_what_a_wrong_password_hears(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    wrong = "000000" if ann.code() != "000000" else "000001"
    nobody = await api.post("/v1/auth/login", json={"email": ann.person.email, "password": "wrong", "code": wrong})

    answer = await sign_in(api, ann.person, wrong)

    assert answer.status == 401
    assert answer.body == nobody.body


async def test_a_code_is_not_even_looked_at_before_the_password_is_right(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    code = ann.code()
    for _ in range(8):
        body = {"email": ann.person.email, "password": "wrong", "code": code}
        assert (await api.post("/v1/auth/login", json=body)).status == 401

    answer = await sign_in(api, ann.person, code)

    assert answer.status == 200


async def test_a_code_works_once(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    code = ann.code()

    answers = [await sign_in(api, ann.person, code) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 401]


async def test_the_code_that_enabled_the_factor_is_used_up(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    secret = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]
    code = pyotp.TOTP(secret).now()
    await api.post("/v1/auth/2fa/enable", json={"code": code}, person=ann)

    assert (await sign_in(api, ann, code)).status == 401


async def test_no_code_older_than_the_last_one_is_good(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    assert (await sign_in(api, ann.person, ann.code(1))).status == 200

    assert (await sign_in(api, ann.person, ann.code(0))).status == 401


@pytest.mark.parametrize("recovery", [False, True])
async def test_of_four_sign_ins_with_one_code_one_wins(api: Api, pool: asyncpg.Pool, *, recovery: bool) -> None:
    ann = await enrolled(api, pool)
    code = ann.codes[0] if recovery else ann.code()

    answers = await asyncio.gather(*(sign_in(api, ann.person, code) for _ in range(4)))

    assert sorted(answer.status for answer in answers) == [200, 401, 401, 401]


async def test_a_used_code_stays_used_in_another_process(
    api: Api,
    pool: asyncpg.Pool,
    settings: Settings,
    http: aiohttp.ClientSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ann = await enrolled(api, pool)
    code = ann.code()
    assert (await sign_in(api, ann.person, code)).status == 200

    with serving(settings, tmp_path_factory.mktemp("again") / "log") as url:
        answer = await sign_in(Api(url, http), ann.person, code)

    assert answer.status == 401


async def test_a_person_without_a_second_factor_may_send_a_code(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    assert (await sign_in(api, ann, "123456")).status == 200


async def test_wrong_used_and_malformed_codes_all_hear_the_same(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    code = ann.code()
    assert (await sign_in(api, ann.person, code)).status == 200
    assert (await sign_in(api, ann.person, ann.codes[0])).status == 200

    answers = [await sign_in(api, ann.person, one) for one in (code, ann.codes[0], "abcd-efgh-jkmn", "?")]

    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1


async def test_of_two_that_enable_at_once_one_gets_the_recovery_codes(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    secret = (await api.post("/v1/auth/2fa/setup", json={}, person=ann)).json["secret"]
    body = {"code": pyotp.TOTP(secret).now()}

    answers = await asyncio.gather(*(api.post("/v1/auth/2fa/enable", json=body, person=ann) for _ in range(3)))

    assert [answer.status for answer in answers].count(200) == 1
    assert await pool.fetchval("SELECT count(*) FROM recovery_codes WHERE user_id = $1", ann.id) == 10
    assert len(await mails_to(pool, ann.email)) == 1


async def test_nothing_secret_is_logged(
    pool: asyncpg.Pool, settings: Settings, http: aiohttp.ClientSession, api_log: Path
) -> None:
    with serving(structs.replace(settings, log_level="debug"), api_log) as url:
        api = Api(url, http)
        ann = await enrolled(api, pool)
        code = ann.code()
        answers = [await sign_in(api, ann.person, one) for one in (None, "abcd-efgh-jkmn", ann.codes[0], code, code)]
        bob = await enrolled(api, pool)  # without a failure so far: enough of them are refused unread
        await pool.execute("UPDATE users SET totp_sealed = $2 WHERE id = $1", bob.person.id, b"x" * 48)
        await sign_in(api, bob.person, "123456")
        await until(lambda: "pepper" in api_log.read_text("utf-8"))  # before the process is killed
    told = api_log.read_text("utf-8")

    assert "totp_required" in told
    cookies = [answer.cookie("svc_session") for answer in answers if answer.status == 200]
    for secret in (ann.secret, PASSWORD, ann.person.csrf, *ann.codes, code, *cookies, ann.person.email):
        assert str(secret) not in told


async def test_a_sign_in_under_way_does_not_slip_past_enabling(pool: asyncpg.Pool, parts: Parts) -> None:
    ann = await person_of(pool)
    async with pool.acquire() as connection, connection.transaction():
        await connection.fetch("SELECT id FROM users WHERE id = $1 FOR UPDATE", ann.id)  # as enabling does
        login = asyncio.create_task(log_in(parts, ann.email, PASSWORD, None, Device.of("127.0.0.1", "tests")))
        while not await pool.fetchval(  # outside: a transaction sees the activity of its first look only
            "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", connection.get_server_pid()
        ):
            await asyncio.sleep(0.01)
        await connection.execute("DELETE FROM sessions WHERE user_id = $1", ann.id)
        await connection.execute(
            "UPDATE users SET totp_sealed = $2, totp_enabled_at = now() WHERE id = $1", ann.id, b"sealed"
        )

    with pytest.raises(Refusal) as refused:
        await login

    assert refused.value.kind is ErrorType.INVALID_CREDENTIALS
    assert await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id) == 0


async def test_a_secret_sealed_under_another_pepper_opens_nothing(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    await pool.execute("UPDATE users SET totp_sealed = $2 WHERE id = $1", ann.person.id, b"x" * 48)

    assert (await sign_in(api, ann.person, ann.code())).status == 401
    assert (await sign_in(api, ann.person, ann.codes[0])).status == 200


# -- recovery ---------------------------------------------------------------------------------------


async def test_a_recovery_code_stands_for_a_code_once(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)

    answers = [await sign_in(api, ann.person, ann.codes[3].upper()) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 401]
    assert (await api.get("/v1/auth/2fa", person=ann.person)).json["recoveryCodesLeft"] == 9
    assert (await mails_to(pool, ann.person.email))[-1] == ("recovery_code_used", {"left": 9})
    sessions = (await api.get("/v1/auth/sessions", person=ann.person)).json["data"]
    assert "password+recovery" in {row["method"] for row in sessions}


async def test_a_recovery_code_of_another_person_is_worth_nothing(api: Api, pool: asyncpg.Pool) -> None:
    ann, bob = await enrolled(api, pool), await enrolled(api, pool)

    assert (await sign_in(api, bob.person, ann.codes[0])).status == 401
    assert (await sign_in(api, ann.person, ann.codes[0])).status == 200


async def test_a_new_set_voids_the_old_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    body = {"password": PASSWORD, "code": ann.code()}

    answer = await api.post("/v1/auth/2fa/recovery-codes", json=body, person=ann.person)

    assert answer.status == 200
    fresh = answer.json["recoveryCodes"]
    assert len(set(fresh) - set(ann.codes)) == 10
    assert (await sign_in(api, ann.person, ann.codes[0])).status == 401
    assert (await sign_in(api, ann.person, fresh[0])).status == 200
    assert "member.recovery_codes_replaced" in {kind for kind, _ in await logged(pool, ann.person.account_id)}


@pytest.mark.parametrize("path", ["/v1/auth/2fa/recovery-codes", "/v1/auth/2fa/disable"])
async def test_a_change_takes_both_factors_however_young_the_sign_in_is(
    api: Api, pool: asyncpg.Pool, path: str
) -> None:
    ann = await enrolled(api, pool)
    code = ann.code()

    missing = await api.post(path, json={"code": code}, person=ann.person)
    no_code = await api.post(path, json={"password": PASSWORD}, person=ann.person)
    wrong_password = await api.post(path, json={"password": "wrong", "code": code}, person=ann.person)
    wrong_code = await api.post(path, json={"password": PASSWORD, "code": "abcd-efgh-jkmn"}, person=ann.person)

    assert (missing.status, missing.error["field"]) == (400, "password")
    assert (no_code.status, no_code.error["field"]) == (400, "code")
    assert (wrong_password.status, wrong_password.error["type"]) == (401, "invalid_credentials")
    assert (wrong_code.status, wrong_code.error["type"]) == (401, "invalid_credentials")
    assert (await sign_in(api, ann.person, code)).status == 200  # it was not used up by any of these


@pytest.mark.parametrize("by", ["totp", "recovery"])
async def test_disabling_ends_the_asking_and_all_other_sessions(api: Api, pool: asyncpg.Pool, by: str) -> None:
    ann = await enrolled(api, pool)
    other = await signed_in(pool, ann.person.id, ann.person.account_id, ann.person.email)
    club = await make_account(pool)
    await pool.execute(
        "INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", club.id, ann.person.id
    )
    body = {"password": PASSWORD, "code": ann.code() if by == "totp" else ann.codes[0]}

    answer = await api.post("/v1/auth/2fa/disable", json=body, person=ann.person)

    assert (answer.status, answer.body) == (204, b"")
    now = structs.replace(ann.person, secret=answer.cookie("svc_session") or "", csrf=answer.headers["x-csrf-token"])
    assert (await api.get("/v1/auth/2fa", person=now)).json["enabled"] is False
    assert (await api.request("POST", "/v1/auth/sessions/revoke-others", person=now)).status == 204
    assert (await api.get("/v1/auth/sessions", person=other)).status == 401
    assert (await api.get("/v1/auth/sessions", person=ann.person)).status == 401
    assert (await sign_in(api, ann.person)).status == 200
    assert (await mails_to(pool, ann.person.email))[-1][0] == "second_factor_disabled"
    for account in (ann.person.account_id, club.id):  # whose team shows it
        there = await logged(pool, account)
        assert "member.second_factor_disabled" in {kind for kind, _ in there}
    kept = await pool.fetchrow("SELECT totp_sealed, totp_last_step FROM users WHERE id = $1", ann.person.id)
    assert kept is not None
    assert list(kept) == [None, None]
    assert await pool.fetchval("SELECT count(*) FROM recovery_codes WHERE user_id = $1", ann.person.id) == 0


async def test_a_person_without_a_password_disables_with_a_code_and_a_young_sign_in(
    api: Api, pool: asyncpg.Pool
) -> None:
    ann = await enrolled(api, pool, password=None)
    code = ann.code()
    await age(pool, ann.person)
    old = await api.post("/v1/auth/2fa/disable", json={"code": code}, person=ann.person)
    await pool.execute("UPDATE sessions SET created_at = now() WHERE id = $1", ann.person.session_id)

    young = await api.post("/v1/auth/2fa/disable", json={"code": code}, person=ann.person)

    assert (old.status, old.error["type"]) == (403, "forbidden")
    assert young.status == 204


# -- wrong codes ------------------------------------------------------------------------------------


async def failed(parts: Parts, ann: TestPerson, device: Device, times: int) -> None:
    """So many sign-ins with the right password and a wrong code."""
    for _ in range(times):
        with pytest.raises(Refusal) as refused:
            await log_in(parts, ann.email, PASSWORD, "abcd-efgh-jkmn", device)
        assert refused.value.kind is ErrorType.INVALID_CREDENTIALS


async def test_five_wrong_codes_make_the_next_wait_though_it_is_right(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)
    for _ in range(5):
        assert (await sign_in(api, ann.person, "abcd-efgh-jkmn")).status == 401

    answer = await sign_in(api, ann.person, ann.code())

    assert (answer.status, answer.error["type"]) == (429, "rate_limited")
    assert 50 <= int(answer.headers["retry-after"]) <= 60
    assert [kind for kind, _ in await mails_to(pool, ann.person.email)].count("codes_refused") == 1
    await pool.execute(
        "UPDATE code_tries SET locked_until = now() - interval '1 second' WHERE user_id = $1", ann.person.id
    )
    assert (await sign_in(api, ann.person, ann.code())).status == 200
    assert await pool.fetchval("SELECT count(*) FROM code_tries WHERE user_id = $1", ann.person.id) == 0


async def test_wrong_codes_at_once_are_counted_one_by_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await enrolled(api, pool)

    answers = await asyncio.gather(*(sign_in(api, ann.person, "abcd-efgh-jkmn") for _ in range(12)))

    assert sorted(answer.status for answer in answers) == [401] * 5 + [429] * 7


async def test_a_thief_of_the_password_makes_nobody_wait_at_home(api: Api, pool: asyncpg.Pool, parts: Parts) -> None:
    ann = await enrolled(api, pool)  # known from 127.0.0.1
    for host in range(5):
        await failed(parts, ann.person, Device.of(f"198.51.100.{host}", "thief"), 1)
    with pytest.raises(Refusal) as refused:  # from however many networks
        await log_in(parts, ann.person.email, PASSWORD, ann.code(), Device.of("203.0.113.9", "thief"))

    answer = await sign_in(api, ann.person, ann.code())

    assert refused.value.kind is ErrorType.RATE_LIMITED
    assert answer.status == 200


async def test_a_right_code_at_home_gives_a_thief_no_new_tries(api: Api, pool: asyncpg.Pool, parts: Parts) -> None:
    ann = await enrolled(api, pool)
    thief = Device.of("198.51.100.7", "thief")
    await failed(parts, ann.person, thief, 5)
    assert (await sign_in(api, ann.person, ann.code())).status == 200

    with pytest.raises(Refusal) as refused:
        await log_in(parts, ann.person.email, PASSWORD, ann.codes[0], thief)

    assert refused.value.kind is ErrorType.RATE_LIMITED


async def test_wrong_codes_in_a_stolen_session_do_not_keep_anybody_from_signing_in(
    api: Api, pool: asyncpg.Pool
) -> None:
    ann = await enrolled(api, pool)
    body = {"password": PASSWORD, "code": "abcd-efgh-jkmn"}
    for _ in range(5):
        assert (await api.post("/v1/auth/2fa/disable", json=body, person=ann.person)).status == 401

    locked = await api.post("/v1/auth/2fa/disable", json=body, person=ann.person)

    assert locked.status == 429
    assert (await sign_in(api, ann.person, ann.code())).status == 200


async def test_passwords_are_not_guessed_in_a_stolen_session(
    pool: asyncpg.Pool, settings: Settings, http: aiohttp.ClientSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ann = await person_of(pool)
    await age(pool, ann)
    slow = structs.replace(settings, sign_in_rate=5)
    with serving(slow, tmp_path_factory.mktemp("slow") / "log") as url:
        api = Api(url, http)
        answers = [await api.post("/v1/auth/2fa/setup", json={"password": f"guess {n}"}, person=ann) for n in range(7)]

    assert [answer.status for answer in answers] == [401] * 5 + [429] * 2


async def test_either_code_proves_a_factor_once_and_nothing_of_people_without_one(
    api: Api, pool: asyncpg.Pool, parts: Parts
) -> None:
    ann, bob = await enrolled(api, pool), await person_of(pool)
    at, code = clock.now(), ann.code()

    assert await second_factor.proven(parts, ann.person.id, code, at) is Factor.TOTP
    assert await second_factor.proven(parts, ann.person.id, code, at) is None
    assert await second_factor.proven(parts, ann.person.id, ann.codes[0], at) is Factor.RECOVERY
    assert await second_factor.proven(parts, ann.person.id, ann.codes[0], at) is None
    assert await second_factor.proven(parts, bob.id, code, at) is None
    assert await second_factor.proven(parts, ids.uuid7(), code, at) is None


async def test_a_code_of_tomorrow_is_good_tomorrow_only(api: Api, pool: asyncpg.Pool, parts: Parts) -> None:
    ann = await enrolled(api, pool)
    tomorrow = clock.now() + timedelta(days=1)
    code: str = pyotp.TOTP(ann.secret).at(tomorrow)

    assert await second_factor.proven(parts, ann.person.id, code, clock.now()) is None
    assert await second_factor.proven(parts, ann.person.id, code, tomorrow) is Factor.TOTP


# -- who may ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["", "x" * 33, 123456, None, "12345\u0000", "1" * 32],
)  # fmt: skip
async def test_odd_codes_are_refused_and_never_a_fault(api: Api, pool: asyncpg.Pool, code: object) -> None:
    ann = await enrolled(api, pool)

    change = await api.post("/v1/auth/2fa/disable", json={"password": PASSWORD, "code": code}, person=ann.person)
    login = await api.post("/v1/auth/login", json={"email": ann.person.email, "password": PASSWORD, "code": code})

    assert change.status in {400, 401}
    assert login.status in {400, 401}
