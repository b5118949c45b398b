"""A key limited to a domain or a stream learns and changes nothing of the others: every operation that says `OWN`.

One account has one of everything, and keys for another domain and another stream of it. Who is refused at the door is
tried in test_roles.py.
"""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import Struct, structs

from api.http.operation import LimitedKeys, Operation
from api.routes import all_operations
from engine.base.settings import Settings
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.contracts.test_isolation import BODIES, STREAMED, things_of
from tests.harness.accounts import TestAccount, add_domain, add_key, add_stream, make_account
from tests.harness.api import Api, name_of, serving
from tests.harness.everything import Estate, furnish

OTHER_DOMAIN, OTHER_STREAM = "limited.test", "limited"
DOMAIN_KEY, STREAM_KEY = "domain", "stream"
# What each operation's path names, by its beginning, and whether that belongs to a domain and to a stream.
OWNED = {
    "/v1/messages/": ("message", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/emails/": ("scheduled", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/broadcasts/": ("broadcast", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/verifications/": ("verification", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/webhooks/": ("webhook", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/agent-sends/": ("agent_send", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/streams/": ("stream", {STREAM_KEY}),
    "/v1/domains/": ("domain", {DOMAIN_KEY}),
    "/v1/inbound/addresses/": ("inbound_address", {DOMAIN_KEY}),
    "/v1/inbound/domains/": ("domain", {DOMAIN_KEY}),
    "/v1/inbound/messages/": ("received", {DOMAIN_KEY}),
    "/v1/inbound/mta-sts/": ("domain_name", {DOMAIN_KEY}),
    "/v1/inbound/routes/": ("inbound_route", {DOMAIN_KEY}),
    "/v1/compat/resend/emails/": ("scheduled", {DOMAIN_KEY, STREAM_KEY}),
    "/v1/compat/resend/domains/": ("domain", {DOMAIN_KEY}),
    "/v1/compat/postmark/messages/outbound/": ("message", {DOMAIN_KEY, STREAM_KEY}),
}
BOUNCES = "/v1/compat/postmark/bounces/"  # nothing here has bounced: tests/sending/test_compat_reads.py tries them
# Their paths name what all domains share; they send from the domains and on the streams of the key alone.
TEMPLATE_TEST, CONFIRMATION = "/v1/templates/{id}/test", "/v1/contacts/{id}/confirmation"
# The endpoint gets all events, so it is no limited key's; the sends that an agent asked for are its own key's alone.
UNFILTERED = ("/v1/webhooks/", "/v1/agent-sends/")
REFUSED = {
    DOMAIN_KEY: {LimitedKeys.WHOLE_ACCOUNT, LimitedKeys.OWN_STREAMS},
    STREAM_KEY: {LimitedKeys.WHOLE_ACCOUNT, LimitedKeys.OWN_DOMAINS},
}
_OWN = {LimitedKeys.OWN, LimitedKeys.OWN_DOMAINS, LimitedKeys.OWN_STREAMS}
OPERATIONS = [one for one in all_operations() if one.limited_keys in _OWN]
WITH_IDS = [
    one for one in OPERATIONS
    if "{" in one.path and one.path not in {TEMPLATE_TEST, CONFIRMATION} and not one.path.startswith(BOUNCES)
]  # fmt: skip
LISTS = [one for one in OPERATIONS if one.method == "GET" and "{" not in one.path and one.path not in STREAMED]


class Limited(Struct):
    """An account with one of everything, and the tokens of keys for another domain and another stream of it.

    `owners`: tokens of keys for the domain and the streams of its things.
    """

    api: Api
    estate: Estate
    tokens: dict[str, str]
    owners: dict[str, str]


@pytest.fixture(scope="module")
async def limited(
    settings: Settings, lasting_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory, http: Any
) -> AsyncIterator[Limited]:
    database = await lasting_database()
    own = structs.replace(settings, database_url=database)
    pool = await open_pool(database, name="tests", largest=4)
    with serving(own, tmp_path_factory.mktemp("limited") / "api.log") as url:
        api = Api(url, http)
        account = await make_account(pool, plan="enterprise", domain="whole.test")
        estate = await furnish(api, pool, account, own)
        streams = [
            row["slug"] for row in await pool.fetch("SELECT slug FROM streams WHERE account_id = $1", account.id)
        ]
        owners = {
            DOMAIN_KEY: await add_key(pool, account.id, domains=[account.domain]),
            STREAM_KEY: await add_key(pool, account.id, streams=streams),
        }
        yield Limited(api, estate, await _keys(pool, account), owners)
    await pool.close()


async def _keys(pool: asyncpg.Pool, account: TestAccount) -> dict[str, str]:
    await add_domain(pool, account.id, OTHER_DOMAIN)
    await add_stream(pool, account.id, OTHER_STREAM)
    return {
        DOMAIN_KEY: await add_key(pool, account.id, domains=[OTHER_DOMAIN]),
        STREAM_KEY: await add_key(pool, account.id, streams=[OTHER_STREAM]),
    }


def path_of(operation: Operation, limited: Limited) -> str:
    """Return the path with the ids of the account's things."""
    things = things_of(limited.estate)
    named, _ = OWNED[operation.path.partition("{")[0]]
    path = operation.path.replace("{id}", things[named]).replace("{domain}", things[named])
    second = "received_attachment" if named == "received" else "attachment"
    return path.replace("{attachmentId}", things[second]).replace("{event}", things["event"])


@pytest.mark.parametrize("operation", WITH_IDS, ids=name_of)
async def test_what_belongs_to_others_is_as_unknown_as_any_id(operation: Operation, limited: Limited) -> None:
    assert operation.path.partition("{")[0] in OWNED, "say in OWNED what its path names"
    _, owners = OWNED[operation.path.partition("{")[0]]
    path = path_of(operation, limited)
    body = BODIES.get((operation.method, operation.path), {})
    for kind in owners:
        if operation.limited_keys in REFUSED[kind]:
            continue
        content = None if operation.request is None else orjson.dumps(body)
        headers = {"Content-Type": "application/json"} if content is not None else None
        answer = await limited.api.request(
            operation.method, path, token=limited.tokens[kind], body=content, headers=headers
        )

        assert (answer.status, answer.error["type"]) == (404, "not_found"), kind


@pytest.mark.parametrize(
    "operation", [one for one in WITH_IDS if one.method == "GET" and not one.path.startswith(UNFILTERED)], ids=name_of
)
async def test_what_belongs_to_a_key_is_read_by_it(operation: Operation, limited: Limited) -> None:
    for token in limited.owners.values():
        answer = await limited.api.get(path_of(operation, limited), token)

        # Of the message, which still waits, a certificate is refused for its state: the key may know that.
        assert answer.status == (409 if operation.path.endswith("/certificate") else 200), answer.body


async def test_a_test_of_a_template_is_sent_as_any_mail_of_the_key(limited: Limited) -> None:
    estate = limited.estate
    path = TEMPLATE_TEST.replace("{id}", estate.things["template"])
    body = {"from": estate.account.sender, "to": [estate.owner.email]}
    for token in limited.tokens.values():
        answer = await limited.api.post(path, token, body)

        assert answer.status == 403 or answer.json["data"][0]["error"]["type"] == "forbidden"


@pytest.mark.parametrize("operation", LISTS, ids=name_of)
async def test_lists_leave_out_what_belongs_to_others(operation: Operation, limited: Limited) -> None:
    things = things_of(limited.estate)
    for kind, token in limited.tokens.items():
        if operation.limited_keys in REFUSED[kind]:
            continue
        answer = await limited.api.get(operation.path, token)
        hidden = {things[name] for name, owners in OWNED.values() if kind in owners} | {things["recipient"]}
        text = answer.body.decode()
        if operation.path == "/v1/inbound/routes":
            hidden.discard(things["webhook"])  # a route for every stream may name it

        assert answer.status == 200, (kind, answer.body)
        assert not [one for one in hidden if one in text], kind


async def test_everything_is_as_it_was(limited: Limited) -> None:
    """Last: the account still has each of its things."""
    token, things = limited.estate.account.token, limited.estate.things
    for path in ("messages", "webhooks", "domains", "broadcasts", "verifications"):
        assert (await limited.api.get(f"/v1/{path}/{things[path.removesuffix('s')]}", token)).status == 200
    assert (await limited.api.get(f"/v1/messages/{things['scheduled']}", token)).json["status"] == "scheduled"
    assert things["stream"] in {row["id"] for row in (await limited.api.get("/v1/streams", token)).json["data"]}
