"""`/v1/profile`, a person's own record, and `PATCH /v1/account`, the account's name."""

from typing import Any

import asyncpg
import pytest

from tests.harness.account_log import details_logged
from tests.harness.accounts import TestAccount, set_status
from tests.harness.api import Answer, Api
from tests.harness.people import TestPerson, make_person

JSON = {"Content-Type": "application/json"}
NOTHING = {"name": None, "displayName": None, "timezone": None, "signature": None, "signatureAddresses": None}
ALL = {
    "name": "Ann Bee",
    "displayName": "Ann 🐝",
    "timezone": "Europe/Berlin",
    "signature": "Best\r\n\tAnn",
    "signatureAddresses": ["ann@people.test", "help@people.test"],
}


@pytest.fixture
async def ann(pool: asyncpg.Pool, account: TestAccount) -> TestPerson:
    return await make_person(pool, account.id, "member")


async def change(api: Api, person: TestPerson, body: object) -> Answer:
    return await api.patch("/v1/profile", json=body, person=person)


async def shown(api: Api, person: TestPerson) -> dict[str, Any]:
    answer = await api.get("/v1/profile", person=person)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def rename(api: Api, person: TestPerson, body: object) -> Answer:
    return await api.patch("/v1/account", json=body, person=person)


# the profile -------------------------------------------------------------------------------------


async def test_a_profile_begins_empty(api: Api, ann: TestPerson) -> None:
    assert await shown(api, ann) == {"id": ann.public_id, "email": ann.email, "emailVerified": True, **NOTHING}


async def test_all_fields_are_set_shown_and_cleared(api: Api, ann: TestPerson) -> None:
    whole = {"id": ann.public_id, "email": ann.email, "emailVerified": True}
    answer = await change(api, ann, ALL)

    assert (answer.status, answer.json) == (200, whole | ALL)
    assert await shown(api, ann) == whole | ALL
    assert (await api.get("/v1/auth/me", person=ann)).json["user"]["name"] == "Ann Bee"
    assert [one["name"] for one in (await api.get("/v1/team", person=ann)).json["members"]] == ["Ann 🐝"]
    assert (await change(api, ann, NOTHING)).json == whole | NOTHING


@pytest.mark.parametrize("field", list(ALL))
async def test_a_field_that_is_left_out_stays(api: Api, ann: TestPerson, field: str) -> None:
    await change(api, ann, ALL)
    answer = await change(api, ann, {field: None})

    assert {name: answer.json[name] for name in ALL} == ALL | {field: None}
    assert (await change(api, ann, {})).json == answer.json


async def test_white_space_around_a_name_is_dropped_and_a_blank_one_is_none(api: Api, ann: TestPerson) -> None:
    answer = await change(api, ann, {"name": "  Ann ", "displayName": " \t ", "signature": "\n"})

    assert {name: answer.json[name] for name in ("name", "displayName", "signature")} == {
        "name": "Ann", "displayName": None, "signature": None
    }  # fmt: skip


async def test_an_empty_list_of_addresses_is_none_of_them(api: Api, ann: TestPerson) -> None:
    assert (await change(api, ann, {"signatureAddresses": []})).json["signatureAddresses"] == []


