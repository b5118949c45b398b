"""Admit a request: its credential, its rate limit, and whether its caller may use the operation.

The dispatcher calls `admit` before it reads the body.
"""

import time
from collections.abc import Callable

import falcon.asgi
from msgspec import Struct

from api.http import auth, body, cross_origin, rate_limit_headers, visiting_operator
from api.http.operation import Access, Call, Operation
from api.http.replica_reads import ReplicaReads
from api.http.services import ApiServices
from api.http.visiting_operator import Errand
from engine.accounts.request_log.recorder import RequestRecorder
from engine.base import clock
from engine.base.errors import Refusal
from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.people.api_keys import key_auth
from engine.people.sessions.session_auth import Person, SessionAuth
from engine.store import rate_limits
from engine.store.deadlines import within

READ_DEADLINE_S = 8.0  # a little over the timeouts of the reads themselves
MIN_PERSON_RATE = 50  # requests per second of a signed-in person on any plan: a console sends bursts
MAX_SUSPECT_LOOKUPS = 50  # keys that are still looked up for a suspect address: a valid one may be among them
MAX_SUSPECTS = 10_000


class SuspectAddress(Struct):
    """An address that has just sent too many bad keys: each further unknown key would cost a database query."""

    until: float
    left: int = MAX_SUSPECT_LOOKUPS


class RequestContext(Struct):
    """The services of one process that every request uses."""

    settings: Settings
    services: ApiServices
    keys: key_auth.Keys
    sessions: SessionAuth
    limits: rate_limits.RateLimiter
    memory: body.BodyMemory
    suspects: "dict[str, SuspectAddress]"
    requests: RequestRecorder
    replica_reads: ReplicaReads | None
    on_answer: Callable[[str, int, str | None], None]  # operation id, status, refusal type


async def admit(context: RequestContext, operation: Operation, call: Call, response: falcon.asgi.Response) -> None:
    """Authenticate the request and count it against its rate limit.

    An Authorization header goes before the session's cookie. A failed authentication counts against the client's
    address. Signed bodies are not counted here: a payment provider may send any number of them from one address.
    """
    if operation.access is Access.NONE:
        if not operation.raw_body:
            await _limit(context, address_of(call), context.settings.unauthenticated_rate, response)
        return
    header = given_key(operation, call)
    if header is None and operation.access is not Access.PLATFORM_KEY:
        if operation.for_operator and (visitor := _visitor(context.settings, call)) is not None:
            call.signed_in = visitor  # whose cell has checked the rest
            await _limit(context, f"usr:{visitor.user_id}", _person_rate(context.settings, visitor), response)
            return
        secret = auth.session_secret(call.request)
        if secret is not None or operation.access is Access.SESSION:
            await _admit_person(context, operation, call, response, secret)
            return
    caller = await _calling_key(context, operation, call, response, header)
    call.caller = caller
    if caller.origins is not None:
        cross_origin.allow(call.request, response, caller.origins)
    rate = context.settings.request_rate or caller.requests_per_second
    await _limit(context, caller.credential, rate, response)
    if operation.access is Access.SESSION:
        raise auth.session_required()
    key_auth.check_scope(caller, operation.scopes)
    auth.check_limits(caller.reach, operation.limited_keys)


def given_key(operation: Operation, call: Call) -> str | None:
    """Return the value of Authorization, or one made of the operation's own header for keys."""
    if operation.key_header is not None:
        token = call.request.get_header(operation.key_header)
        if token is not None:
            return f"Bearer {token}"
    return call.request.get_header("Authorization")


async def _calling_key(
    context: RequestContext, operation: Operation, call: Call, response: falcon.asgi.Response, header: str | None
) -> key_auth.Caller:
    key = auth.bearer(header)
    if key is not None and context.keys.cache.peek(key.key_id) is None:
        await _limit_suspect(context, call, response)
    try:
        with within(READ_DEADLINE_S):
            return await context.keys.caller(key, call.request.remote_addr)
    except Refusal:
        await count_bad_credential(context, call, response)
        if operation.access is Access.SESSION:
            raise auth.sign_in_required() from None
        raise


async def _admit_person(
    context: RequestContext, operation: Operation, call: Call, response: falcon.asgi.Response, secret: str | None
) -> None:
    await _limit_suspect(context, call, response)
    with within(READ_DEADLINE_S):
        person = await context.sessions.person(secret, auth.device(call.request))
    if person is None:
        await count_bad_credential(context, call, response)
        raise auth.sign_in_required() if operation.access is Access.SESSION else key_auth.unauthorized()
    call.signed_in = person
    await _limit(context, f"usr:{person.user_id}", _person_rate(context.settings, person), response)
    if operation.for_operator:
        auth.check_operator(context.settings, person)
    if operation.needs_csrf:
        auth.check_csrf(person, call.request.get_header(auth.CSRF_HEADER))
    auth.check_role(person, operation.role)
    if operation.stops_suspended:
        auth.check_not_suspended(person)


def _visitor(settings: Settings, call: Call) -> Person | None:
    """Return the operator for whom another cell vouches."""
    statement = call.request.get_header(visiting_operator.HEADER)
    if statement is None or settings.cell is None:
        return None
    errand = Errand(call.request.method, call.request.path, settings.cell)
    return visiting_operator.person_of(settings.pepper, statement, errand, clock.machine_now())


def _person_rate(settings: Settings, person: Person) -> int:
    return settings.request_rate or max(MIN_PERSON_RATE, person.requests_per_second)


def address_of(call: Call) -> str:
    """Return the bucket of the client's network in the rate limiter."""
    return f"ip:{network_of(call.request.remote_addr)}"


async def _limit_suspect(context: RequestContext, call: Call, response: falcon.asgi.Response) -> None:
    """Count an unknown credential before its lookup if its address has sent too many bad ones."""
    address = address_of(call)
    if _lookups_used_up(context, address):
        await _limit(context, address, context.settings.unauthenticated_rate, response)


async def count_bad_credential(context: RequestContext, call: Call, response: falcon.asgi.Response) -> None:
    """Count a bad credential against its address; raises 429 after too many."""
    address = address_of(call)
    try:
        await _limit(context, address, context.settings.unauthenticated_rate, response)
    except Refusal as limited:
        if len(context.suspects) >= MAX_SUSPECTS:
            context.suspects.clear()
        context.suspects.setdefault(address, SuspectAddress(time.monotonic() + (limited.retry_after_s or 1)))
        raise


def _lookups_used_up(context: RequestContext, address: str) -> bool:
    suspect = context.suspects.get(address)
    if suspect is None:
        return False
    if suspect.until < time.monotonic():
        del context.suspects[address]
        return False
    suspect.left -= 1
    return suspect.left < 0


async def _limit(context: RequestContext, bucket: str, rate: float, response: falcon.asgi.Response) -> None:
    limited = await context.limits.check(bucket, rate)
    response.set_headers(rate_limit_headers.fields(bucket, limited))
    if not limited.allowed:
        raise rate_limits.refusal(limited)
