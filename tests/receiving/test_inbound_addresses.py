"""Claimed addresses over the API: claimed, listed, changed, deleted, and bounded by the plan."""

import asyncio
from typing import Any

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.plans import CAPS, Plan
from engine.sending.domains import store as domains
from tests.harness.account_log import logged
from tests.harness.accounts import TestAccount, add_domain, add_key, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api
from tests.harness.people import make_person


async def claim(api: Api, account: TestAccount, address: str, **fields: object) -> dict[str, Any]:
    answer = await api.post("/v1/inbound/addresses", account.token, {"address": address} | fields)
    assert answer.status == 201, answer
    return dict(answer.json)


async def patch(api: Api, account: TestAccount, id: str, **fields: object) -> Answer:  # noqa: A002
    return await api.patch(f"/v1/inbound/addresses/{id}", account.token, fields)


async def managed(api: Api, account: TestAccount) -> str:
    return str((await api.get("/v1/inbound/domains", account.token)).json["managed"]["name"])


async def test_an_address_is_claimed_with_its_label(api: Api, account: TestAccount) -> None:
    made = await claim(api, account, f"Support@{account.domain.upper()}", label=" Help desk ")

    assert made["id"].startswith("iad_")
    assert made == {
        "id": made["id"], "address": f"Support@{account.domain}", "label": "Help desk", "enabled": True,
        "createdAt": made["createdAt"], "lastReceivedAt": None, "unread": 0,
    }  # fmt: skip
    assert clock.parse_iso(made["createdAt"]) <= clock.now()
    assert (await api.get(f"/v1/inbound/addresses/{made['id']}", account.token)).json == made
    listed = (await api.get("/v1/inbound/addresses", account.token)).json
    assert listed == {"data": [{name: value for name, value in made.items() if name != "unread"}], "nextCursor": None}


async def test_an_empty_label_is_none(api: Api, account: TestAccount) -> None:
    for number, label in enumerate((None, "", "  ")):
        assert (await claim(api, account, f"a{number}@{account.domain}", label=label))["label"] is None


