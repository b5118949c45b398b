"""Changing the address and the password while signed in: proven by the password, confirmed by the mailbox."""

from pathlib import Path
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from msgspec import structs

from engine.base.settings import Settings
from engine.people.tokens.rules import token_of
from tests.harness.account_log import kinds_mailed
from tests.harness.accounts import PEPPER, make_account
from tests.harness.api import Api, serving
from tests.harness.canaries import note
from tests.harness.people import PASSWORD, TestPerson, make_person, signed_in
from tests.people.test_email_verification import GUESSABLE, NEW, ann, events, lives, may_sign_in, refused

__all__ = ["ann"]  # the fixture


async def asked(api: Api, pool: asyncpg.Pool, person: TestPerson, address: str) -> str:
    """Ask for a change to that address; the token that its mail carries."""
    body = {"newEmail": address, "currentPassword": PASSWORD}
    assert (await api.post("/v1/auth/email/change", json=body, person=person)).status == 202
    mail: UUID = await pool.fetchval(
        "SELECT id FROM system_mail WHERE kind = 'confirm_email' AND address = lower($1) ORDER BY id DESC", address
    )
    return note(token_of(PEPPER, mail))


async def address_of(pool: asyncpg.Pool, person: TestPerson) -> str:
    return str(await pool.fetchval("SELECT email FROM users WHERE id = $1", person.id))


# -- the address -------------------------------------------------------------------------------------


