"""Who may call what: every operation by every kind of caller, held against what its record declares.

Each request carries a query parameter that no operation has. It is refused by name right behind admission, before the
body is read and the handler runs: so the matrix changes nothing, and getting past admission is an exact answer too.
"""

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec import Struct, structs

from api.http.operation import Access, Area, LimitedKeys, Operation
from api.routes import all_operations
from engine.base.errors import REGISTRY, ErrorType
from engine.base.roles import Role
from engine.base.scopes import SCOPES
from tests.harness.accounts import add_key, make_account, set_status
from tests.harness.api import Answer, Api, name_of
from tests.harness.people import TestPerson, make_person
from tests.harness.sampling import sampled

OPERATIONS = all_operations()
NOBODYS = "matrix-parameter"
PAST = (400, "invalid_request", NOBODYS)  # admitted, and stopped by the parameter
_COLUMNS = re.compile(r"\{\w+\}")


class Kind(StrEnum):
    """The callers."""

    NOBODY = "no credential"
    GARBAGE = "garbage cookie"
    DEAD = "ended session"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"
    UNTOKENED = "owner without CSRF token"
    CROSSED = "owner with the CSRF token of another session"
    SUSPENDED = "owner of a suspended account"
    WHOLE_KEY = "key with all scopes"
    BARE_KEY = "key without scopes"
    DOMAIN_KEY = "key with all scopes, limited to a domain"
    STREAM_KEY = "key with all scopes, limited to a stream"
    BAD_KEY = "made-up key"
    SUSPENDED_KEY = "key of a suspended account"


_ROLE = {Kind.MEMBER: Role.MEMBER, Kind.ADMIN: Role.ADMIN}
_UNKNOWN = {Kind.NOBODY, Kind.GARBAGE, Kind.DEAD, Kind.BAD_KEY, Kind.SUSPENDED_KEY}
_KEYS = {Kind.WHOLE_KEY, Kind.BARE_KEY, Kind.DOMAIN_KEY, Kind.STREAM_KEY}
_CLOSED_TO = {
    Kind.DOMAIN_KEY: {LimitedKeys.WHOLE_ACCOUNT, LimitedKeys.OWN_STREAMS},
    Kind.STREAM_KEY: {LimitedKeys.WHOLE_ACCOUNT, LimitedKeys.OWN_DOMAINS},
}


_LEAST = {
    LimitedKeys.FREE: 20, LimitedKeys.OWN: 60, LimitedKeys.OWN_DOMAINS: 5, LimitedKeys.OWN_STREAMS: 1,
    LimitedKeys.WHOLE_ACCOUNT: 40,
}  # fmt: skip


class Callers(Struct):
    """What each kind of caller sends."""

    headers: dict[Kind, dict[str, str]]
    account: UUID


@pytest.fixture(scope="module")
async def callers(pool: asyncpg.Pool) -> Callers:
    account, suspended = await make_account(pool), await make_account(pool)
    people = {role: await make_person(pool, account.id, role.value) for role in Role}
    gone = await make_person(pool, account.id, "owner")
    await pool.execute("DELETE FROM sessions WHERE id = $1", gone.session_id)
    stopped = await make_person(pool, suspended.id, "owner")
    await set_status(pool, suspended.id, "suspended")
    bare = await add_key(pool, account.id, scopes=[])
    of_domain = await add_key(pool, account.id, domains=[account.domain])
    of_stream = await add_key(pool, account.id, streams=["transactional"])
    owner = people[Role.OWNER]
    return Callers(
        {
            Kind.NOBODY: {},
            Kind.GARBAGE: {"Cookie": "svc_session=garbage", "X-CSRF-Token": owner.csrf},
            Kind.DEAD: _session(gone),
            Kind.MEMBER: _session(people[Role.MEMBER]),
            Kind.ADMIN: _session(people[Role.ADMIN]),
            Kind.OWNER: _session(owner),
            Kind.UNTOKENED: {"Cookie": f"svc_session={owner.secret}"},
            Kind.CROSSED: _session(owner) | {"X-CSRF-Token": people[Role.ADMIN].csrf},
            Kind.SUSPENDED: _session(stopped),
            Kind.WHOLE_KEY: {"Authorization": f"Bearer {account.token}"},
            Kind.BARE_KEY: {"Authorization": f"Bearer {bare}"},
            Kind.DOMAIN_KEY: {"Authorization": f"Bearer {of_domain}"},
            Kind.STREAM_KEY: {"Authorization": f"Bearer {of_stream}"},
            Kind.BAD_KEY: {"Authorization": f"Bearer svc_live_{'x' * 44}"},
            Kind.SUSPENDED_KEY: {"Authorization": f"Bearer {suspended.token}"},
        },
        account.id,
    )


