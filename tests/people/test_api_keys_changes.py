"""`PATCH /v1/api-keys/{id}` and `POST /v1/api-keys/{id}/rotate`: renaming keys, and replacing them with an overlap."""

from datetime import timedelta

import asyncpg

from engine.base import clock, ids
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount
from tests.harness.api import Answer, Api, refused
from tests.harness.people import TestPerson
from tests.people.test_api_keys_create import made, make


async def rotate(api: Api, person: TestPerson, key: str, **body: object) -> Answer:
    return await api.post(f"/v1/api-keys/{key}/rotate", person=person, json=body)


async def works(api: Api, token: str) -> bool:
    return (await api.get("/v1/me", token)).status == 200


async def test_a_renamed_key_still_works_and_the_log_tells_both_names(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    key = await made(api, admin)
    for _ in range(2):
        answer = await api.patch(f"/v1/api-keys/{key['id']}", person=admin, json={"name": "worker"})
        assert (answer.status, answer.json["name"], answer.json["scopes"]) == (200, "worker", key["scopes"])

    assert await works(api, key["token"])
    detail = {"id": key["id"], "name": "worker", "before": "server", "actor": admin.public_id}
    assert (await logged(pool, account.id, "api_key."))[1:] == [("api_key.renamed", detail)]
    for name in ("", "x" * 121, "a\nb"):
        answer = await api.patch(f"/v1/api-keys/{key['id']}", person=admin, json={"name": name})
        assert (answer.status, answer.error["field"]) == (400, "name")


async def test_a_rotated_key_and_its_successor_work_until_the_overlap_ends(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    old = await made(api, admin, domains=[account.domain], networks=["127.0.0.1"])
    answer = await rotate(api, admin, old["id"], overlapHours=2)

    assert answer.status == 201, answer
    new = answer.json
    same = ("name", "scopes", "domains", "streams", "networks")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (new["expiresAt"], new["replaces"]["id"], new["replaces"]["replacedBy"]) == (None, old["id"], new["id"])
    ends = clock.parse_iso(new["replaces"]["expiresAt"]) - clock.now()
    assert timedelta(hours=1) < ends <= timedelta(hours=2)
    assert await works(api, old["token"])
    assert await works(api, new["token"])
    assert [kind for kind, _ in await logged(pool, account.id, "api_key.")] == [
        "api_key.created", "api_key.created", "api_key.rotated",
    ]  # fmt: skip


async def test_without_an_overlap_the_old_key_ends_with_the_answer(api: Api, admin: TestPerson) -> None:
    old = await made(api, admin)
    new = (await rotate(api, admin, old["id"], overlapHours=0)).json

    assert not await works(api, old["token"])
    assert await works(api, new["token"])


async def test_a_rotation_never_prolongs_a_key(api: Api, admin: TestPerson) -> None:
    end = clock.iso(clock.now() + timedelta(hours=1))
    old = await made(api, admin, expiresAt=end)
    new = (await rotate(api, admin, old["id"], overlapHours=48)).json

    assert (new["expiresAt"], new["replaces"]["expiresAt"]) == (end, end)


async def test_a_key_has_one_successor_which_waits_for_its_end(api: Api, pool: asyncpg.Pool, admin: TestPerson) -> None:
    old = await made(api, admin)
    new = (await rotate(api, admin, old["id"])).json

    assert refused(await rotate(api, admin, old["id"])) == (409, "invalid_state")
    assert refused(await rotate(api, admin, new["id"])) == (409, "invalid_state")
    assert (await api.delete(f"/v1/api-keys/{old['id']}", person=admin)).status == 204
    assert (await rotate(api, admin, new["id"])).status == 201
    assert refused(await rotate(api, admin, old["id"])) == (409, "invalid_state")  # revoked
    last = await made(api, admin)
    await pool.execute(
        "UPDATE api_keys SET expires_at = now() WHERE id = $1", ids.parse_id(ids.Kind.API_KEY, last["id"])
    )
    assert (await rotate(api, admin, last["id"])).error["status"] == "expired"


async def test_a_rotation_is_possible_at_the_plans_number_of_keys(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    await pool.execute("UPDATE accounts SET plan = 'free' WHERE id = $1", account.id)
    while (answer := await make(api, admin)).status == 201:
        key = answer.json["id"]
    assert refused(answer) == (403, "plan_limit_reached")

    assert (await rotate(api, admin, key)).status == 201
    assert refused(await make(api, admin)) == (403, "plan_limit_reached")