async def test_the_new_mailbox_confirms_the_change(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    new, other = f"new-{ann.email}", await signed_in(pool, ann.id, ann.account_id, ann.email)
    token = await asked(api, pool, ann, new.upper())
    assert await address_of(pool, ann) == ann.email
    assert await kinds_mailed(pool, new) == ["confirm_email"]
    assert await kinds_mailed(pool, ann.email) == ["email_changing"]

    answer = await api.post("/v1/auth/email/change/confirm", json={"token": token})
    again = await api.post("/v1/auth/email/change/confirm", json={"token": token})

    assert (answer.status, answer.body) == (204, b"")
    refused(again, 400, "invalid_request")
    assert await address_of(pool, ann) == new
    assert await pool.fetchval("SELECT email_verified_at FROM users WHERE id = $1", ann.id) is not None
    assert await may_sign_in(api, new, PASSWORD)
    assert not await may_sign_in(api, ann.email, PASSWORD)
    assert not await lives(api, ann)
    assert not await lives(api, other)
    assert await kinds_mailed(pool, ann.email) == ["email_changing", "email_changed"]
    assert await events(pool, ann.account_id) == ["member.email_change_requested", "member.email_changed"]


async def test_a_session_that_confirms_goes_on_with_a_new_cookie(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = await asked(api, pool, ann, f"new-{ann.email}")
    answer = await api.post("/v1/auth/email/change/confirm", json={"token": token}, person=ann)
    secret, csrf = answer.cookie("svc_session"), answer.headers["x-csrf-token"]

    assert answer.status == 204
    assert secret not in {None, ann.secret}
    assert not await lives(api, ann)
    now = await api.get("/v1/auth/me", headers={"Cookie": f"svc_session={secret}"})
    assert (now.json["csrfToken"], now.json["user"]["email"]) == (csrf, f"new-{ann.email}")


async def test_somebody_elses_session_is_left_alone_by_a_confirmation(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    bob = await make_person(pool, (await make_account(pool)).id)
    token = await asked(api, pool, ann, f"new-{ann.email}")
    answer = await api.post("/v1/auth/email/change/confirm", json={"token": token}, person=bob)

    assert (answer.status, answer.set_cookies) == (204, ())
    assert await lives(api, bob)


async def test_an_address_in_use_gets_the_same_answer_as_a_free_one(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    bob = await make_person(pool, (await make_account(pool)).id)
    answers = []
    for address in (bob.email, f"free-{ann.email}"):
        body = {"newEmail": address, "currentPassword": PASSWORD}
        answers.append(await api.post("/v1/auth/email/change", json=body, person=ann))

    assert [(answer.status, answer.body) for answer in answers] == [(202, b'{"status":"accepted"}')] * 2
    assert await kinds_mailed(pool, bob.email) == ["confirm_email"]  # and when it is sent, a notice without a link
    assert await kinds_mailed(pool, ann.email) == ["email_changing"] * 2


async def test_an_address_that_was_taken_meanwhile_is_a_conflict(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    new = f"new-{ann.email}"
    token = await asked(api, pool, ann, new)
    await make_person(pool, (await make_account(pool)).id, email=new)
    answer = await api.post("/v1/auth/email/change/confirm", json={"token": token})

    refused(answer, 409, "conflict")
    assert "id" not in answer.error
    assert await address_of(pool, ann) == ann.email
    assert await lives(api, ann)


async def test_a_newer_wish_replaces_the_earlier_one(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    first = await asked(api, pool, ann, f"first-{ann.email}")
    second = await asked(api, pool, ann, f"second-{ann.email}")

    refused(await api.post("/v1/auth/email/change/confirm", json={"token": first}), 400, "invalid_request")
    assert (await api.post("/v1/auth/email/change/confirm", json={"token": second})).status == 204
    assert await address_of(pool, ann) == f"second-{ann.email}"


async def test_a_wrong_password_changes_nothing(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    email = {"newEmail": f"new-{ann.email}", "currentPassword": "not my password"}
    password = {"newPassword": NEW, "currentPassword": "not my password"}

    refused(await api.post("/v1/auth/email/change", json=email, person=ann), 401, "invalid_credentials")
    refused(await api.post("/v1/auth/password/change", json=password, person=ann), 401, "invalid_credentials")
    assert await kinds_mailed(pool, ann.email) == []
    assert await lives(api, ann)


async def test_whoever_has_a_password_must_show_it(api: Api, ann: TestPerson) -> None:
    for path, body in (
        ("/v1/auth/email/change", {"newEmail": f"new-{ann.email}"}),
        ("/v1/auth/password/change", {"newPassword": NEW}),
    ):
        answer = await api.post(path, json=body, person=ann)
        refused(answer, 400, "invalid_request")
        assert answer.error["field"] == "currentPassword"


async def test_the_same_address_and_what_is_none_are_refused(api: Api, ann: TestPerson) -> None:
    for address, status, kind in ((ann.email.upper(), 400, "invalid_request"), ("nowhere", 422, "invalid_address")):
        body = {"newEmail": address, "currentPassword": PASSWORD}
        answer = await api.post("/v1/auth/email/change", json=body, person=ann)
        refused(answer, status, kind)
        assert answer.error["field"] == "newEmail"


async def test_the_log_names_no_address(api: Api, pool: asyncpg.Pool, ann: TestPerson) -> None:
    token = await asked(api, pool, ann, f"new-{ann.email}")
    await api.post("/v1/auth/email/change/confirm", json={"token": token})
    rows = await pool.fetch("SELECT payload FROM events WHERE account_id = $1", ann.account_id)

    assert not any("@" in row["payload"] or token in row["payload"] for row in rows)


# -- the password ------------------------------------------------------------------------------------


async def test_a_changed_password_ends_other_sessions_and_renews_this_one(
    api: Api, pool: asyncpg.Pool, ann: TestPerson
) -> None:
    other = await signed_in(pool, ann.id, ann.account_id, ann.email)
    pending = await asked(api, pool, ann, f"thief-{ann.email}")
    body = {"newPassword": NEW, "currentPassword": PASSWORD}
    answer = await api.post("/v1/auth/password/change", json=body, person=ann)
    secret, csrf = answer.cookie("svc_session"), answer.headers["x-csrf-token"]

    assert (answer.status, answer.body) == (204, b"")
    assert not await lives(api, ann)
    assert not await lives(api, other)
    headers = {"Cookie": f"svc_session={secret}", "X-CSRF-Token": csrf}
    assert (await api.post("/v1/auth/sessions/revoke-others", headers=headers)).status == 204
    assert await may_sign_in(api, ann.email, NEW)
    assert not await may_sign_in(api, ann.email, PASSWORD)
    assert await kinds_mailed(pool, ann.email) == ["email_changing", "password_changed"]
    assert (await events(pool, ann.account_id))[-1] == "member.password_changed"
    refused(await api.post("/v1/auth/email/change/confirm", json={"token": pending}), 400, "invalid_request")


@pytest.mark.parametrize("new", [GUESSABLE, "short", PASSWORD, "x" * 257, "nul \u0000 nul nul nul"])
async def test_a_bad_new_password_is_refused_by_name(new: str, api: Api, ann: TestPerson) -> None:
    body = {"newPassword": new, "currentPassword": PASSWORD}
    answer = await api.post("/v1/auth/password/change", json=body, person=ann)

    refused(answer, 400, "invalid_request")
    assert answer.error["field"] == "newPassword"
    assert await lives(api, ann)


async def test_who_has_no_password_sets_one_soon_after_signing_in(api: Api, pool: asyncpg.Pool) -> None:
    cem = await make_person(pool, (await make_account(pool)).id, password=None)
    await pool.execute(
        "UPDATE sessions SET created_at = created_at - interval '11 minutes' WHERE id = $1", cem.session_id
    )
    late = await api.post("/v1/auth/password/change", json={"newPassword": NEW}, person=cem)
    refused(late, 403, "forbidden")

    fresh = await signed_in(pool, cem.id, cem.account_id, cem.email)
    assert (await api.post("/v1/auth/password/change", json={"newPassword": NEW}, person=fresh)).status == 204
    assert await may_sign_in(api, cem.email, NEW)


async def test_a_stolen_session_does_not_guess_the_password(
    settings: Settings, pool: asyncpg.Pool, http: aiohttp.ClientSession, api_log: Path, ann: TestPerson
) -> None:
    own = structs.replace(settings, sign_in_rate=5)
    with serving(own, api_log) as url:
        slow = Api(url, http)
        answers = [
            await slow.post("/v1/auth/password/change", json={"newPassword": NEW, "currentPassword": guess}, person=ann)
            for guess in ("one", "two", "three", "four", "five", PASSWORD)
        ]

    assert [answer.error["type"] for answer in answers] == ["invalid_credentials"] * 5 + ["rate_limited"]
