"""No account sees, touches or learns of another's things: every operation by every id of another account.

Callers stand to whom they ask about as a stranger does, as a sub-account to its parent and to its sibling, and as a
parent to its sub-account. An operation that comes new is walked by itself; where it takes a body, BODIES has to say one
that it would accept.

Whether an id is of the right kind is decided before anybody asks whose it is. So ids of every kind are asked for in one
relation, and in the others only those that the operation takes: 25,000 requests instead of 72,000.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import Struct, structs
from msgspec.structs import fields

from api.http.operation import Access, Operation
from api.routes import all_operations
from engine.base import ids
from engine.base.settings import Settings
from engine.store.postgres import open_pool
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Answer, Api, name_of, serving
from tests.harness.everything import Estate, furnish, uuid_in, with_domain
from tests.harness.patience import PATIENCE_S
from tests.harness.people import TestPerson, signed_in
from tests.harness.sampling import sampled

OPERATIONS = all_operations()
_PARAMETER = re.compile(r"\{(\w+)\}")
AT_ONCE = 16

# Bodies that pass decoding, so that the id in the path is what is looked at.
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/v1/domains/{id}/cloudflare"): {"token": "x" * 40},
    ("PATCH", "/v1/domains/{id}"): {"returnPathLabel": "mine"},
    ("PUT", "/v1/inbound/mta-sts/{domain}"): {"mode": "testing"},
    ("PATCH", "/v1/alerts/rules/{id}"): {"enabled": False},
    ("PATCH", "/v1/broadcasts/{id}"): {"name": "Mine now"},
    ("POST", "/v1/broadcasts/{id}/test"): {"to": ["ann@people.test"]},
    ("PATCH", "/v1/contacts/{id}"): {"name": "Mine now"},
    ("POST", "/v1/contacts/{id}/confirmation"): {"from": "a@x.test"},
    ("PATCH", "/v1/emails/{id}/schedule"): {"scheduledAt": "2026-11-20T08:00:00Z"},
    ("PATCH", "/v1/api-keys/{id}"): {"name": "Mine now"},
    ("PATCH", "/v1/layouts/{id}"): {"name": "Mine now"},
    ("PATCH", "/v1/lists/{id}"): {"name": "Mine now"},
    ("POST", "/v1/lists/{id}/members"): {"contacts": ["con_00000000000000000000000000"]},
    ("POST", "/v1/lists/{id}/opt-outs"): {"addresses": ["ann@people.test"]},
    ("POST", "/v1/lists/{id}/opt-outs/import/file"): {"format": "csv", "content": "address\nann@people.test"},
    ("POST", "/v1/operator/accounts/{id}/agreement"): {"plan": None},
    ("POST", "/v1/operator/accounts/{id}/plan"): {"plan": "free"},
    ("POST", "/v1/operator/accounts/{id}/suspend"): {"reason": "Mine now"},
    ("POST", "/v1/operator/reviews/{id}/reject"): {"note": "Mine now"},
    ("PATCH", "/v1/operator/sites/{name}"): {"connections": 1},
    ("PATCH", "/v1/segments/{id}"): {"name": "Mine now"},
    ("PATCH", "/v1/views/{id}"): {"name": "Mine now"},
    ("PATCH", "/v1/webhooks/{id}"): {"status": "disabled"},
    ("PATCH", "/v1/templates/{id}"): {"subject": "Mine now"},
    ("POST", "/v1/templates/{id}/duplicate"): {},
    ("POST", "/v1/templates/{id}/preview"): {},
    ("POST", "/v1/templates/{id}/test"): {"from": "a@x.test", "to": ["ann@people.test"]},
    ("PATCH", "/v1/sub-accounts/{id}"): {"name": "Mine now"},
    ("PATCH", "/v1/team/members/{id}"): {"role": "member"},
    ("PATCH", "/v1/auth/passkeys/{id}"): {"name": "Mine now"},
    ("POST", "/v1/verifications/{id}/check"): {"code": "123456"},
    ("PATCH", "/v1/compat/resend/emails/{id}"): {"scheduled_at": "2100-01-01T00:00:00Z"},
    ("POST", "/v1/verifications/{id}/resend"): {"to": "ann@people.test"},
    ("PATCH", "/v1/inbound/addresses/{id}"): {"label": "Mine now"},
    ("POST", "/v1/inbound/messages/{id}/read"): {"read": True},
    ("POST", "/v1/inbound/messages/{id}/spam"): {"spam": True},
    ("POST", "/v1/inbound/messages/{id}/reply"): {"text": "Mine now"},
    ("PATCH", "/v1/inbound/routes/{id}"): {"enabled": False},
}
# What a parent's people may do with their sub-account's things, and why.
MAY = {
    ("DELETE", "/v1/api-keys/{id}"): "a sub-account has no people of its own: its parent's take its keys away",
    ("PATCH", "/v1/api-keys/{id}"): "a sub-account has no people of its own: its parent's rename its keys",
    ("POST", "/v1/api-keys/{id}/rotate"): "a sub-account has no people of its own: its parent's rotate its keys",
}
STREAMED = ("/v1/events/tail", "/v1/messages/tail")
ECHOED = "/v1/requests"  # shows the paths that the caller itself asked for; tests/accounts/test_request_log.py tries it


class Caller(Struct):
    """Somebody who asks: with a key, or as a person."""

    name: str
    account: TestAccount
    person: TestPerson | None = None

    def may_call(self, operation: Operation) -> bool:
        """Whether admission lets this kind of caller through."""
        return operation.access is Access.KEY or (operation.access is Access.SESSION and self.person is not None)

    async def ask(self, api: Api, operation: Operation, path: str, body: object = None) -> Answer:
        content = None if operation.request is None else orjson.dumps(body)
        token = None if self.person is not None else self.account.token
        headers = {"Content-Type": "application/json"} if content is not None else None
        return await api.request(operation.method, path, token=token, person=self.person, body=content, headers=headers)


class Relation(Struct):
    """Who asks about whose things."""

    caller: Caller
    whose: Estate
    own: Estate
    parental: bool = False

    @property
    def name(self) -> str:
        return f"{self.caller.name} about {self.whose.account.domain}"


class Cast(Struct):
    api: Api
    relations: list[Relation]


@pytest.fixture(scope="module")
async def everybody(
    settings: Settings, lasting_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory, http: Any
) -> AsyncIterator[Cast]:
    """Two unrelated accounts and a parent with two sub-accounts, each with one of everything."""
    database = await lasting_database()
    own = structs.replace(settings, database_url=database)
    pool = await open_pool(database, name="tests", largest=4)
    with serving(own, tmp_path_factory.mktemp("isolation") / "api.log") as url:
        api = Api(url, http)
        yield Cast(api, await relations(api, pool, own))
    await pool.close()


async def relations(api: Api, pool: asyncpg.Pool, settings: Settings) -> list[Relation]:
    stranger, other, parent = [
        await furnish(api, pool, await make_account(pool, plan="enterprise", domain=f"{name}.test"), settings)
        for name in ("stranger", "other", "parent")
    ]
    for one in (stranger, other, parent):  # the owners have signed in to make things; each has another session besides
        await signed_in(pool, one.owner.id, one.account.id, one.owner.email)
    child, sibling = [await below(api, pool, settings, parent, name) for name in ("child", "sibling")]
    keys = {
        one.account.domain: Caller(f"key of {one.account.domain}", one.account) for one in (stranger, parent, child)
    }
    people = {
        one.account.domain: Caller(f"owner of {one.account.domain}", one.account, one.owner)
        for one in (stranger, parent)
    }
    return [
        Relation(keys["stranger.test"], other, stranger),
        Relation(people["stranger.test"], other, stranger),
        Relation(people["stranger.test"], child, stranger),
        Relation(keys["child.test"], parent, child),
        Relation(keys["child.test"], sibling, child),
        Relation(keys["child.test"], other, child),
        Relation(keys["parent.test"], child, parent),
        Relation(people["parent.test"], child, parent, parental=True),
        Relation(people["parent.test"], other, parent),
    ]


async def below(api: Api, pool: asyncpg.Pool, settings: Settings, parent: Estate, name: str) -> Estate:
    made = await api.post("/v1/sub-accounts", None, {"name": name}, person=parent.owner)
    account = ids.parse_id(ids.Kind.ACCOUNT, made.json["id"])
    found = TestAccount(account, await add_key(pool, account), f"{name}.test")
    return await furnish(api, pool, await with_domain(pool, found), settings, parent)


def needles(relation: Relation, but: Iterable[str] = ()) -> list[str]:
    """What must not come back: what the other account's things are called, unless the caller has it too or said it."""
    mine, said = relation.own, " ".join(but)
    shared = {mine.owner.email, mine.member.email, *mine.things.values(), mine.account.public_id}
    if relation.parental or mine.things.get("sub_account"):  # a parent's lists name its sub-accounts
        shared.add(relation.whose.account.public_id)
    if mine.owner is relation.whose.owner and "sub_account" in relation.whose.things:
        shared |= {relation.whose.account.public_id, mine.owner.public_id}  # a sub-account's log says who opened it
    found = {relation.whose.account.domain, relation.whose.account.public_id, *relation.whose.things.values()}
    return sorted(one for one in found - shared if one not in said)


