"""Passkeys over the wire: registering, signing in, and all the ways in which a sign-in is refused alike."""

import asyncio
import statistics
import time
from typing import Any

import aiohttp
import asyncpg
import orjson
import pytest
from msgspec import Struct, structs

from engine.base import ids
from engine.base.settings import Settings
from engine.people.open_session import end_others
from engine.people.passkeys import rules
from engine.people.people import store as people
from tests.harness.account_log import details_logged, logged, mails_to
from tests.harness.accounts import make_account
from tests.harness.api import Answer, Api, serving
from tests.harness.authenticator import BACKED_UP, ELIGIBLE, PRESENT, VERIFIED, Authenticator, new_key, text
from tests.harness.patience import PATIENCE_S
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in
from tests.harness.provider import with_totp

SYNCHRONISED = PRESENT | VERIFIED | ELIGIBLE | BACKED_UP


class Owner(Struct, frozen=True):
    """A person with a passkey in a device."""

    person: TestPerson
    device: Authenticator
    passkey: str


class Tab(Struct, frozen=True):
    """A browser that has asked to sign in."""

    options: dict[str, Any]
    cookie: str


def origin_of(api: Api) -> str:
    """The one page of a service on loopback where there are passkeys."""
    return api.base_url.replace("127.0.0.1", "localhost")


async def person_of(pool: asyncpg.Pool, **given: str | None) -> TestPerson:
    account = await make_account(pool)
    return await make_person(pool, account.id, **given)  # type: ignore[arg-type]


async def age(pool: asyncpg.Pool, person: TestPerson) -> None:
    """The session was opened eleven minutes ago."""
    await pool.execute(
        "UPDATE sessions SET created_at = created_at - interval '11 minutes' WHERE id = $1", person.session_id
    )


async def options_for(api: Api, person: TestPerson) -> dict[str, Any]:
    """What the person's browser is asked to make a passkey from."""
    answer = await api.post("/v1/auth/passkeys/register/options", json={}, person=person)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json["publicKey"]
    return found


async def registered(api: Api, person: TestPerson, device: Authenticator, **spoiled: Any) -> Answer:
    """The whole ceremony."""
    credential = device.create(await options_for(api, person), **spoiled)
    body = {"credential": credential, "name": "Laptop"}
    return await api.post("/v1/auth/passkeys/register/verify", json=body, person=person)


async def owner(api: Api, pool: asyncpg.Pool, *, counting: bool = True, flags: int = PRESENT | VERIFIED) -> Owner:
    ann = await person_of(pool)
    device = Authenticator(origin_of(api), counting=counting, flags=flags)
    answer = await registered(api, ann, device)
    assert answer.status == 201, answer.body
    return Owner(ann, device, answer.json["id"])


async def opened(api: Api, cookie: str | None = None) -> Tab:
    """A browser asks to sign in."""
    sent = None if cookie is None else {"Cookie": f"svc_passkey={cookie}"}
    answer = await api.post("/v1/auth/passkeys/login/options", json={}, headers=sent)
    assert answer.status == 200, answer.body
    return Tab(answer.json["publicKey"], answer.cookie("svc_passkey") or "")


async def shown(api: Api, tab: Tab, credential: dict[str, Any]) -> Answer:
    """That browser answers."""
    return await api.post(
        "/v1/auth/passkeys/login/verify",
        json={"credential": credential},
        headers={"Cookie": f"svc_passkey={tab.cookie}"},
    )


async def sign_in(api: Api, ann: Owner, **spoiled: Any) -> Answer:
    tab = await opened(api)
    return await shown(api, tab, ann.device.get(tab.options, **spoiled))


# -- registering ------------------------------------------------------------------------------------


