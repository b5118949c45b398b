"""An agent sends what its key allows: at once to listed recipients, with the token of a dry run, or with approval."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from engine.base import clock
from engine.sending.agent_sends import jobs
from engine.sending.agent_sends.types import MAX_PENDING, TOLD_EVERY
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person

SCOPES = ("emails:send", "messages:read", "account:read")


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture
async def person(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    return await make_person(pool, account.id, "member")


async def listed(pool: asyncpg.Pool, account: TestAccount, *recipients: str, approval: str = "none") -> str:
    return await add_key(pool, account.id, scopes=SCOPES, recipients=recipients or None, approval=approval)


def email(account: TestAccount, **fields: object) -> dict[str, Any]:
    return account.email(**{"to": "ann@example.com", "subject": "Hello", "text": "A text.", **fields})


async def ask(api: Api, key: str, mail: dict[str, Any], **fields: object) -> Answer:
    return await api.post("/v1/agent-sends", key, {"email": mail, **fields})


async def messages(api: Api, account: TestAccount) -> list[str]:
    return [one["id"] for one in (await api.get("/v1/messages", account.token)).json["data"]]


# keys ------------------------------------------------------------------------------------------


async def test_a_key_keeps_its_policy_when_it_is_rotated(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    admin = await make_person(pool, account.id, "admin")
    rules_of_key = {"recipients": ["@example.com"], "approval": "none"}
    new = {"name": "Agent", "scopes": ["emails:send"], "agent": {"recipients": ["@Example.com"]}}

    made = (await api.post("/v1/api-keys", json=new, person=admin)).json
    rotated = (await api.post(f"/v1/api-keys/{made['id']}/rotate", json={}, person=admin)).json
    outside = await ask(api, rotated["token"], email(account, to="eve@elsewhere.test"))

    assert (made["agent"], rotated["agent"]) == (rules_of_key, rules_of_key)
    assert (outside.status, outside.error["type"]) == (403, "forbidden")


# sends -----------------------------------------------------------------------------------------


async def test_a_key_without_a_policy_sends_what_it_has_shown_once(api: Api, account: TestAccount) -> None:
    shown = await ask(api, account.token, email(account), dryRun=True)
    assert (shown.status, shown.json["state"]) == (200, "preview")
    assert shown.json["preview"]["message"]["text"].strip() == "A text."
    assert await messages(api, account) == []

    sent = await ask(api, account.token, email(account), token=shown.json["token"])
    again = await ask(api, account.token, email(account), token=shown.json["token"])

    assert (sent.status, sent.json["state"]) == (202, "sent")
    assert (again.status, again.json["messageId"], again.json["duplicate"]) == (200, sent.json["messageId"], True)
    assert await messages(api, account) == [sent.json["messageId"]]


async def test_a_send_without_or_with_the_token_of_other_content_is_refused(api: Api, account: TestAccount) -> None:
    token = (await ask(api, account.token, email(account), dryRun=True)).json["token"]

    bare = await ask(api, account.token, email(account))
    other = await ask(api, account.token, email(account, to="bob@example.com"), token=token)

    assert (bare.status, bare.error["type"]) == (403, "forbidden")
    assert (other.status, other.error["field"]) == (400, "token")
    assert await messages(api, account) == []


async def test_a_token_sends_once_whatever_the_idempotency_key(api: Api, account: TestAccount) -> None:
    token = (await ask(api, account.token, email(account), dryRun=True)).json["token"]
    keyed = (await ask(api, account.token, email(account, idempotencyKey="one"), dryRun=True)).json["token"]

    others = [
        await ask(api, account.token, email(account, idempotencyKey=key), token=given)
        for key, given in (("one", token), ("two", keyed))
    ]
    sent = [await ask(api, account.token, email(account, idempotencyKey="one"), token=keyed) for _ in range(2)]

    assert {(one.status, one.error["field"]) for one in others} == {(400, "token")}
    assert [one.status for one in sent] == [202, 200]
    assert len(await messages(api, account)) == 1


async def test_a_changed_template_needs_another_dry_run_and_an_asked_one_stays(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    made = {"id": "hello", "subject": "Hello", "text": "First"}
    assert (await api.post("/v1/templates", account.token, made)).status == 201
    mail = {"from": account.sender, "to": "ann@example.com", "template": "hello"}
    key = await listed(pool, account, approval="required")
    token = (await ask(api, account.token, mail, dryRun=True)).json["token"]
    send = (await ask(api, key, mail)).json["id"]

    await api.patch("/v1/templates/hello", account.token, {"text": "Second"})
    confirmed = await ask(api, account.token, mail, token=token)
    shown = (await api.get(f"/v1/agent-sends/{send}", person=person)).json
    sent = (await api.post(f"/v1/agent-sends/{send}/approve", person=person)).json["messageId"]

    assert (confirmed.status, confirmed.error["field"]) == (400, "token")
    assert shown["message"]["text"].strip() == "First"
    assert (await api.get(f"/v1/messages/{sent}", account.token)).json["text"].strip() == "First"


async def test_a_token_of_one_account_is_refused_for_another(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    other = await make_account(pool)
    mail = email(account)
    token = (await ask(api, account.token, mail, dryRun=True)).json["token"]

    assert (await ask(api, other.token, mail | {"from": other.sender}, token=token)).status == 400


async def test_listed_recipients_get_a_send_at_once_and_others_none_by_any_door(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, "@example.com")

    sent = await ask(api, key, email(account))
    again = await ask(api, key, email(account))
    outside = email(account, bcc=["eve@elsewhere.test"])
    refused = [
        await ask(api, key, outside),
        await ask(api, key, outside, dryRun=True),
        await api.post("/v1/emails", key, outside),
    ]

    assert (sent.json["state"], again.json["duplicate"]) == ("sent", True)
    assert {(one.status, one.error["type"]) for one in refused} == {(403, "forbidden")}
    assert await messages(api, account) == [sent.json["messageId"]]


async def test_resending_is_bound_to_the_listed_recipients(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    first = (await api.post("/v1/emails", account.token, email(account, to="eve@elsewhere.test"))).json["id"]
    await pool.execute("UPDATE messages SET status = 'delivered' WHERE account_id = $1", account.id)
    key = await listed(pool, account, "@example.com")

    answer = await api.post(f"/v1/messages/{first}/resend", key, {})

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("recipients", "approval", "to", "moves", "cancels"),
    [
        (("@example.com",), "none", "ann@example.com", True, True),
        (("@example.com",), "none", "eve@elsewhere.test", False, False),
        ((), "required", "eve@elsewhere.test", False, True),
        (("@example.com",), "required", "eve@elsewhere.test", False, False),
    ],
)
async def test_the_policy_of_a_key_holds_for_scheduled_messages(
    api: Api, account: TestAccount, pool: asyncpg.Pool, recipients: tuple[str, ...], approval: str, to: str,
    moves: bool, cancels: bool,
) -> None:  # fmt: skip
    key = await listed(pool, account, *recipients, approval=approval)
    at, sooner = [clock.iso(clock.now() + timedelta(hours=hours)) for hours in (6, 1)]
    ways = {
        "/v1/emails/{id}/schedule": ("DELETE", "/v1/emails/{id}/schedule", "scheduledAt", 403),
        "/v1/compat/resend/emails/{id}": (
            "POST",
            "/v1/compat/resend/emails/{id}/cancel",
            "scheduled_at",
            401,
        ),  # as Resend
    }
    for path, (cancel, end, field, refused) in ways.items():
        mail = email(account, to=to, scheduledAt=at)
        sent = (await api.post("/v1/emails", account.token, mail)).json["id"]

        moved = await api.patch(path.format(id=sent), key, {field: sooner})
        canceled = await api.request(cancel, end.format(id=sent), token=key)

        assert (moved.status, canceled.status) == (200 if moves else refused, 200 if cancels else refused), path


async def test_a_refused_email_is_refused_at_the_dry_run(api: Api, account: TestAccount) -> None:
    answer = await ask(api, account.token, email(account, **{"from": "shop@elsewhere.test"}), dryRun=True)

    assert (answer.status, answer.error["type"]) == (403, "domain_not_verified")


# approval --------------------------------------------------------------------------------------


async def test_a_person_approves_a_send(api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool) -> None:
    key = await listed(pool, account, approval="required")
    asked = await ask(api, key, email(account))
    same = await ask(api, key, email(account))
    send = asked.json["id"]

    assert (asked.status, asked.json["state"], same.json["id"]) == (202, "pending", send)
    assert await messages(api, account) == []
    shown = await api.get(f"/v1/agent-sends/{send}", person=person)
    assert (shown.json["state"], shown.json["message"]["subject"]) == ("pending", "Hello")

    approved = await api.post(f"/v1/agent-sends/{send}/approve", person=person)

    assert (approved.status, approved.json["state"]) == (200, "sent")
    assert await messages(api, account) == [approved.json["messageId"]]
    known = (await api.get(f"/v1/agent-sends/{send}", key)).json
    assert (known["state"], known["messageId"]) == ("sent", approved.json["messageId"])
    log = (await api.get("/v1/audit/events", account.token)).json["data"]
    assert {"agent_send.requested", "agent_send.approved"} <= {one["type"] for one in log}


async def test_a_key_that_needs_approval_sends_by_no_other_door(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")

    answer = await api.post("/v1/emails", key, email(account))

    assert (answer.status, answer.error["type"]) == (403, "forbidden")
    assert "agent-sends" in answer.error["message"]


async def test_a_declined_send_goes_to_nobody(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]

    declined = await api.post(f"/v1/agent-sends/{send}/decline", person=person)
    approved = await api.post(f"/v1/agent-sends/{send}/approve", person=person)

    assert declined.json["state"] == "declined"
    assert (approved.status, approved.error["type"], approved.error["state"]) == (409, "invalid_state", "declined")
    assert await messages(api, account) == []
    assert await pool.fetchval("SELECT sealed_email FROM agent_sends WHERE account_id = $1", account.id) is None


async def test_approvals_at_the_same_time_send_once(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]

    answers = await asyncio.gather(*[api.post(f"/v1/agent-sends/{send}/approve", person=person) for _ in range(5)])

    assert 200 in {one.status for one in answers}
    assert {one.status for one in answers} <= {200, 409}
    assert len(await messages(api, account)) == 1


async def test_an_interrupted_approval_is_taken_up_again(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await pool.execute(
        "UPDATE agent_sends SET state = 'approved', decided_at = now() WHERE account_id = $1", account.id
    )

    assert (await api.post(f"/v1/agent-sends/{send}/approve", person=person)).json["state"] == "sent"
    assert len(await messages(api, account)) == 1


async def test_an_interrupted_approval_ends_with_the_time_to_decide(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await pool.execute(
        "UPDATE agent_sends SET state = 'approved', expires_at = now() - interval '1 s' WHERE account_id = $1",
        account.id,
    )

    late = await api.post(f"/v1/agent-sends/{send}/approve", person=person)
    await jobs.look_after(pool)

    assert (late.status, late.error["state"]) == (409, "approved")
    assert await pool.fetchval("SELECT sealed_email FROM agent_sends WHERE account_id = $1", account.id) is None


async def test_a_refusal_leaves_the_approval_of_another_person(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await pool.execute(
        "UPDATE agent_sends SET state = 'approved', decided_by = $2, decided_at = now() WHERE account_id = $1",
        account.id,
        uuid4(),
    )
    await api.post("/v1/suppressions", account.token, {"address": "ann@example.com"})

    refused = await api.post(f"/v1/agent-sends/{send}/approve", person=person)

    assert (refused.status, refused.error["type"]) == (422, "suppressed")
    assert (await api.get(f"/v1/agent-sends/{send}", person=person)).json["state"] == "approved"


async def test_what_a_revoked_key_asked_for_can_only_be_declined(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await pool.execute(
        "UPDATE api_keys SET revoked_at = now() WHERE account_id = $1 AND agent_approval = 'required'", account.id
    )

    refused = await api.post(f"/v1/agent-sends/{send}/approve", person=person)
    shown = (await api.get(f"/v1/agent-sends/{send}", person=person)).json
    declined = await api.post(f"/v1/agent-sends/{send}/decline", person=person)

    assert (refused.status, refused.error["type"], shown["error"]["type"]) == (409, "invalid_state", "invalid_state")
    assert (shown["state"], declined.json["state"]) == ("pending", "declined")
    assert await messages(api, account) == []


async def test_a_refused_approval_lets_the_send_wait(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await api.post("/v1/suppressions", account.token, {"address": "ann@example.com"})

    refused = await api.post(f"/v1/agent-sends/{send}/approve", person=person)
    shown = (await api.get(f"/v1/agent-sends/{send}", person=person)).json

    assert (refused.status, refused.error["type"]) == (422, "suppressed")
    assert (shown["state"], shown["message"], shown["error"]["type"]) == ("pending", None, "suppressed")


async def test_a_send_expires_and_loses_its_email(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    send = (await ask(api, key, email(account))).json["id"]
    await pool.execute("UPDATE agent_sends SET expires_at = now() - interval '1 s' WHERE account_id = $1", account.id)
    await jobs.look_after(pool)

    refused = await api.post(f"/v1/agent-sends/{send}/approve", person=person)

    assert (refused.status, refused.error["state"]) == (409, "expired")
    assert (await api.get(f"/v1/agent-sends/{send}", person=person)).json["state"] == "expired"
    expired = (await api.get("/v1/agent-sends?state=expired", person=person)).json["data"]
    assert [one["id"] for one in expired] == [send]
    assert await pool.fetchval("SELECT sealed_email FROM agent_sends WHERE account_id = $1", account.id) is None


# telling people ------------------------------------------------------------------------------------


async def mails(pool: asyncpg.Pool, account: TestAccount) -> dict[str, list[int]]:
    """Return how many sends waited, by the address of those who were told."""
    name = await pool.fetchval("SELECT name FROM accounts WHERE id = $1", account.id)
    found: dict[str, list[int]] = {}
    for row in await pool.fetch(
        "SELECT address, (detail->>'waiting')::int AS waiting FROM system_mail"
        " WHERE kind = 'agent_sends_waiting' AND detail->>'account_name' = $1 ORDER BY created_at, waiting",
        name,
    ):
        found.setdefault(row["address"], []).append(row["waiting"])
    return found


async def test_people_are_told_what_waits_at_most_once_in_a_while(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    await pool.execute("UPDATE accounts SET name = id::text WHERE id = $1", account.id)
    owner = await make_person(pool, account.id, "owner")
    key = await listed(pool, account, approval="required")
    for subject in ("One", "Two"):
        await ask(api, key, email(account, subject=subject))
    await asyncio.gather(*[jobs.look_after(pool) for _ in range(3)])
    first = await mails(pool, account)

    await ask(api, key, email(account, subject="Three"))
    await jobs.look_after(pool)
    soon = await mails(pool, account)
    await pool.execute(
        "UPDATE agent_sends SET told_at = told_at - $2::interval WHERE account_id = $1", account.id, TOLD_EVERY
    )
    await asyncio.gather(*[jobs.look_after(pool) for _ in range(3)])

    assert first == soon == {person.email: [2], owner.email: [2]}
    assert await mails(pool, account) == {person.email: [2, 3], owner.email: [2, 3]}


async def test_nobody_is_told_of_what_was_decided_or_of_a_suspended_account(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    await pool.execute("UPDATE accounts SET name = id::text WHERE id = $1", account.id)
    key = await listed(pool, account, approval="required")
    decided = (await ask(api, key, email(account))).json["id"]
    await api.post(f"/v1/agent-sends/{decided}/decline", person=person)
    await jobs.look_after(pool)
    assert await mails(pool, account) == {}

    await ask(api, key, email(account, subject="Two"))
    await pool.execute("UPDATE accounts SET status = 'suspended' WHERE id = $1", account.id)
    await jobs.look_after(pool)
    assert await mails(pool, account) == {}


async def test_the_bell_shows_what_waits(
    api: Api, account: TestAccount, person: TestPerson, pool: asyncpg.Pool
) -> None:
    key = await listed(pool, account, approval="required")
    sends = [(await ask(api, key, email(account, subject=subject))).json["id"] for subject in ("One", "Two")]

    [notice] = (await api.get("/v1/notices", person=person)).json["data"]
    for send in sends:
        await api.post(f"/v1/agent-sends/{send}/decline", person=person)

    assert (notice["kind"], notice["severity"], notice["objectId"]) == ("agent_sends_waiting", "warn", sends[1])
    assert notice["message"] == "Emails of agents wait for approval: 2."
    assert (await api.get("/v1/notices", person=person)).json["data"] == []


async def test_old_sends_are_deleted(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    key = await listed(pool, account, approval="required")
    await ask(api, key, email(account))
    await pool.execute("UPDATE agent_sends SET expires_at = now() - interval '31 d' WHERE account_id = $1", account.id)

    await jobs.look_after(pool)

    assert await pool.fetchval("SELECT count(*) FROM agent_sends WHERE account_id = $1", account.id) == 0


async def test_a_key_sees_its_own_sends_and_no_account_those_of_another(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    key, second = [await listed(pool, account, approval="required") for _ in range(2)]
    other = await make_account(pool)
    stranger = await make_person(pool, other.id, "owner")
    send = (await ask(api, key, email(account))).json["id"]

    assert (await api.get(f"/v1/agent-sends/{send}", key)).status == 200
    for token in (second, other.token):
        assert (await api.get(f"/v1/agent-sends/{send}", token)).status == 404
        assert (await api.get("/v1/agent-sends", token)).json["data"] == []
    assert (await api.post(f"/v1/agent-sends/{send}/approve", person=stranger)).status == 404


async def test_an_account_has_a_bound_of_waiting_sends(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    key = await listed(pool, account, approval="required")
    await ask(api, key, email(account))
    await pool.execute(
        "INSERT INTO agent_sends"
        " (id, account_id, key_id, state, digest, sender, subject, recipients, created_at, expires_at)"
        " SELECT gen_random_uuid(), account_id, key_id, state, 'x', sender, subject, recipients, created_at, expires_at"
        " FROM agent_sends, generate_series(2, $2) WHERE account_id = $1",
        account.id,
        MAX_PENDING,
    )

    answer = await ask(api, key, email(account, subject="One more"))

    assert (answer.status, answer.error["type"]) == (409, "conflict")


async def test_a_key_reads_what_it_allows(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    found = [
        (await api.get("/v1/agent-access", key)).json
        for key in (
            await listed(pool, account, "@example.com"),
            await listed(pool, account),
            await listed(pool, account, approval="required"),
            await add_key(pool, account.id, scopes=["messages:read"]),
        )
    ]

    assert [one["sending"] for one in found] == ["at_once", "confirm", "approval", "forbidden"]
    assert found[0]["recipients"] == ["@example.com"]
    assert found[3]["scopes"] == ["messages:read"]