def leaks(relation: Relation, answer: Answer, *said: str) -> list[str]:
    text = answer.body.decode("utf-8", "replace")
    return [needle for needle in needles(relation, said) if needle in text]


async def gathered(work: list[Any]) -> list[Any]:
    """All of them, so many at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> Any:
        async with gate:
            return await item

    return list(await asyncio.gather(*map(one, work)))


WITH_IDS = [one for one in OPERATIONS if _PARAMETER.search(one.path) and one.access in {Access.KEY, Access.SESSION}]
LISTS = [
    one for one in OPERATIONS
    if one.method == "GET" and not _PARAMETER.search(one.path) and one.access in {Access.KEY, Access.SESSION}
    and one.path not in {*STREAMED, ECHOED}
]  # fmt: skip


# What the parameters of a path name, by the beginning of the path: things of an Estate, of which one has to be there.
# Where nothing is declared, everything is asked for in every relation.
ADDRESSES = ("recipient", "suppression", "opt_out", "inbound_mailbox", "invited")
KINDS: dict[str, tuple[str, ...]] = {
    "/v1/agent-sends/": ("agent_send",),
    "/v1/alerts/rules/": ("alert_rule",),
    "/v1/api-keys/": ("key",),
    "/v1/auth/passkeys/": ("passkey",),
    "/v1/auth/sessions/": ("owner_session", "member_session"),
    "/v1/billing/invoices/": ("invoice", "checkout"),
    "/v1/bounces/": ADDRESSES,
    "/v1/broadcasts/": ("broadcast",),
    "/v1/compat/postmark/message-streams/": ("stream",),
    "/v1/compat/postmark/messages/outbound/": ("message", "scheduled"),
    "/v1/compat/resend/domains/": ("domain",),
    "/v1/compat/resend/emails/": ("message", "scheduled"),
    "/v1/contacts/": ("contact",),
    "/v1/domains/": ("domain",),
    "/v1/emails/": ("message", "scheduled"),
    "/v1/images/": ("image",),
    "/v1/inbound/addresses/": ("inbound_address",),
    "/v1/inbound/domains/": ("domain",),
    "/v1/inbound/messages/": ("received",),
    "/v1/inbound/mta-sts/": ("domain_name",),
    "/v1/inbound/routes/": ("inbound_route",),
    "/v1/layouts/": ("layout",),
    "/v1/lists/": ("list",),
    "/v1/messages/": ("message", "scheduled"),
    "/v1/operator/accounts/": ("account", "sub_account"),
    "/v1/segments/": ("segment",),
    "/v1/streams/": ("stream",),
    "/v1/sub-accounts/": ("account", "sub_account"),
    "/v1/suppressions/": ADDRESSES,
    "/v1/team/invites/": ("invite",),
    "/v1/team/members/": ("owner", "member"),
    "/v1/templates/": ("template",),
    "/v1/verifications/": ("verification",),
    "/v1/views/": ("view",),
    "/v1/webhooks/": ("webhook",),
    "/v1/webhooks/deliveries/": ("event",),
}
SECOND = {
    "/v1/messages/{id}/attachments/{attachmentId}": "attachment",
    "/v1/inbound/messages/{id}/attachments/{attachmentId}": "received_attachment",
    "/v1/lists/{id}/members/{contactId}": "contact",
    "/v1/lists/{id}/opt-outs/{address}": "opt_out",
    "/v1/webhooks/{id}/deliveries/{event}": "event",
}
NO_BOUNCE = "/v1/bounces/{address}"  # nothing of an Estate has bounced


def beginning(operation: Operation) -> str:
    return operation.path.partition("{")[0]


def things_of(estate: Estate) -> dict[str, str]:
    account = estate.account
    return {**estate.things, "account": account.public_id, "domain_name": account.domain}


def theirs(relation: Relation) -> dict[str, str]:
    """Return what the other has and the caller has not: a sub-account is furnished by its parent's people."""
    mine = set(things_of(relation.own).values())
    return {name: value for name, value in things_of(relation.whose).items() if value not in mine}