async def test_the_options_ask_for_a_discoverable_passkey_and_a_verified_person(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    asked = await options_for(api, ann)

    assert asked["rp"] == {"id": "localhost", "name": "Waybill"}
    assert asked["user"]["id"] == text(ann.id.bytes)
    assert asked["user"]["name"] == ann.email
    assert [one["alg"] for one in asked["pubKeyCredParams"]] == [-7, -8, -257]
    assert asked["authenticatorSelection"] == {
        "residentKey": "required", "requireResidentKey": True, "userVerification": "required",
    }  # fmt: skip
    assert (asked["attestation"], asked["excludeCredentials"], asked["timeout"]) == ("none", [], 300_000)
    assert len(asked["challenge"]) == 43


async def test_options_need_no_body(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    assert (await api.request("POST", "/v1/auth/passkeys/register/options", person=ann)).status == 200
    assert (await api.request("POST", "/v1/auth/passkeys/login/options")).status == 200


@pytest.mark.parametrize("algorithm", [-7, -8, -257])
@pytest.mark.parametrize("flags", [PRESENT | VERIFIED, SYNCHRONISED])
async def test_a_passkey_of_each_kind_registers_and_signs_in(
    api: Api, pool: asyncpg.Pool, algorithm: int, flags: int
) -> None:
    ann = await person_of(pool)
    device = Authenticator(origin_of(api), flags=flags)

    made = await registered(api, ann, device, algorithm=algorithm)
    tab = await opened(api)
    answer = await shown(api, tab, device.get(tab.options))

    assert made.status == 201
    assert made.json["name"] == "Laptop"
    assert made.json["backedUp"] is (flags == SYNCHRONISED)
    assert made.json["transports"] == ["hybrid", "internal"]
    assert answer.status == 200
    assert answer.json["user"]["email"] == ann.email
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    (kept,) = (await api.get("/v1/auth/passkeys", person=now)).json["data"]
    assert kept["lastUsedAt"] is not None
    assert (await api.request("POST", "/v1/auth/sessions/revoke-others", person=now)).status == 204


async def test_signing_in_answers_as_with_a_password(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)

    answer = await sign_in(api, ann)
    by_password = await api.post("/v1/auth/login", json={"email": ann.person.email, "password": PASSWORD})

    assert {**answer.json, "csrfToken": ""} == {**by_password.json, "csrfToken": ""}
    cookies = {cookie.partition("=")[0]: cookie for cookie in answer.set_cookies}
    assert "HttpOnly; SameSite=Lax" in cookies["svc_session"]
    assert "Max-Age=0" in cookies["svc_passkey"]
    sessions = (await api.get("/v1/auth/sessions", person=ann.person)).json["data"]
    assert "passkey" in {row["method"] for row in sessions}


async def test_a_passkey_counts_as_two_factors(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    await pool.execute("UPDATE users SET totp_sealed = $2, totp_enabled_at = now() WHERE id = $1", ann.person.id, b"x")

    assert (await sign_in(api, ann)).status == 200


async def test_registering_is_told_by_mail_and_in_the_log(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)

    assert await mails_to(pool, ann.person.email) == [("passkey_added", {"name": "Laptop"})]
    (told,) = await details_logged(pool, ann.person.account_id, "member.passkey_added")
    assert ann.passkey in str(told)
    assert ann.person.email not in str(told)


async def test_passkeys_without_a_name_are_numbered(api: Api, pool: asyncpg.Pool) -> None:
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    for _ in range(2):
        credential = device.create(await options_for(api, ann))
        await api.post("/v1/auth/passkeys/register/verify", json={"credential": credential}, person=ann)

    rows = (await api.get("/v1/auth/passkeys", person=ann)).json["data"]
    first = (await api.get("/v1/auth/passkeys?limit=1", person=ann)).json
    second = (await api.get(f"/v1/auth/passkeys?limit=1&before={first['nextCursor']}", person=ann)).json

    assert [row["name"] for row in rows] == ["Passkey 2", "Passkey 1"]
    assert [*first["data"], *second["data"]] == rows
    assert second["nextCursor"] is None


async def test_a_device_that_has_a_passkey_is_asked_for_no_second_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)

    asked = await options_for(api, ann.person)

    assert asked["excludeCredentials"] == [
        {"id": text(ann.device.credentials[0].id), "type": "public-key", "transports": ["hybrid", "internal"]}
    ]


async def test_registering_asks_for_the_password_when_the_sign_in_is_old(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await age(pool, ann)

    missing = await api.post("/v1/auth/passkeys/register/options", json={}, person=ann)
    wrong = await api.post("/v1/auth/passkeys/register/options", json={"password": "wrong"}, person=ann)
    right = await api.post("/v1/auth/passkeys/register/options", json={"password": PASSWORD}, person=ann)

    assert (missing.status, missing.error["field"]) == (400, "password")
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")
    assert right.status == 200


async def test_a_person_with_an_authenticator_gives_a_code_for_a_new_passkey(api: Api, pool: asyncpg.Pool) -> None:
    """A passkey signs in without a code: a stolen session must not be enough to make one."""
    enrolled, app = await with_totp(api, pool)
    ann = await signed_in(pool, enrolled.id, enrolled.account_id, enrolled.email)
    path = "/v1/auth/passkeys/register/options"

    missing = await api.post(path, json={}, person=ann)
    wrong = await api.post(path, json={"code": "000000"}, person=ann)
    await pool.execute("UPDATE users SET totp_last_step = NULL WHERE id = $1", ann.id)  # as if time had passed
    right = await api.post(path, json={"code": app.now()}, person=ann)

    assert (missing.status, missing.error["field"]) == (400, "code")
    assert (wrong.status, wrong.error["type"]) == (401, "invalid_credentials")
    assert right.status == 200, right.body


async def test_a_reset_between_the_two_steps_leaves_no_passkey(api: Api, pool: asyncpg.Pool) -> None:
    """The session is checked again under the person's lock, where the reset has ended it."""
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    credential = device.create(await options_for(api, ann))
    async with pool.acquire() as connection, connection.transaction():
        await people.LOCK.first(connection, ann.id)
        made = asyncio.ensure_future(
            api.post("/v1/auth/passkeys/register/verify", json={"credential": credential}, person=ann)
        )
        async with asyncio.timeout(PATIENCE_S):
            while not await pool.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))",
                connection.get_server_pid(),
            ):
                await asyncio.sleep(0.01)
        await end_others(connection, ann.id, None)
    answer = await made

    assert (answer.status, answer.error["type"]) == (401, "unauthorized")
    assert await pool.fetchval("SELECT count(*) FROM passkeys WHERE user_id = $1", ann.id) == 0