@pytest.mark.parametrize(
    "address", ["support", "a b@x.test", "Support <support@x.test>", "<a@x.test>", "a@x.test, b@x.test", '"a b"@x.test']
)
async def test_what_is_no_plain_address_is_refused(api: Api, account: TestAccount, address: str) -> None:
    answer = await api.post("/v1/inbound/addresses", account.token, {"address": address})

    assert (answer.status, answer.error["type"], answer.error["field"]) == (422, "invalid_address", "address")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "address"), ({"address": "a@x.test", "label": "x" * 121}, "label"),
        ({"address": "a@x.test", "label": "a\u0007b"}, "label"), ({"address": "a@x.test", "adress": "b"}, "adress"),
        ({"address": "a@x.test", "enabled": False}, "enabled"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named(api: Api, account: TestAccount, fields: dict[str, object], field: str) -> None:
    answer = await api.post("/v1/inbound/addresses", account.token, fields)

    assert (answer.status, answer.error["type"], answer.error["field"]) == (400, "invalid_request", field)


async def test_only_addresses_under_verified_domains_of_the_account_are_claimed(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    pending = f"pending-{account.domain}"
    await add_domain(pool, account.id, pending, verified=False)
    stranger = await make_account(pool)

    for domain in (
        pending,
        stranger.domain,
        f"sub.{account.domain}",
        "mail.waybill.test",
        await managed(api, stranger),
    ):
        answer = await api.post("/v1/inbound/addresses", account.token, {"address": f"support@{domain}"})
        assert (answer.status, answer.error["type"]) == (403, "domain_not_verified"), domain
        assert answer.error["domain"] == domain


async def test_an_address_is_claimed_once_in_any_case(api: Api, account: TestAccount) -> None:
    made = await claim(api, account, f"Support@{account.domain}")

    again = await api.post("/v1/inbound/addresses", account.token, {"address": f"sUPPORT@{account.domain}"})

    assert (again.status, again.error["type"], again.error["id"]) == (409, "conflict", made["id"])
    await claim(api, account, f"support+tag@{account.domain}")
    await claim(api, account, f"*@{account.domain}")


async def test_addresses_of_a_name_that_moved_here_can_be_claimed_again(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    await claim(api, account, f"support@{account.domain}")
    other = await make_account(pool)
    row = await domains.READ.first(pool, account.id, account.domain)
    assert row is not None
    await domains.MARK.execute(pool, row.id, "failed")
    await add_domain(pool, other.id, account.domain)

    await claim(api, other, f"support@{account.domain}")


async def test_addresses_under_the_managed_domain_can_be_claimed(api: Api, account: TestAccount) -> None:
    name = await managed(api, account)

    for local in ("*", "orders"):
        assert (await claim(api, account, f"{local}@{name}"))["address"] == f"{local}@{name}"


async def test_label_and_enabled_are_changed_and_recorded(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    made = await claim(api, account, f"support@{account.domain}", label="Old")

    changed = await patch(api, account, made["id"], label="New", enabled=False)
    same = await patch(api, account, made["id"], enabled=False)
    cleared = await patch(api, account, made["id"], label=None)

    assert [answer.status for answer in (changed, same, cleared)] == [200] * 3
    assert changed.json == made | {"label": "New", "enabled": False}
    assert same.json == changed.json
    assert cleared.json == changed.json | {"label": None}
    key, named = await key_of(pool, account), {"id": made["id"], "address": made["address"]}
    assert await logged(pool, account.id, "inbound") == [
        ("inbound_address.created", named | {"label": "Old", "actor": key}),
        ("inbound_address.updated", named | {"label": "New", "enabled": False, "actor": key}),
        ("inbound_address.updated", named | {"label": None, "actor": key}),
    ]


async def test_the_address_itself_never_changes(api: Api, account: TestAccount) -> None:
    made = await claim(api, account, f"support@{account.domain}")

    answer = await patch(api, account, made["id"], address=f"help@{account.domain}")

    assert (answer.status, answer.error["field"]) == (400, "address")


async def test_deleting_an_address_takes_its_route_along_and_frees_its_place(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await claim(api, account, f"support@{account.domain}")
    body = {"address": made["address"], "action": "webhook"}
    route = (await api.post("/v1/inbound/routes", account.token, body)).json

    gone = await api.delete(f"/v1/inbound/addresses/{made['id']}", account.token)

    assert gone.status == 204
    for path in (f"/v1/inbound/addresses/{made['id']}", f"/v1/inbound/routes/{route['id']}"):
        assert (await api.get(path, account.token)).status == 404
    assert (await api.delete(f"/v1/inbound/addresses/{made['id']}", account.token)).status == 404
    kind, detail = (await logged(pool, account.id, "inbound"))[-1]
    assert (kind, detail["id"], detail["route_id"]) == ("inbound_address.deleted", made["id"], route["id"])
    await claim(api, account, made["address"])


async def test_unread_leaves_out_spam_and_mail_that_only_webhooks_got(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    made = await claim(api, account, f"support@{account.domain}")
    address = ids.parse_id(ids.Kind.INBOUND_ADDRESS, made["id"])
    # in_mailbox, is_spam, is_read, messages
    for counted in ((True, False, False, 3), (True, False, True, 5), (True, True, False, 7), (False, False, False, 11)):
        await pool.execute(
            "INSERT INTO inbound_counts"
            " (account_id, address_id, address, domain, in_mailbox, is_spam, is_read, messages)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            account.id, address, made["address"], account.domain, *counted,
        )  # fmt: skip

    assert (await api.get(f"/v1/inbound/addresses/{made['id']}", account.token)).json["unread"] == 3


# -- plan limits ------------------------------------------------------------------------------------


async def limits(api: Api, account: TestAccount) -> dict[str, tuple[int | None, int]]:
    shown = (await api.get("/v1/me", account.token)).json["limits"]
    return {one["resource"]: (one["limit"], one["used"]) for one in shown}


async def test_a_plan_without_inbound_refuses_every_address(api: Api, pool: asyncpg.Pool) -> None:
    free = await make_account(pool, plan="free")

    answer = await api.post("/v1/inbound/addresses", free.token, {"address": f"support@{free.domain}"})

    assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached")
    assert {name: answer.error[name] for name in ("resource", "limit", "used")} == {
        "resource": "inbound_addresses", "limit": 0, "used": 0,
    }  # fmt: skip
    assert (await limits(api, free))["inbound_addresses"] == (0, 0)


async def test_the_plans_limit_is_exact_under_parallel_claims(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool, plan="starter")
    limit = CAPS[Plan.STARTER].inbound_addresses

    answers = await asyncio.gather(
        *(
            api.post("/v1/inbound/addresses", account.token, {"address": f"a{n}@{account.domain}"})
            for n in range(3 * limit)
        )
    )

    refused = [answer for answer in answers if answer.status != 201]
    assert len(answers) - len(refused) == limit
    for answer in refused:
        assert (answer.status, answer.error["type"]) == (403, "plan_limit_reached")
        assert (answer.error["limit"], answer.error["used"]) == (limit, limit)
    assert (await limits(api, account))["inbound_addresses"] == (limit, limit)


async def test_parallel_claims_of_one_address_make_one(api: Api, account: TestAccount) -> None:
    body = {"address": f"support@{account.domain}"}

    answers = await asyncio.gather(*(api.post("/v1/inbound/addresses", account.token, body) for _ in range(8)))

    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    [made] = [answer.json["id"] for answer in answers if answer.status == 201]
    assert {answer.error["id"] for answer in answers if answer.status == 409} == {made}


async def test_the_limit_holds_for_each_sub_account_apart_by_the_parents_plan(api: Api, pool: asyncpg.Pool) -> None:
    parent = await make_account(pool, plan="growth")
    owner = await make_person(pool, parent.id, "owner")
    made = (await api.post("/v1/sub-accounts", None, {"name": "Below"}, person=owner)).json
    below = ids.parse_id(ids.Kind.ACCOUNT, made["id"])
    child = TestAccount(below, await add_key(pool, below), f"below-{parent.domain}")
    await add_domain(pool, below, child.domain)
    await claim(api, parent, f"support@{parent.domain}")

    await claim(api, child, f"support@{child.domain}")

    limit = CAPS[Plan.GROWTH].inbound_addresses
    for one in (parent, child):
        assert (await limits(api, one))["inbound_addresses"] == (limit, 1)


async def test_a_months_received_mail_counts_on_the_parent(api: Api, account: TestAccount, pool: asyncpg.Pool) -> None:
    child = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", child.id, account.id)
    month = clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'received_messages', $2, 17)", account.id, month)

    for one in (account, child):
        assert (await limits(api, one))["received_messages"] == (200_000, 17)


# -- keys limited to domains ------------------------------------------------------------------------


async def limited_key(api: Api, pool: asyncpg.Pool, account: TestAccount, *names: str) -> TestAccount:
    owner = await make_person(pool, account.id, "owner")
    wanted = {"name": "Limited", "scopes": ["inbound:read", "inbound:write"], "domains": list(names)}
    made = await api.post("/v1/api-keys", None, wanted, person=owner)
    assert made.status == 201, made
    return TestAccount(account.id, made.json["token"], account.domain)


async def test_a_key_limited_to_domains_sees_and_changes_only_theirs(
    api: Api, account: TestAccount, pool: asyncpg.Pool
) -> None:
    other = f"other-{account.domain}"
    await add_domain(pool, account.id, other)
    limited = await limited_key(api, pool, account, account.domain)
    mine = await claim(api, limited, f"support@{account.domain}")
    theirs = await claim(api, account, f"support@{other}")
    routed = (await api.post("/v1/inbound/routes", account.token, {"domain": other, "action": "both"})).json
    own = (await api.post("/v1/inbound/routes", limited.token, {"address": mine["address"], "action": "both"})).json

    for path, found in (("/v1/inbound/addresses", mine), ("/v1/inbound/routes", own)):
        assert [one["id"] for one in (await api.get(path, limited.token)).json["data"]] == [found["id"]]
    for path in (f"/v1/inbound/addresses/{theirs['id']}", f"/v1/inbound/routes/{routed['id']}"):
        answers = [
            await api.get(path, limited.token),
            await api.patch(path, limited.token, {"enabled": False}),
            await api.delete(path, limited.token),
        ]
        assert [answer.status for answer in answers] == [404] * 3, path
    for path, body in (
        ("/v1/inbound/addresses", {"address": f"x@{other}"}),
        ("/v1/inbound/routes", {"address": theirs["address"], "action": "both"}),
        ("/v1/inbound/routes", {"domain": other, "action": "both"}),
    ):
        answer = await api.post(path, limited.token, body)
        assert (answer.status, answer.error["type"]) == (403, "forbidden"), body
    assert (await patch(api, limited, mine["id"], enabled=False)).status == 200
    shown = (await api.get("/v1/inbound/domains", limited.token)).json
    assert [one["name"] for one in shown["data"]] == [account.domain]
    assert shown["managed"] is None