async def test_addresses_are_kept_once_and_in_their_order(api: Api, ann: TestPerson) -> None:
    answer = await change(api, ann, {"signatureAddresses": ["B@People.test", "a@people.test", "b@people.test"]})

    assert answer.json["signatureAddresses"] == ["b@people.test", "a@people.test"]


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "Asia/Kolkata"]
)
async def test_a_time_zone_is_one_of_the_database(api: Api, ann: TestPerson, zone: str) -> None:
    assert (await change(api, ann, {"timezone": zone})).json["timezone"] == zone


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": "x" * 121}, 400, "name"), ({"name": "a\0b"}, 400, "name"), ({"name": "a\nb"}, 400, "name"),
        ({"name": 1}, 400, "name"), ({"displayName": "x" * 121}, 400, "displayName"),
        ({"displayName": "\x1b[31m"}, 400, "displayName"), ({"timezone": "Berlin"}, 400, "timezone"),
        ({"timezone": "../../etc/passwd"}, 400, "timezone"), ({"timezone": "europe/berlin"}, 400, "timezone"),
        ({"timezone": ""}, 400, "timezone"), ({"timezone": "Europe/Berlin\0"}, 400, "timezone"),
        ({"timezone": "x" * 65}, 400, "timezone"), ({"signature": "x" * 10_001}, 400, "signature"),
        ({"signature": "a\0b"}, 400, "signature"), ({"signatureAddresses": "a@b.test"}, 400, "signatureAddresses"),
        ({"signatureAddresses": ["a@b.test"] * 51}, 400, "signatureAddresses"),
        ({"signatureAddresses": [None]}, 400, "signatureAddresses[0]"),
        ({"signatureAddresses": ["a@b.test", "nobody"]}, 422, "signatureAddresses[1]"),
        ({"signatureAddresses": ["a\0@b.test"]}, 422, "signatureAddresses[0]"),
        ({"email": "other@people.test"}, 400, "email"), ({"role": "owner"}, 400, "role"), ([], 400, "body"),
    ],
)  # fmt: skip
async def test_a_bad_field_is_named_and_nothing_is_changed(
    api: Api, ann: TestPerson, body: object, status: int, field: str
) -> None:
    await change(api, ann, ALL)
    answer = await change(api, ann, body)

    assert (answer.status, answer.error["field"]) == (status, field)
    assert {name: (await shown(api, ann))[name] for name in ALL} == ALL


@pytest.mark.parametrize("octets", [b'{"name": "\\ud800"}', b'{"name": "\xff"}', b'{"name": "x"', b"null"])
async def test_octets_that_are_no_body_are_refused(api: Api, ann: TestPerson, octets: bytes) -> None:
    answer = await api.request("PATCH", "/v1/profile", person=ann, body=octets, headers=JSON)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


async def test_the_log_tells_which_fields_changed_and_nothing_of_them(
    api: Api, pool: asyncpg.Pool, account: TestAccount, ann: TestPerson
) -> None:
    await change(api, ann, ALL)
    await change(api, ann, ALL)  # changes nothing
    await change(api, ann, {"name": "Ann", "timezone": "Europe/Berlin"})

    fields = ["display_name", "name", "signature", "signature_addresses", "timezone"]
    assert await details_logged(pool, account.id, "member.profile_changed") == [
        {"id": ann.public_id, "fields": fields, "actor": ann.public_id},
        {"id": ann.public_id, "fields": ["name"], "actor": ann.public_id},
    ]


async def test_a_profile_is_the_persons_own_and_a_suspended_accounts_people_keep_theirs(
    api: Api, pool: asyncpg.Pool, account: TestAccount, ann: TestPerson
) -> None:
    bob = await make_person(pool, account.id, "owner")
    await set_status(pool, account.id, "suspended")
    await change(api, ann, {"name": "Ann"})

    assert ((await shown(api, ann))["name"], (await shown(api, bob))["name"]) == ("Ann", None)


# the account's name ------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["admin", "owner"])
async def test_an_admin_renames_the_account(api: Api, pool: asyncpg.Pool, account: TestAccount, role: str) -> None:
    person = await make_person(pool, account.id, role)
    answer = await rename(api, person, {"name": " Acme Größe "})

    assert (answer.status, answer.json["name"], answer.json["id"]) == (200, "Acme Größe", account.public_id)
    assert (await api.get("/v1/me", account.token)).json == answer.json
    assert (await api.get("/v1/auth/me", person=person)).json["account"]["name"] == "Acme Größe"
    assert await details_logged(pool, account.id, "account.renamed") == [
        {"name": "Acme Größe", "actor": person.public_id}
    ]
    assert (await rename(api, person, {"name": "Acme Größe"})).status == 200
    assert len(await details_logged(pool, account.id, "account.renamed")) == 1


@pytest.mark.parametrize(
    "body", [{}, {"name": ""}, {"name": "  "}, {"name": "x" * 121}, {"name": "a\0"}, {"name": None}, {"plan": "scale"}]
)
async def test_a_name_that_is_none_is_refused(api: Api, pool: asyncpg.Pool, account: TestAccount, body: object) -> None:
    answer = await rename(api, await make_person(pool, account.id), body)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