SPOILED: dict[str, dict[str, Any]] = {
    "another origin": {"origin": "https://evil.example.com"},
    "the same page by its address": {"origin": "http://127.0.0.1:8080"},
    "another RP id": {"rp_id": "evil.example.com"},
    "another challenge": {"challenge": text(b"d" * 32)},
    "nobody verified": {"flags": PRESENT},
    "nobody there": {"flags": VERIFIED},
    "another kind of ceremony": {"type": "webauthn.get"},
}


@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED.keys())
async def test_a_registration_with_anything_wrong_hears_one_and_the_same(
    api: Api, pool: asyncpg.Pool, spoiled: dict[str, Any]
) -> None:
    ann = await person_of(pool)

    answer = await registered(api, ann, Authenticator(origin_of(api)), **spoiled)

    assert (answer.status, answer.error["field"]) == (400, "credential")
    assert origin_of(api) in answer.error["message"]
    assert (await api.get("/v1/auth/passkeys", person=ann)).json["data"] == []


async def test_a_challenge_registers_once_and_in_its_own_session_only(api: Api, pool: asyncpg.Pool) -> None:
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    elsewhere = await signed_in(pool, ann.id, ann.account_id, ann.email)
    asked = await options_for(api, ann)
    credentials = [device.create(asked) for _ in range(3)]

    answers = [
        await api.post("/v1/auth/passkeys/register/verify", json={"credential": credential}, person=person)
        for credential, person in zip(credentials, (elsewhere, ann, ann), strict=True)
    ]

    assert [answer.status for answer in answers] == [400, 201, 400]


async def test_a_challenge_is_too_old_after_five_minutes(api: Api, pool: asyncpg.Pool) -> None:
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    credential = device.create(await options_for(api, ann))
    await pool.execute("UPDATE passkey_challenges SET expires_at = expires_at - interval '5 minutes'")

    answer = await api.post("/v1/auth/passkeys/register/verify", json={"credential": credential}, person=ann)

    assert answer.status == 400


