"""Sessions: cookies, expiry and revocation, and CSRF tokens for changes."""

import asyncio
from datetime import timedelta

import asyncpg
import orjson
import pytest
from msgspec import structs

from api.http.cookies import session_cookie
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.people import open_session
from engine.people.sessions import rules, session_auth, store
from engine.people.sessions.rules import Device
from tests.harness import canaries
from tests.harness.account_log import details_logged
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Api
from tests.harness.people import TestPerson, make_person, signed_in


async def person_of(pool: asyncpg.Pool, role: str = "owner") -> TestPerson:
    account = await make_account(pool)
    return await make_person(pool, account.id, role)


async def test_nobody_is_signed_in_without_a_cookie(api: Api) -> None:
    answer = await api.get("/v1/auth/me")

    assert (answer.status, answer.json["signedIn"]) == (200, False)
    assert answer.json["csrfToken"] is None


async def test_a_session_tells_person_account_and_csrf_token(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool, "admin")

    answer = await api.get("/v1/auth/me", person=ann)

    assert answer.json["signedIn"] is True
    assert answer.json["csrfToken"] == ann.csrf
    assert answer.json["user"] == {
        "id": ann.public_id, "email": ann.email, "emailVerified": True, "name": None, "twoFactor": False,
        "timezone": None,
    }  # fmt: skip
    assert answer.json["account"]["role"] == "admin"
    assert answer.json["account"]["id"] == ids.format_id(ids.Kind.ACCOUNT, ann.account_id)


@pytest.mark.parametrize("secret", ["", "x", "a" * 43, "é" * 43, "a" * 10_000])
async def test_a_cookie_of_nobody_is_taken_away(api: Api, secret: str) -> None:
    answer = await api.get("/v1/auth/me", headers={"Cookie": f"svc_session={secret}"})

    assert (answer.status, answer.json["signedIn"]) == (200, False)
    if secret.isascii() and secret:
        assert "Max-Age=0" in answer.set_cookies[0]


async def test_a_session_opens_what_a_key_opens(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool, "member")

    answer = await api.get("/v1/me", person=ann)

    assert answer.status == 200
    assert answer.json["id"] == ids.format_id(ids.Kind.ACCOUNT, ann.account_id)


async def test_a_key_opens_nothing_that_is_for_people(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)

    answer = await api.get("/v1/auth/sessions", account.token)

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


async def test_whoever_is_not_signed_in_hears_the_same_whatever_they_sent(api: Api) -> None:
    answers = [
        await api.get("/v1/auth/sessions"),
        await api.get("/v1/auth/sessions", "svc_live_" + "0" * 44),
        await api.get("/v1/auth/sessions", headers={"Cookie": "svc_session=" + "a" * 43}),
        await api.get("/v1/auth/sessions", headers={"Cookie": "svc_session=x"}),
    ]

    assert {answer.status for answer in answers} == {401}
    assert len({answer.body for answer in answers}) == 1


@pytest.mark.parametrize("token", [None, "", "x", "é"])
async def test_a_change_without_the_csrf_token_is_refused(api: Api, pool: asyncpg.Pool, token: str | None) -> None:
    ann = await person_of(pool)
    headers = {"Cookie": f"svc_session={ann.secret}"} | ({} if token is None else {"X-CSRF-Token": token})

    answer = await api.request("POST", "/v1/auth/sessions/revoke-others", headers=headers)

    assert (answer.status, answer.error["type"]) == (403, "csrf_failed")


