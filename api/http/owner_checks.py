"""Hide objects of other domains and streams from API keys that are limited to some.

The dispatcher calls one of these checks before the handler of an operation with an id in its path
(`Operation.owner_check`), for limited keys only: all other requests pay nothing. Each raises the 404 of an unknown id;
those of schedules also the 403 for what the key's rules for agents forbid.
"""

from uuid import UUID

from api.http.operation import Call
from engine.audience.broadcasts import store as broadcasts
from engine.base.errors import ErrorType, Refusal, not_found
from engine.codes.verifications import store as verifications
from engine.events.webhooks import store as webhooks
from engine.mail.address import canonical
from engine.people.api_keys.rules import KeyRestrictions
from engine.sending.domains import store as domains
from engine.sending.messages import store as messages


async def domain(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names a domain that the key is limited to."""
    row = await domains.FIND.first(call.services.pool, call.account_id, call.id)
    if row is None or not reach.covers_domain(row.name):
        raise not_found("domain")


async def stream(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names a stream that the key is limited to."""
    if not reach.covers_stream(call.path["id"]):
        raise not_found("stream")


async def message(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names a message from a domain and on a stream of the key."""
    if not await _covers_message(call, reach, call.id):
        raise not_found("message")


async def cancellation(call: Call, reach: KeyRestrictions) -> None:
    """Raise as `message` does, and the 403 for a message to a recipient that the key does not allow."""
    await message(call, reach)
    if reach.recipients is not None:
        found = await messages.ADDRESSES.records(call.services.pool, call.account_id, call.id)
        reach.check_recipients(canonical(one["address"]) for one in found)


async def rescheduling(call: Call, reach: KeyRestrictions) -> None:
    """Raise as `cancellation` does, and the 403 for a key whose sends a person approves."""
    await cancellation(call, reach)
    if reach.needs_approval:
        raise Refusal(
            ErrorType.FORBIDDEN,
            "A person approves when this API key sends. Cancel the email, then ask with POST /v1/agent-sends.",
        )


async def verification(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names a verification whose mail is from a domain and on a stream of the key."""
    row = await verifications.READ.first(call.services.pool, call.account_id, call.id)
    if row is None or not await _covers_message(call, reach, row.message_id):
        raise not_found("verification")


async def broadcast(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names a broadcast from a domain and on a stream of the key."""
    row = await broadcasts.READ.first(call.services.pool, call.account_id, call.id)
    if row is None or not reach.covers(row.from_domain, row.stream):
        raise not_found("broadcast")


async def webhook(call: Call, reach: KeyRestrictions) -> None:
    """Raise the 404 unless the path names an endpoint that gets events of the key's domains and streams only."""
    row = await webhooks.READ.first(call.services.pool, call.account_id, call.id)
    if row is None or not (_within(row.domains, reach.domains) and _within(row.streams, reach.streams)):
        raise not_found("webhook endpoint")


async def _covers_message(call: Call, reach: KeyRestrictions, named: UUID) -> bool:
    row = await messages.OWNER.first(call.services.pool, call.account_id, named)
    return row is not None and reach.covers(row.from_domain, row.stream)


def _within(names: list[str], allowed: frozenset[str] | None) -> bool:
    """Return True if a filter lets only allowed names pass; an empty one lets all pass."""
    return allowed is None or (bool(names) and allowed.issuperset(names))