async def test_a_challenge_for_signing_in_registers_nothing(api: Api, pool: asyncpg.Pool) -> None:
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    tab = await opened(api)
    asked = await options_for(api, ann) | {"challenge": tab.options["challenge"]}

    answer = await api.post("/v1/auth/passkeys/register/verify", json={"credential": device.create(asked)}, person=ann)

    assert answer.status == 400


async def test_a_credential_is_registered_once_and_nobody_hears_whose_it_is(api: Api, pool: asyncpg.Pool) -> None:
    ann, bob = await owner(api, pool), await person_of(pool)
    known = ann.device.credentials[0].id

    again = await registered(api, ann.person, ann.device, id_bytes=known)
    by_bob = await registered(api, bob, Authenticator(origin_of(api)), id_bytes=known)

    assert (again.status, again.error["type"], again.error["id"]) == (409, "conflict", ann.passkey)
    assert (by_bob.status, by_bob.error["type"], by_bob.error.get("id")) == (409, "conflict", None)


async def test_a_person_has_at_most_twenty(api: Api, pool: asyncpg.Pool) -> None:
    ann, device = await person_of(pool), Authenticator(origin_of(api))
    for _ in range(rules.MAX_PASSKEYS - 1):
        assert (await registered(api, ann, device)).status == 201
    asked = [await options_for(api, ann) for _ in range(3)]

    answers = await asyncio.gather(
        *(
            api.post("/v1/auth/passkeys/register/verify", json={"credential": device.create(one)}, person=ann)
            for one in asked
        )
    )
    more = await api.post("/v1/auth/passkeys/register/options", json={}, person=ann)

    assert sorted(answer.status for answer in answers) == [201, 409, 409]
    assert (more.status, more.error["type"], more.error["status"]) == (409, "invalid_state", "full")


@pytest.mark.parametrize("name", ["", " ", "a" * 101, "a\u0000b", "a\nb", 5])
async def test_odd_names_are_refused(api: Api, pool: asyncpg.Pool, name: object) -> None:
    ann = await owner(api, pool)
    credential = ann.device.create(await options_for(api, ann.person))

    made = await api.post(
        "/v1/auth/passkeys/register/verify", json={"credential": credential, "name": name}, person=ann.person
    )
    renamed = await api.patch(f"/v1/auth/passkeys/{ann.passkey}", json={"name": name}, person=ann.person)

    assert (made.status, made.error["field"]) == (400, "name")
    assert (renamed.status, renamed.error["field"]) == (400, "name")


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"credential": 5}',
        b'{"credential": {"id": "a", "rawId": "a", "type": "public-key", "response": {}}}',
        b'{"credential": {"id": "a", "rawId": "a", "type": "other", "response": {}}}',
        orjson.dumps({"credential": {"id": "a" * 1401, "rawId": "a", "type": "public-key", "response": {}}}),
        b'{"credential": "\\ud800"}',
        b"[" * 5_000,
        orjson.dumps({"credential": {}, "admin": True}),
    ],
)
async def test_a_malformed_body_is_a_bad_request(api: Api, pool: asyncpg.Pool, body: bytes) -> None:
    ann = await person_of(pool)

    made = await api.post("/v1/auth/passkeys/register/verify", body=body, person=ann)
    login = await api.post("/v1/auth/passkeys/login/verify", body=body)

    assert (made.status, login.status) == (400, 400)