def asked_for(operation: Operation, relation: Relation, *, all_kinds: bool) -> set[tuple[str, ...]]:
    """Return the values for the parameters of a path: one of theirs, or pairs of which at least one is theirs.

    Without `all_kinds` they are of the kinds that the operation takes. In a pair each stands in each place, beside the
    other's right kind, theirs and the caller's own.
    """
    found = theirs(relation)
    kinds = KINDS.get(beginning(operation), ())
    values = [value for name, value in found.items() if all_kinds or not kinds or name in kinds]
    if len(_PARAMETER.findall(operation.path)) == 1:
        return {(value,) for value in values}
    [first], second = kinds[:1], SECOND[operation.path]
    seconds = list(found.values()) if all_kinds else [found[second]]
    pairs: set[tuple[str, ...]] = {(value, value) for value in seconds}
    for things in (relation.whose.things, relation.own.things):
        pairs |= {(things[first], value) for value in seconds}
        pairs |= {(value, things[second]) for value in values}
    return pairs


@pytest.mark.parametrize("operation", sampled(WITH_IDS, 6), ids=name_of)
async def test_another_accounts_ids_are_as_unknown_as_any(operation: Operation, everybody: Cast) -> None:
    known = operation.request is None or operation.body_is_optional or (operation.method, operation.path) in BODIES
    assert known, "say a body for it in BODIES"
    assert set(KINDS.get(beginning(operation), ())) <= things_of(everybody.relations[0].whose).keys()
    body = BODIES.get((operation.method, operation.path), {})
    names = _PARAMETER.findall(operation.path)

    async def asked(relation: Relation, values: tuple[str, ...]) -> str | None:
        path = operation.path
        for name, value in zip(names, values, strict=True):
            path = path.replace(f"{{{name}}}", value)
        answer = await relation.caller.ask(everybody.api, operation, path, body)
        said = (answer.status, answer.error["type"] if answer.status >= 400 else None)
        if said == (404, "not_found") and not leaks(relation, answer, *values):
            return None
        return f"{relation.name}: {path} -> {said} {answer.body[:200]!r}"

    work: list[Any] = []
    for relation in everybody.relations:
        if not relation.caller.may_call(operation):
            continue
        if relation.parental and (operation.access is Access.SESSION or (operation.method, operation.path) in MAY):
            continue
        values = asked_for(operation, relation, all_kinds=not work)
        work += [asked(relation, one) for one in sorted(values)]
    wrong = [found for found in await gathered(work) if found is not None]

    assert work
    assert not wrong, f"{len(wrong)} of {len(work)}:\n" + "\n".join(wrong[:10])