def expected(operation: Operation, kind: Kind) -> tuple[int, str, str | None]:
    """Status, type and, behind admission, the field that the record's access, scopes and role come to."""
    match operation.access:
        case Access.NONE:
            return (404, "not_found", None) if operation.lenient_query else PAST  # there is no provider here
        case Access.PLATFORM_KEY:  # whose key it is, is asked behind admission
            return PAST if kind in _KEYS else (401, "unauthorized", None)
    if kind in _UNKNOWN:
        return 401, "unauthorized", None
    if kind in _KEYS:
        closed = operation.access is Access.SESSION or (kind is Kind.BARE_KEY and operation.scopes)
        closed = closed or operation.limited_keys in _CLOSED_TO.get(kind, ())
        return (403, "forbidden", None) if closed else PAST
    if operation.for_operator:
        return 404, "not_found", None
    if kind in {Kind.UNTOKENED, Kind.CROSSED}:
        return (403, "csrf_failed", None) if operation.needs_csrf else PAST
    if operation.role is not None and not _ROLE.get(kind, Role.OWNER).includes(operation.role):
        return 403, "forbidden", None
    if kind is Kind.SUSPENDED and operation.stops_suspended:
        return 403, "account_suspended", None
    return PAST


def asked(operation: Operation) -> str:
    return f"{_COLUMNS.sub('x', operation.path)}?{NOBODYS}=1"


@pytest.mark.parametrize("operation", sampled(OPERATIONS, 4), ids=name_of)
async def test_each_caller_gets_exactly_what_the_record_declares(
    operation: Operation, api: Api, callers: Callers
) -> None:
    found, wanted = {}, {}
    for kind in Kind:
        body = b"{}" if operation.request is not None else None
        answer = await api.request(operation.method, asked(operation), headers=callers.headers[kind], body=body)
        found[kind] = _said(operation, answer)
        wanted[kind] = expected(operation, kind)

    assert found == wanted
    described = {kind.value for kind in operation.all_refusals()}
    assert {said[1] for said in found.values()} <= described


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        (lambda one: one.access is Access.SESSION and one.role is Role.OWNER, 2),
        (lambda one: one.access is Access.SESSION and one.role is Role.ADMIN, 10),
        (lambda one: one.access is Access.SESSION and one.role is None, 10),
        (lambda one: one.access is Access.KEY, 40),
        (lambda one: one.access is Access.PLATFORM_KEY, 1),
        (lambda one: one.access is Access.NONE, 10),
        *[(lambda one, use=use: one.limited_keys is use, least) for use, least in _LEAST.items()],
    ],
)
def test_the_matrix_has_operations_of_every_access_and_role(wanted: Callable[[Operation], bool], least: int) -> None:
    assert len([one for one in OPERATIONS if wanted(one)]) >= least


def test_an_operation_for_keys_has_to_say_what_limited_keys_may() -> None:
    known = next(one for one in OPERATIONS if one.access is Access.KEY)

    with pytest.raises(TypeError, match="limited_keys"):
        structs.replace(known, area=Area("Tests"), limited_keys=None)


def test_only_operations_of_sessions_name_a_role() -> None:
    assert not [name_of(one) for one in OPERATIONS if one.role is not None and one.access is not Access.SESSION]