async def test_a_page_at_another_origin_is_told_where_passkeys_are(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    there = {"Origin": api.base_url}  # by its IP address

    answers = [
        await api.post("/v1/auth/passkeys/register/options", json={}, person=ann, headers=there),
        await api.post("/v1/auth/passkeys/login/options", json={}, headers=there),
    ]
    here = await api.post("/v1/auth/passkeys/login/options", json={}, headers={"Origin": origin_of(api)})

    for answer in answers:
        assert (answer.status, answer.error["type"]) == (409, "invalid_state")
        assert origin_of(api) in answer.error["message"]
    assert here.status == 200


# -- signing in -------------------------------------------------------------------------------------


async def test_the_options_name_nobodys_passkeys(api: Api) -> None:
    answer = await api.post("/v1/auth/passkeys/login/options", json={})

    assert answer.json["publicKey"] == {
        "challenge": answer.json["publicKey"]["challenge"], "timeout": 300_000, "rpId": "localhost",
        "userVerification": "required",
    }  # fmt: skip
    (cookie,) = answer.set_cookies
    assert "Path=/v1/auth/passkeys/login; Max-Age=300; HttpOnly; SameSite=Lax" in cookie


async def test_every_passkey_that_signs_nobody_in_hears_the_same(api: Api, pool: asyncpg.Pool) -> None:
    ann, bob = await owner(api, pool, counting=False), await owner(api, pool, counting=False)
    stranger = Authenticator(origin_of(api))
    stranger.create({"rp": {"id": "localhost"}, "user": {"id": text(b"u" * 16)}, "challenge": ""})
    ways: list[dict[str, Any]] = [
        {"credential": stranger.credentials[0]},
        {"key": new_key(-7)},
        {"key": new_key(-8)},
        {"origin": "https://evil.example.com"},
        {"origin": api.base_url},
        {"crossOrigin": True},
        {"rp_id": "evil.example.com"},
        {"challenge": text(b"d" * 32)},
        {"challenge": "é"},
        {"type": "webauthn.create"},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"flags": SYNCHRONISED},
        {"user_handle": bob.person.id.bytes},
        {"user_handle": b"x"},
    ]

    answers = [await sign_in(api, ann, **way) for way in ways]
    tab = await opened(api)
    good = ann.device.get(tab.options)
    answers += [
        await shown(api, tab, good | {"response": good["response"] | {"signature": "AA"}}),
        await shown(api, await opened(api), {**good, "id": text(bob.device.credentials[0].id)}),
        await shown(api, await opened(api), {**good, "rawId": "***"}),
    ]
    tab = await opened(api)
    good = ann.device.get(tab.options)
    answers.append(await shown(api, tab, good | {"response": {**good["response"], "userHandle": None}}))

    assert {answer.status for answer in answers} == {401}
    assert {answer.error["type"] for answer in answers} == {"invalid_credentials"}
    assert len({answer.body for answer in answers}) == 1
    assert not any(answer.set_cookies for answer in answers)
    assert (await sign_in(api, ann)).status == 200  # none of it has tainted the passkey


async def test_an_answer_signs_in_once(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool, counting=False)
    tab = await opened(api)
    credential = ann.device.get(tab.options)

    answers = [await shown(api, tab, credential) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 401]