READ = [
    one for one in WITH_IDS
    if one.method == "GET" and one.path != NO_BOUNCE and beginning(one) in KINDS
    and one.path.endswith("}") and one.path not in SECOND and not one.path.startswith("/v1/operator/")
]  # fmt: skip


@pytest.mark.parametrize("operation", READ, ids=name_of)
async def test_an_accounts_own_ids_are_known(operation: Operation, everybody: Cast) -> None:
    """Answer 200 to the owner for at least one thing of the kinds that KINDS declares for the path, and for none under
    the prefix of another kind.
    """
    owner, own = everybody.relations[1].caller, everybody.relations[1].own
    found: list[int] = []
    renamed: list[int] = []
    for name in KINDS[beginning(operation)]:
        thing = things_of(own)[name]
        other = f"{ids.Kind.CHECKOUT.value}_{thing[-26:]}" if uuid_in(thing) else f"{thing}-other"
        for value, statuses in ((thing, found), (other, renamed)):
            path = _PARAMETER.sub(value, operation.path)
            statuses.append((await owner.ask(everybody.api, operation, path)).status)

    assert 200 in found
    assert set(renamed) == {404}


@pytest.mark.parametrize("operation", sampled(LISTS, 4), ids=name_of)
async def test_no_list_shows_another_accounts_things(operation: Operation, everybody: Cast) -> None:
    for relation in everybody.relations:
        if relation.caller.may_call(operation):
            answer = await relation.caller.ask(everybody.api, operation, operation.path)
            assert answer.status < 500
            assert not leaks(relation, answer), relation.name