def test_the_matrix_is_of_a_size(record_property: Callable[[str, object], None]) -> None:
    record_property("role matrix", f"{len(OPERATIONS)} operations, {len(Kind)} callers")

    assert len(OPERATIONS) * len(Kind) >= 1_000


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS if one.access is Access.KEY and one.method == "GET" and "{" not in one.path],
    ids=name_of,
)
async def test_what_a_key_may_read_any_person_on_the_account_may(
    operation: Operation, api: Api, callers: Callers
) -> None:
    if operation.path.endswith("/tail"):
        pytest.skip("it does not end: tests/events/test_tails_people.py")
    answer = await api.request("GET", operation.path, headers=callers.headers[Kind.MEMBER])

    assert answer.status == 200, answer.body


# The area of the scopes, by the start of the path (the longest that fits): reading needs `:read`, all else `:write`.
AREAS = {
    "/v1/account/cloudflare": "domains", "/v1/account/verify": "account", "/v1/address-checks": "verifications",
    "/v1/alerts": "alerts", "/v1/analytics": "analytics", "/v1/api-keys": "account", "/v1/audit": "messages",
    "/v1/billing": "account", "/v1/bounces": "messages", "/v1/broadcasts": "broadcasts", "/v1/contacts": "contacts",
    "/v1/compat/postmark/bounces": "messages", "/v1/compat/postmark/bounces/{bounceId}/activate": "suppressions",
    "/v1/compat/postmark/message-streams": "suppressions", "/v1/compat/postmark/messages": "messages",
    "/v1/compat/resend/domains": "domains", "/v1/compat/resend/emails": "messages",
    "/v1/domains": "domains", "/v1/emails": "messages", "/v1/events": "messages", "/v1/images": "templates",
    "/v1/inbound": "inbound",
    "/v1/layouts": "templates", "/v1/lists": "contacts", "/v1/local": "messages", "/v1/me": "account",
    "/v1/messages": "messages", "/v1/receivers": "analytics", "/v1/requests": "account", "/v1/segments": "contacts",
    "/v1/stats": "messages",
    "/v1/streams": "streams", "/v1/suppressions": "suppressions", "/v1/team": "team", "/v1/template": "templates",
    "/v1/usage": "account", "/v1/verifications": "verifications", "/v1/webhooks": "webhooks",
}  # fmt: skip
SENDS = re.compile(
    r"/v1/(compat/\w+/email.*|emails.*|local/(?:accounts|clock|settle|sink)|messages/.*resend|templates/\{id\}/test"
    r"|inbound/messages/\{id\}/reply)"
)
READS = re.compile(r"/v1/(address-checks|segments/count|.+/preview)")
OLDER = re.compile(r"/v1/inbound/(addresses|domains|routes|mta-sts)")  # scopes of domains do as well


def scopes_of(operation: Operation) -> set[str]:
    """Return the scopes of which a key needs one."""
    path = operation.path
    if path == "/v1/agent-access":  # any key may read what it may do
        return set(SCOPES)
    if path.startswith("/v1/agent-sends"):
        return {"emails:send"}
    reads = operation.method == "GET" or READS.fullmatch(path) is not None
    if SENDS.fullmatch(path) and not reads:
        return {"emails:send"}
    area = AREAS[max((one for one in AREAS if path.startswith(one)), key=len)]
    verb = "read" if reads else "write"
    areas = {area} | ({"domains"} if OLDER.match(path) else set())
    if path.startswith("/v1/inbound/messages"):
        areas |= {"messages"} if reads else {"domains"} if operation.method == "DELETE" else set()
    return {f"{one}:{verb}" for one in areas}


def test_an_operation_asks_for_the_scopes_of_its_area() -> None:
    with_keys = [one for one in OPERATIONS if one.access is Access.KEY]

    assert {name_of(one): set(one.scopes) for one in with_keys} == {name_of(one): scopes_of(one) for one in with_keys}


