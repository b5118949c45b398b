"""`POST /v1/leads`: the operator's contact form, with a key of the platform account."""

from collections.abc import AsyncIterator

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import ids
from engine.base.settings import Settings
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase, ServeApi
from tests.harness.accounts import TestAccount, make_account
from tests.harness.actors import key_of
from tests.harness.api import Answer, Api
from tests.harness.people import make_person

NUMBER = iter(range(1_000_000))


@pytest.fixture(scope="module")
async def own_url(lasting_database: NewDatabase) -> str:
    return await lasting_database()


@pytest.fixture(scope="module")
async def own_pool(own_url: str) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(own_url, name="leads", largest=4)
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
def here(settings: Settings, own_url: str, serve: ServeApi) -> Api:
    """A service with a platform account of its own."""
    return serve(structs.replace(settings, database_url=own_url))


@pytest.fixture(scope="module")
async def platform(own_pool: asyncpg.Pool) -> TestAccount:
    account = await make_account(own_pool)
    await own_pool.execute("INSERT INTO platform (account_id) VALUES ($1)", account.id)
    return account


def enquiry(**fields: object) -> dict[str, object]:
    """One from an address that nobody has asked from before."""
    made = {"name": "Ann", "email": f"ann{next(NUMBER)}@shop.test", "company": "Shop", "message": "How much?\nThanks"}
    return {name: value for name, value in (made | fields).items() if value is not None}


async def pass_on(api: Api, token: str | None, body: object) -> Answer:
    return await api.post("/v1/leads", token, body)


async def test_an_enquiry_is_kept_logged_and_mailed_to_the_owners(
    here: Api, own_pool: asyncpg.Pool, platform: TestAccount
) -> None:
    owner = await make_person(own_pool, platform.id, "owner")
    admin = await make_person(own_pool, platform.id, "admin")
    body = enquiry()
    answer = await pass_on(here, platform.token, body)
    lead = ids.parse_id(ids.Kind.LEAD, answer.json["id"])
    row = await own_pool.fetchrow("SELECT name, email, company, message FROM leads WHERE id = $1", lead)
    mails = await own_pool.fetch("SELECT address, detail FROM system_mail WHERE kind = 'lead'")
    event = await own_pool.fetchval("SELECT payload FROM events WHERE type = 'lead.received' ORDER BY seq DESC LIMIT 1")

    assert (answer.status, set(answer.json)) == (202, {"id"})
    assert row is not None
    assert dict(row) == body
    assert [orjson.loads(mail["detail"]) for mail in mails if mail["address"] == owner.email] == [body]
    assert admin.email not in {mail["address"] for mail in mails}
    assert orjson.loads(event)["detail"] == {"id": answer.json["id"], "actor": await key_of(own_pool, platform)}


async def test_name_and_company_may_be_left_out(here: Api, platform: TestAccount) -> None:
    assert (await pass_on(here, platform.token, enquiry(name=None, company=None))).status == 202


async def test_only_a_key_of_the_platform_account_may(here: Api, own_pool: asyncpg.Pool, platform: TestAccount) -> None:
    other = await make_account(own_pool)
    owner = await make_person(own_pool, platform.id, "owner")
    foreign = await pass_on(here, other.token, enquiry())
    nobody = await pass_on(here, None, enquiry())
    person = await here.post("/v1/leads", person=owner, json=enquiry())

    assert (foreign.status, foreign.error["type"]) == (403, "forbidden")
    assert (nobody.status, person.status) == (401, 401)


async def test_where_there_is_no_platform_account_no_key_is_its(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    answer = await pass_on(api, account.token, enquiry())

    assert (answer.status, answer.error["type"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"email": None}, 400, "email"), ({"email": "nobody"}, 422, "email"), ({"email": "a" * 321}, 400, "email"),
        ({"email": "Ann <ann@shop.test>"}, 422, "email"), ({"message": None}, 400, "message"),
        ({"message": ""}, 400, "message"), ({"message": " \n "}, 400, "message"), ({"message": "a\0"}, 400, "message"),
        ({"message": "x" * 5_001}, 400, "message"), ({"name": "x" * 121}, 400, "name"), ({"name": ""}, 400, "name"),
        ({"name": "a\r\nBcc: x@y.test"}, 400, "name"), ({"company": "x" * 201}, 400, "company"),
        ({"company": "a\0"}, 400, "company"), ({"phone": "1"}, 400, "phone"), ({"message": 1}, 400, "message"),
    ],
)  # fmt: skip
async def test_a_bad_field_is_named(
    here: Api, platform: TestAccount, fields: dict[str, object], status: int, field: str
) -> None:
    answer = await pass_on(here, platform.token, enquiry(**fields))

    assert (answer.status, answer.error["field"]) == (status, field)


async def test_one_address_may_ask_a_few_times_an_hour(here: Api, platform: TestAccount) -> None:
    email = f"often{next(NUMBER)}@shop.test"
    answers = [await pass_on(here, platform.token, enquiry(email=email)) for _ in range(5)]

    assert [answer.status for answer in answers] == [202] * 3 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) > 60