async def test_of_many_of_one_answer_at_once_one_signs_in(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    tab = await opened(api)
    credential = ann.device.get(tab.options)

    answers = await asyncio.gather(*(shown(api, tab, credential) for _ in range(6)))

    assert sorted(answer.status for answer in answers) == [200] + [401] * 5
    assert (await sign_in(api, ann)).status == 200


async def test_a_wrong_answer_uses_its_challenge_up(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    tab = await opened(api)
    await shown(api, tab, ann.device.get(tab.options, flags=PRESENT))

    assert (await shown(api, tab, ann.device.get(tab.options))).status == 401


async def test_a_challenge_is_good_in_its_own_browser_only(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    tab, other = await opened(api), await opened(api)
    credential = ann.device.get(tab.options)

    elsewhere = await shown(api, structs.replace(tab, cookie=other.cookie), credential)
    without = await api.post("/v1/auth/passkeys/login/verify", json={"credential": credential})

    assert (elsewhere.status, without.status) == (401, 401)
    assert elsewhere.body == without.body
    assert (await shown(api, tab, credential)).status == 200  # strangers can't use it up


async def test_two_pages_of_one_browser_sign_in_side_by_side(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    first = await opened(api)
    second = await opened(api, first.cookie)

    assert second.cookie == first.cookie
    assert (await shown(api, first, ann.device.get(first.options))).status == 200
    assert (await shown(api, second, ann.device.get(second.options))).status == 200


@pytest.mark.parametrize("cookie", ["x", "a" * 42, "é" * 43, "a" * 5_000])
async def test_a_made_up_browser_cookie_is_replaced(api: Api, cookie: str) -> None:
    tab = await opened(api, cookie)

    assert tab.cookie != cookie
    assert len(tab.cookie) == 43


async def test_a_sign_in_is_over_after_five_minutes(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    tab = await opened(api)
    await pool.execute("UPDATE passkey_challenges SET expires_at = expires_at - interval '5 minutes'")

    assert (await shown(api, tab, ann.device.get(tab.options))).status == 401


async def test_challenges_that_nobody_answered_are_forgotten(api: Api, pool: asyncpg.Pool) -> None:
    for _ in range(3):
        await opened(api)
    await pool.execute("UPDATE passkey_challenges SET expires_at = now() - interval '1 second'")

    await opened(api)

    assert await pool.fetchval("SELECT count(*) FROM passkey_challenges WHERE expires_at < now()") == 0


async def test_a_challenge_is_answered_in_any_process(
    api: Api, pool: asyncpg.Pool, settings: Settings, http: aiohttp.ClientSession, api_log: Any
) -> None:
    ann = await owner(api, pool)
    tab = await opened(api)
    credential = ann.device.get(tab.options)
    with serving(structs.replace(settings, api_port=1), api_log) as url:
        elsewhere = Api(url, http)
        there = await opened(elsewhere)
        # Its origin is its own: another port, so that the answer for this one is refused there.
        refused = await shown(elsewhere, tab, credential)
        moved = Authenticator(origin_of(elsewhere))
        moved.credentials = ann.device.credentials
        answer = await shown(elsewhere, there, moved.get(there.options))

    assert (refused.status, answer.status) == (401, 200)
    assert (await shown(api, tab, credential)).status == 401  # used up there


# -- counters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter", [5, 4, 0])
async def test_a_counter_that_has_not_grown_is_refused_and_marks_the_passkey(
    api: Api, pool: asyncpg.Pool, counter: int
) -> None:
    ann = await owner(api, pool)
    assert (await sign_in(api, ann, counter=5)).status == 200
    ordinary = await sign_in(api, ann, flags=PRESENT)

    answer = await sign_in(api, ann, counter=counter)
    afterwards = await sign_in(api, ann, counter=100)

    assert answer.status == 401
    assert answer.body == ordinary.body == afterwards.body
    (row,) = (await api.get("/v1/auth/passkeys", person=ann.person)).json["data"]
    assert row["suspectedAt"] is not None
    assert [kind for kind, _ in await mails_to(pool, ann.person.email)] == ["passkey_added", "passkey_suspected"]
    (told,) = await details_logged(pool, ann.person.account_id, "member.passkey_suspected")
    assert ann.passkey in str(told)


async def test_a_counter_without_a_good_signature_marks_nothing(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    assert (await sign_in(api, ann, counter=5)).status == 200

    assert (await sign_in(api, ann, counter=2, key=new_key(-7))).status == 401

    assert (await sign_in(api, ann, counter=6)).status == 200


async def test_a_device_that_does_not_count_signs_in_again_and_again(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool, counting=False, flags=SYNCHRONISED)

    answers = [await sign_in(api, ann) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 200]


async def test_a_passkey_tells_when_it_is_no_longer_backed_up(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool, flags=SYNCHRONISED)

    assert (await sign_in(api, ann, flags=PRESENT | VERIFIED | ELIGIBLE)).status == 200

    (row,) = (await api.get("/v1/auth/passkeys", person=ann.person)).json["data"]
    assert row["backedUp"] is False


# -- one's own --------------------------------------------------------------------------------------


async def test_a_passkey_is_renamed_and_removed_by_its_person_alone(api: Api, pool: asyncpg.Pool) -> None:
    ann, bob = await owner(api, pool), await owner(api, pool)

    strange = [
        await api.patch(f"/v1/auth/passkeys/{ann.passkey}", json={"name": "Mine"}, person=bob.person),
        await api.delete(f"/v1/auth/passkeys/{ann.passkey}", person=bob.person),
        await api.delete(f"/v1/auth/passkeys/{ids.format_id(ids.Kind.PASSKEY, ids.uuid7())}", person=ann.person),
        await api.delete(f"/v1/auth/passkeys/{ann.person.public_id}", person=ann.person),
    ]
    renamed = await api.patch(f"/v1/auth/passkeys/{ann.passkey}", json={"name": " Phone "}, person=ann.person)
    removed = await api.delete(f"/v1/auth/passkeys/{ann.passkey}", person=ann.person)

    assert {(answer.status, answer.error["type"]) for answer in strange} == {(404, "not_found")}
    assert (renamed.status, renamed.json["name"]) == (200, "Phone")
    assert (removed.status, removed.body) == (204, b"")
    assert (await api.get("/v1/auth/passkeys", person=ann.person)).json["data"] == []
    assert (await sign_in(api, ann)).status == 401
    assert (await mails_to(pool, ann.person.email))[-1] == ("passkey_removed", {"name": "Phone"})
    kinds = {kind for kind, _ in await logged(pool, ann.person.account_id)}
    assert {"member.passkey_renamed", "member.passkey_removed"} <= kinds


async def test_the_last_way_to_sign_in_stays(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    await pool.execute("UPDATE users SET password_hash = NULL WHERE id = $1", ann.person.id)
    second = await registered(api, ann.person, Authenticator(origin_of(api)))
    passkeys = [ann.passkey, second.json["id"]]

    both = await asyncio.gather(*[api.delete(f"/v1/auth/passkeys/{one}", person=ann.person) for one in passkeys])
    (left,) = (await api.get("/v1/auth/passkeys", person=ann.person)).json["data"]
    kept = next(answer for answer in both if answer.status != 204)
    await pool.execute("UPDATE passkeys SET suspected_at = now() WHERE user_id = $1", ann.person.id)
    suspected = await api.delete(f"/v1/auth/passkeys/{left['id']}", person=ann.person)

    assert sorted(answer.status for answer in both) == [204, 409]
    assert (kept.error["type"], kept.error["status"]) == ("invalid_state", "only_way_in")
    assert suspected.status == 204  # it signs nobody in any more


async def test_a_removed_passkey_is_refused_like_an_unknown_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    unknown = await sign_in(api, ann, key=new_key(-7))
    await api.delete(f"/v1/auth/passkeys/{ann.passkey}", person=ann.person)

    assert (await sign_in(api, ann)).body == unknown.body


async def test_a_person_without_an_account_is_not_signed_in(api: Api, pool: asyncpg.Pool) -> None:
    ann = await owner(api, pool)
    await pool.execute("DELETE FROM members WHERE user_id = $1", ann.person.id)

    answer = await sign_in(api, ann)

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


# -- time -------------------------------------------------------------------------------------------


@pytest.fixture
async def tabs(api: Api) -> list[Tab]:
    """Browsers enough for a comparison."""
    return [await opened(api) for _ in range(160)]


async def test_an_unknown_credential_takes_the_time_of_a_known_one(
    api: Api, pool: asyncpg.Pool, tabs: list[Tab]
) -> None:
    """Taken in turns, so that what else the machine does meets both alike."""
    ann = await owner(api, pool, counting=False)
    device = Authenticator(origin_of(api), counting=False)
    device.create({"rp": {"id": "localhost"}, "user": {"id": text(ann.person.id.bytes)}, "challenge": ""})
    forger = new_key(-7)
    known: list[float] = []
    unknown: list[float] = []
    for number, tab in enumerate(tabs):
        is_known = number % 2 == 0
        holder = ann.device if is_known else device
        credential = holder.get(tab.options, key=forger)
        began = time.perf_counter()
        answer = await shown(api, tab, credential)
        (known if is_known else unknown).append(time.perf_counter() - began)
        assert answer.status == 401

    difference = abs(statistics.median(known) - statistics.median(unknown))
    noise = max(statistics.pstdev(sorted(some)[: len(some) * 3 // 4]) for some in (known, unknown))
    assert difference < max(noise, 0.0005), (statistics.median(known), statistics.median(unknown))