OWNERS = {"POST account/deletion", "DELETE account/deletion", "DELETE sub-accounts/{id}", "POST team/transfer"}
ADMINS = {
    "PATCH account", "POST api-keys", "PATCH api-keys/{id}", "DELETE api-keys/{id}", "POST api-keys/{id}/rotate",
    "POST billing/cancel", "POST billing/checkout", "POST billing/checkout/abandon", "POST billing/pause",
    "PATCH billing/profile", "POST billing/resume", "GET erasures", "POST erasures", "GET erasures/{id}",
    "GET sub-accounts", "POST sub-accounts", "GET sub-accounts/{id}", "PATCH sub-accounts/{id}",
    "POST sub-accounts/{id}/join", "POST team/invites", "DELETE team/invites/{id}", "POST team/invites/{id}/resend",
    "PATCH team/members/{id}", "DELETE team/members/{id}",
}  # fmt: skip
WHILE_SUSPENDED = {
    "DELETE api-keys/{id}",
    "POST billing/cancel",
    "DELETE team/invites/{id}",
    "DELETE team/members/{id}",
}
WHILE_SUSPENDED |= {one for one in OWNERS | ADMINS if "erasures" in one or one.startswith("GET ") or "deletion" in one}


def test_an_operation_for_people_asks_for_its_role() -> None:
    people = {f"{one.method} {one.path[4:]}": one for one in OPERATIONS if one.access is Access.SESSION}

    assert {name for name, one in people.items() if one.role is Role.OWNER} == OWNERS
    assert {name for name, one in people.items() if one.role is Role.ADMIN} == ADMINS
    assert {name for name, one in people.items() if one.stops_suspended} == (OWNERS | ADMINS) - WHILE_SUSPENDED
    assert {name for name, one in people.items() if one.for_operator} == {
        name for name in people if " operator/" in name
    }


async def test_one_scope_of_an_operation_is_enough_and_all_others_are_not(
    api: Api, pool: asyncpg.Pool, callers: Callers
) -> None:
    keys: dict[frozenset[str], str] = {}

    async def asked_with(operation: Operation, scopes: Collection[str]) -> Answer:
        granted = frozenset(scopes)
        if granted not in keys:
            keys[granted] = await add_key(pool, callers.account, scopes=granted)
        body = b"{}" if operation.request is not None else None
        return await api.request(operation.method, asked(operation), token=keys[granted], body=body)

    for operation in [one for one in OPERATIONS if one.access is Access.KEY]:
        for scope in operation.scopes:
            assert _said(operation, await asked_with(operation, [scope])) == PAST, name_of(operation)
        refused = await asked_with(operation, SCOPES - set(operation.scopes))
        assert _said(operation, refused) == (403, "forbidden", None), name_of(operation)
        assert operation.errors is not None or refused.error["scope"] in operation.scopes


async def test_a_good_key_beside_a_bad_cookie_speaks_for_the_request(api: Api, callers: Callers) -> None:
    headers = callers.headers[Kind.WHOLE_KEY] | {"Cookie": "svc_session=garbage"}

    assert (await api.request("GET", "/v1/me", headers=headers)).status == 200


async def test_a_bad_key_is_not_made_good_by_a_session(api: Api, callers: Callers) -> None:
    headers = callers.headers[Kind.OWNER] | callers.headers[Kind.BAD_KEY]
    answer = await api.request("GET", "/v1/me", headers=headers)

    assert (answer.status, answer.error["type"]) == (401, "unauthorized")


async def test_whoever_is_unknown_gets_the_same_answer_whatever_they_sent(api: Api, callers: Callers) -> None:
    for operation in [one for one in OPERATIONS if one.access is not Access.NONE]:
        sent = [callers.headers[kind] for kind in _UNKNOWN]
        if operation.errors is not None:  # Resend tells a missing key from a wrong one; the client knows what it sent
            sent = [headers for headers in sent if "Authorization" in headers]
        answers = [await api.request(operation.method, asked(operation), headers=headers) for headers in sent]

        assert len({(answer.status, answer.body) for answer in answers}) == 1, name_of(operation)


def _session(person: TestPerson) -> dict[str, str]:
    return {"Cookie": f"svc_session={person.secret}", "X-CSRF-Token": person.csrf}


def _said(operation: Operation, answer: Answer) -> tuple[int, Any, Any]:
    if answer.status < 400:
        return answer.status, "success", None
    kind = answer.error["type"]
    status = answer.status if operation.errors is None else REGISTRY[ErrorType(kind)].status  # that of another service
    return status, kind, answer.error.get("field") if kind == ErrorType.INVALID_REQUEST else None