@pytest.mark.parametrize("operation", sampled([one for one in LISTS if one.query is not None], 4), ids=name_of)
async def test_no_cursor_or_filter_brings_another_accounts_things(operation: Operation, everybody: Cast) -> None:
    """An id of the wrong kind is a 400, of one's own too; what is taken finds nothing of theirs."""
    assert operation.query is not None
    names = [field.encode_name for field in fields(operation.query)]

    async def asked(relation: Relation, name: str, value: str) -> str | None:
        answer = await filtered(relation, name, value)
        if answer.status in {200, 400, 403, 404, 422} and not leaks(relation, answer, value):
            return None
        return f"{relation.name}: {operation.path}?{name}={value} -> {answer.status} {answer.body[:200]!r}"

    async def filtered(relation: Relation, name: str, value: str) -> Answer:
        path = f"{operation.path}?{name}={value.replace('+', '%2B')}"
        return await relation.caller.ask(everybody.api, operation, path)

    async def taken(name: str, thing: str, value: str) -> tuple[str, str] | None:
        return (name, thing) if (await filtered(able[0], name, value)).status != 400 else None

    able = [one for one in everybody.relations if one.caller.may_call(operation) and not one.parental]
    mine = things_of(able[0].own).items()
    right = set(await gathered([taken(name, thing, value) for name in names for thing, value in mine]))
    work = [
        asked(relation, name, value)
        for relation in able
        for name in names
        for thing, value in theirs(relation).items()
        if relation is able[0] or (name, thing) in right
    ]
    wrong = [found for found in await gathered(work) if found is not None]

    assert not wrong, f"{len(wrong)} of {len(work)}:\n" + "\n".join(wrong[:10])


async def test_no_tail_replays_another_accounts_events(everybody: Cast) -> None:
    for relation in everybody.relations:
        if relation.caller.person is not None:
            continue
        token = relation.caller.account.token
        texts = await asyncio.gather(*(first_second(everybody.api, f"{path}?replay=100", token) for path in STREAMED))
        for path, text in zip(STREAMED, texts, strict=True):
            assert "event: ready" in text
            assert not [needle for needle in needles(relation) if needle in text], f"{relation.name}: {path}"


async def first_second(api: Api, path: str, token: str) -> str:
    """Return what a stream sends within a second of its first event."""
    octets = b""
    headers = {"Authorization": f"Bearer {token}"}
    async with api._session.get(api.base_url + path, headers=headers) as response:
        async with asyncio.timeout(PATIENCE_S):
            while b"event: ready" not in octets:
                octets += await response.content.readany()
        try:
            async with asyncio.timeout(1.0):
                async for chunk in response.content.iter_any():
                    octets += chunk
        except TimeoutError:
            pass
    return octets.decode()


async def test_nothing_is_sent_with_another_accounts_things(everybody: Cast) -> None:
    """Bodies name domains, streams, templates, keys and sub-accounts: another's are unknown there too."""
    for relation in everybody.relations:
        if relation.caller.person is not None:
            continue
        mine, things, api = relation.own.account, relation.whose.things, everybody.api
        refusals = [
            (mine.email(**{"from": relation.whose.account.sender}), 403, "domain_not_verified"),
            (mine.email(stream=things["stream"]), 400, "invalid_request"),
            (mine.email(template=things["template"], text=None, subject=None), None, None),
        ]
        for body, status, kind in refusals:
            single = await api.post("/v1/emails", mine.token, body)
            batch = await api.post("/v1/emails/batch", mine.token, {"messages": [body]})
            inner = batch.json["data"][0]["error"]
            assert single.status >= 400
            assert status is None or (single.status, single.error["type"]) == (status, kind)
            assert inner["type"] == single.error["type"]
            assert not leaks(relation, single, str(body))
        replayed = await api.post(
            f"/v1/webhooks/deliveries/{relation.own.things['event']}/replay",
            mine.token,
            {"webhookId": things["webhook"]},
        )
        assert replayed.status == 404
        used = ids.encode(relation.whose.account.id)  # as idempotencyKey it stands for a message of theirs
        fresh = await api.post("/v1/emails", mine.token, mine.email(idempotencyKey=used))
        assert (fresh.status, fresh.json["status"]) == (202, "queued")