async def test_a_person_lists_their_sessions_and_no_others(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    phone = await signed_in(pool, ann.id, ann.account_id, ann.email)
    await make_person(pool, ann.account_id, "member")

    answer = await api.get("/v1/auth/sessions", person=phone)

    listed = answer.json["data"]
    assert [one["id"] for one in listed] == [ids.format_id(ids.Kind.SESSION, one.session_id) for one in (phone, ann)]
    assert [one["current"] for one in listed] == [True, False]
    assert listed[0]["method"] == "password"
    assert listed[0]["userAgent"] == "tests"
    assert phone.secret not in answer.body.decode()


async def test_revoking_the_others_ends_them_at_once_and_keeps_this_one(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    phone = await signed_in(pool, ann.id, ann.account_id, ann.email)

    answer = await api.post("/v1/auth/sessions/revoke-others", person=ann)

    assert answer.status == 204
    assert (await api.get("/v1/me", person=phone)).status == 401
    assert (await api.get("/v1/me", person=ann)).status == 200
    assert await details_logged(pool, ann.account_id, "member.signed_out") == [
        {"id": ann.public_id, "sessions": 1, "actor": ann.public_id}
    ]


async def test_a_person_ends_one_of_their_sessions_and_nobody_elses(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    phone = await signed_in(pool, ann.id, ann.account_id, ann.email)
    bob = await make_person(pool, ann.account_id, "owner")
    its, own, bobs = (ids.format_id(ids.Kind.SESSION, one.session_id) for one in (phone, ann, bob))

    ended = await api.delete(f"/v1/auth/sessions/{its}", person=ann)
    wrong = [await api.delete(f"/v1/auth/sessions/{one}", person=ann) for one in (its, bobs, bob.public_id, "x")]
    told = await details_logged(pool, ann.account_id, "member.signed_out")
    last = await api.delete(f"/v1/auth/sessions/{own}", person=ann)

    assert (ended.status, ended.body, ended.set_cookies) == (204, b"", ())
    assert (await api.get("/v1/me", person=phone)).status == 401
    assert {(answer.status, answer.error["type"]) for answer in wrong} == {(404, "not_found")}
    assert told == [{"id": ann.public_id, "session": its, "actor": ann.public_id}]
    assert (last.status, last.cookie("svc_session")) == (204, "")
    assert (await api.get("/v1/me", person=ann)).status == 401
    assert (await api.get("/v1/me", person=bob)).status == 200


async def test_signing_out_ends_the_session_and_takes_the_cookie(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    answer = await api.post("/v1/auth/logout", person=ann)

    assert answer.status == 204
    assert answer.cookie("svc_session") == ""
    assert (await api.get("/v1/me", person=ann)).status == 401
    behind = clock.now() - timedelta(hours=1)  # as a host's clock may be, or be set back
    assert await store.FIND.first(pool, rules.digests_of(PEPPER, ann.secret), behind, behind - rules.IDLE) is None


async def test_signing_out_of_a_live_session_needs_its_csrf_token(api: Api, pool: asyncpg.Pool) -> None:
    ann, bob = await person_of(pool), await person_of(pool)
    cookie = {"Cookie": f"svc_session={ann.secret}"}
    for headers in (cookie, cookie | {"X-CSRF-Token": bob.csrf}):
        answer = await api.request("POST", "/v1/auth/logout", headers=headers)
        assert (answer.status, answer.error["type"]) == (403, "csrf_failed")

    assert (await api.get("/v1/me", person=ann)).status == 200


async def test_a_persons_sessions_have_pages(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    made = [await signed_in(pool, ann.id, ann.account_id, ann.email) for _ in range(4)]
    ids_found: list[str] = []
    query = "limit=2"
    for _ in range(3):
        page = (await api.get(f"/v1/auth/sessions?{query}", person=ann)).json
        ids_found += [row["id"] for row in page["data"]]
        query = f"limit=2&before={page['nextCursor']}"

    assert page["nextCursor"] is None
    assert len(set(ids_found)) == len(made) + 1
    assert ids_found == sorted(ids_found, reverse=True)
    refused = await api.get(f"/v1/auth/sessions?before={ann.public_id}", person=ann)
    assert (refused.status, refused.error["field"]) == (400, "before")


async def test_one_row_is_left_of_all_that_were_signed_out_at_an_address(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    for _ in range(3):
        await api.post("/v1/auth/logout", person=await signed_in(pool, ann.id, ann.account_id, ann.email))

    assert await pool.fetchval("SELECT count(*) FROM sessions WHERE user_id = $1", ann.id) == 2
    assert (await api.get("/v1/me", person=ann)).status == 200


async def test_signing_out_works_with_a_dead_session_and_with_none(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await api.post("/v1/auth/logout", person=ann)

    assert (await api.post("/v1/auth/logout", person=ann)).status == 204
    assert (await api.request("POST", "/v1/auth/logout")).status == 204
    assert (await api.request("POST", "/v1/auth/logout", headers={"Cookie": "svc_session=nonsense"})).status == 204


async def test_a_session_unused_for_a_week_is_over(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    unused_since = clock.now() - rules.IDLE - timedelta(seconds=1)
    await pool.execute("UPDATE sessions SET used_at = $2 WHERE id = $1", ann.session_id, unused_since)

    assert (await api.get("/v1/me", person=ann)).status == 401


async def test_a_session_is_over_after_a_month_however_much_it_was_used(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await pool.execute("UPDATE sessions SET expires_at = now() - interval '1 s' WHERE id = $1", ann.session_id)

    assert (await api.get("/v1/me", person=ann)).status == 401


async def test_a_use_is_written_down_once_a_minute(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    before = clock.now() - timedelta(minutes=2)
    await pool.execute("UPDATE sessions SET used_at = $2 WHERE id = $1", ann.session_id, before)
    sessions = session_auth.SessionAuth(pool, PEPPER)

    await sessions.person(ann.secret, Device.of("192.0.2.7", "x"))
    await sessions.drain()

    (row,) = await pool.fetch("SELECT used_at, address FROM sessions WHERE id = $1", ann.session_id)
    assert row["used_at"] > before + timedelta(minutes=1)
    assert row["address"] == "192.0.2.7"


async def test_a_removed_member_is_signed_out_at_once(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool, "member")
    await pool.execute("DELETE FROM members WHERE user_id = $1", ann.id)

    assert (await api.get("/v1/me", person=ann)).status == 401


async def test_a_renewed_session_goes_on_under_another_secret_only(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    async with pool.acquire() as connection, connection.transaction():
        made = await open_session.renew_session(connection, PEPPER, ann.session_id, ann.account_id)

    assert made.id == ann.session_id
    assert (await api.get("/v1/me", person=ann)).status == 401
    assert (await api.get("/v1/me", person=structs.replace(ann, secret=made.secret, csrf=made.csrf))).status == 200


async def test_switching_leads_to_another_account_of_the_person_under_a_new_secret(
    api: Api, pool: asyncpg.Pool
) -> None:
    ann = await person_of(pool)
    other = await make_account(pool)
    await pool.execute("INSERT INTO members (account_id, user_id, role) VALUES ($1, $2, 'member')", other.id, ann.id)

    answer = await api.post("/v1/auth/switch", json={"accountId": other.public_id}, person=ann)

    assert answer.status == 200
    assert answer.json["account"]["id"] == other.public_id
    assert answer.json["account"]["role"] == "member"
    told = await pool.fetchval(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'member.signed_in'", other.id
    )
    assert orjson.loads(told)["detail"]["method"] == "switch"
    now = structs.replace(ann, secret=answer.cookie("svc_session") or "", csrf=answer.json["csrfToken"])
    assert (await api.get("/v1/me", person=now)).json["id"] == other.public_id
    assert (await api.get("/v1/me", person=ann)).status == 401
    assert {one["id"] for one in (await api.get("/v1/auth/me", person=now)).json["accounts"]} == {
        other.public_id, ids.format_id(ids.Kind.ACCOUNT, ann.account_id),
    }  # fmt: skip


async def test_switching_to_an_account_of_others_finds_nothing(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    other = await make_account(pool)

    answer = await api.post("/v1/auth/switch", json={"accountId": other.public_id}, person=ann)
    wrong = await api.post("/v1/auth/switch", json={"accountId": ann.public_id}, person=ann)

    assert (answer.status, answer.error["type"]) == (404, "not_found")
    assert (wrong.status, wrong.error["field"]) == (400, "accountId")


async def test_people_of_a_suspended_account_may_look_and_not_touch(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", ann.account_id)

    looked = await api.get("/v1/me", person=ann)
    touched = await api.post("/v1/streams", json={"id": "news"}, person=ann)
    own = await api.post("/v1/auth/sessions/revoke-others", person=ann)
    (key,) = (await api.get("/v1/api-keys", person=ann)).json["data"]
    leaked = await api.delete(f"/v1/api-keys/{key['id']}", person=ann)

    assert looked.status == 200
    assert leaked.status == 204  # else it would come back to life with the account
    assert (touched.status, touched.error["type"]) == (403, "account_suspended")
    assert own.status == 204


async def test_the_database_holds_no_secret_of_a_session(pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    (row,) = await pool.fetch("SELECT * FROM sessions WHERE id = $1", ann.session_id)

    assert ann.secret not in str(dict(row))
    assert ann.csrf not in str(dict(row))


@pytest.mark.parametrize(
    ("column", "kept"), [("expires_at", rules.REMEMBERED), ("used_at", rules.IDLE + rules.REMEMBERED)]
)
async def test_ended_sessions_are_forgotten_in_time(pool: asyncpg.Pool, column: str, kept: timedelta) -> None:
    young, old = await person_of(pool), await person_of(pool)
    for ann, age in ((young, kept - timedelta(minutes=1)), (old, kept + timedelta(minutes=1))):
        await pool.execute(f"UPDATE sessions SET {column} = $2 WHERE id = $1", ann.session_id, clock.now() - age)

    await open_session.forget_ended(pool, clock.now())

    left = await pool.fetch("SELECT id FROM sessions WHERE id = ANY ($1::uuid[])", [young.session_id, old.session_id])
    assert [row["id"] for row in left] == [young.session_id]


async def test_what_has_been_signed_out_goes_on_under_no_other_secret(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)
    await api.post("/v1/auth/logout", person=ann)

    with pytest.raises(Refusal) as over:
        async with pool.acquire() as connection, connection.transaction():
            await open_session.renew_session(connection, PEPPER, ann.session_id, ann.account_id)
    with pytest.raises(Refusal) as moved:
        await open_session.switch_account(pool, PEPPER, ann.session_id, ann.id, ann.account_id)

    assert {over.value.kind, moved.value.kind} == {ErrorType.UNAUTHORIZED}


async def test_many_changes_at_once_with_one_session_all_pass(api: Api, pool: asyncpg.Pool) -> None:
    ann = await person_of(pool)

    answers = await asyncio.gather(*[api.post("/v1/auth/sessions/revoke-others", person=ann) for _ in range(20)])

    assert {answer.status for answer in answers} == {204}


async def test_an_answer_tells_browsers_to_be_careful(api: Api) -> None:
    headers = (await api.get("/v1/auth/me")).headers

    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert "strict-transport-security" not in headers


def test_a_device_is_stored_without_control_characters_and_bounded() -> None:
    assert Device.of(None, "a\r\n\x00b" + "c" * 1_000) == Device("", "ab" + "c" * 298)


def test_settings_say_whether_the_cookie_is_secure(settings: Settings) -> None:
    loopback = structs.replace(settings, public_url="http://127.0.0.1:8080", delivery="local")
    assert "Secure" not in session_cookie(loopback, "x")
    for changed in (
        structs.replace(loopback, delivery="live"),
        structs.replace(loopback, public_url="https://127.0.0.1:8080"),
        structs.replace(loopback, public_url="http://mail.example.com"),
    ):
        cookie = session_cookie(changed, "x")
        assert cookie.endswith("; HttpOnly; SameSite=Lax; Secure")


def test_the_search_for_secrets_finds_them() -> None:
    secret = canaries.note("a" * 20 + "canary" + "b" * 20)

    assert canaries.found_in(f"token={secret};") == {secret}
    assert canaries.found_in("x svc_live_" + "0" * 44) == {"svc_live_" + "0" * 44}
    assert canaries.found_in("nothing to see in svc_live_0123") == set()