async def test_no_mail_is_routed_to_or_claimed_from_another_account(everybody: Cast) -> None:
    for relation in everybody.relations:
        if relation.caller.person is not None:
            continue
        mine, whose, api = relation.own.account, relation.whose, everybody.api
        claimed = await api.post("/v1/inbound/addresses", mine.token, {"address": f"x@{whose.account.domain}"})
        target = {"domain": mine.domain, "action": "webhook", "webhookId": whose.things["webhook"]}
        routed = [
            await api.post("/v1/inbound/routes", mine.token, body)
            for body in (
                target,
                {"address": whose.things["inbound_mailbox"], "action": "mailbox"},
                {"domain": whose.account.domain, "action": "mailbox"},
            )
        ]
        forward = {"domain": mine.domain, "action": "forward", "forwardTo": f"x@{whose.account.domain}"}
        forwarded = await api.post("/v1/inbound/routes", mine.token, forward)
        assert (claimed.status, claimed.error["type"]) == (403, "domain_not_verified")
        assert [(one.status, one.error["type"]) for one in routed] == [(404, "not_found")] * 3
        assert (forwarded.status, forwarded.error["field"]) == (400, "forwardTo")


async def test_no_key_is_made_or_listed_and_no_account_entered_across_the_border(everybody: Cast) -> None:
    for relation in everybody.relations:
        person, api = relation.caller.person, everybody.api
        if person is None or relation.parental:
            continue
        whose = relation.whose
        accounts = {whose.account.public_id, whose.things.get("sub_account", whose.account.public_id)}
        for account in sorted(accounts):
            wanted = {"name": "Mine", "scopes": ["emails:send"], "subAccountId": account}
            made = await api.post("/v1/api-keys", None, wanted, person=person)
            entered = await api.post("/v1/auth/switch", None, {"accountId": account}, person=person)
            listed = await api.get(f"/v1/api-keys?subAccountId={account}", person=person)
            assert [one.status for one in (made, entered, listed)] == [404] * 3, relation.name
        for limits in ({"domains": [whose.account.domain]}, {"streams": [whose.things["stream"]]}):
            made = await api.post(
                "/v1/api-keys", None, {"name": "Mine", "scopes": ["emails:send"]} | limits, person=person
            )
            assert made.status == 400, relation.name


async def test_everything_is_as_it_was(everybody: Cast) -> None:
    """Last: whose things were asked about still has each of them."""
    for relation in everybody.relations:
        token, things = relation.whose.account.token, relation.whose.things
        for path in (
            f"/v1/messages/{things['message']}", f"/v1/templates/{things['template']}",
            f"/v1/webhooks/{things['webhook']}", f"/v1/domains/{things['domain']}",
            f"/v1/inbound/addresses/{things['inbound_address']}", f"/v1/inbound/routes/{things['inbound_route']}",
        ):  # fmt: skip
            assert (await everybody.api.get(path, token)).status == 200
        scheduled = await everybody.api.get(f"/v1/messages/{things['scheduled']}", token)
        assert scheduled.json["status"] == "scheduled"
        held = (await everybody.api.get("/v1/suppressions", token)).json["data"]
        assert things["suppression"] in {row["address"] for row in held}
        keys = (await everybody.api.get("/v1/api-keys", token)).json["data"]
        assert [row["revokedAt"] for row in keys if row["id"] == things["key"]] == [None]


def test_ids_are_recognised() -> None:
    assert uuid_in(ids.format_id(ids.Kind.LEAD, ids.uuid7())) is not None
    assert uuid_in("news-1") is None
