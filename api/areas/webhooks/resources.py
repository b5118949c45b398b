"""Webhook endpoints: creating, listing, changing, removing and testing them."""

from collections.abc import Sequence
from typing import Literal, cast
from uuid import UUID

from msgspec import UNSET

from api.areas.webhooks.schemas import (
    EndpointHealth,
    LastResponse,
    NewWebhook,
    Queued,
    SecretMade,
    Signatures,
    Standing,
    Warned,
    Webhook,
    WebhookChange,
    WebhookMade,
    WebhookPage,
)
from api.http import if_exists, owner_checks
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, not_found
from engine.base.list_filters import narrowed
from engine.events.webhooks import post_options, rules, store
from engine.events.webhooks import service as webhooks_service
from engine.events.webhooks.post_options import KnownNames, PostOptions
from engine.events.webhooks.types import EndpointRow, HealthRow
from engine.sending.domains import store as domains
from engine.sending.streams import store as streams

WHAT = "webhook endpoint"


async def create(call: Call, body: NewWebhook) -> WebhookMade:
    """Add an endpoint; only this reply contains its secret."""
    options = PostOptions(
        domains=body.domains or [],
        streams=body.streams or [],
        headers=body.headers,
        include_metadata=body.include_metadata,
        signatures=body.signatures,
        honor_retry_after=body.honor_retry_after,
    )

    async def make() -> WebhookMade:
        made = await webhooks_service.create(
            call.services.pool,
            call.account_id,
            url=body.url,
            event_types=body.event_types or [],
            description=body.description,
            options=_within_key(call, options),
            pepper=call.settings.pepper,
            actor=call.actor,
            is_unique=body.if_exists is not None,
            visible=(narrowed(None, call.domains), narrowed(None, call.streams)),
        )
        return await _made(call, made.row, made.secret)

    existing = Existing(read, change, WebhookChange, ids.Kind.WEBHOOK, owner_check=owner_checks.webhook)
    reply: Webhook | WebhookMade = await if_exists.made(call, body, existing, make)
    if isinstance(reply, WebhookMade):
        return reply
    row = await store.READ.first(call.services.pool, call.account_id, call.id)
    if row is None:
        raise not_found(WHAT)
    return await _made(call, row, None)


async def _made(call: Call, row: EndpointRow, secret: str | None) -> WebhookMade:
    return WebhookMade(
        id=_public(row.id), url=row.url, event_types=row.event_types, domains=row.domains, streams=row.streams,
        header_names=row.header_names, include_metadata=row.include_metadata,
        signatures=cast("Signatures", row.signatures), honor_retry_after=row.honor_retry_after,
        status=cast("Standing", row.status), description=row.description, signing_secret=secret,
        warnings=_warnings(row, await _known(call, [row])),
    )  # fmt: skip


async def list_webhooks(call: Call, page: Page) -> WebhookPage:
    """Return a page of the account's endpoints."""
    names = narrowed(None, call.domains), narrowed(None, call.streams)
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe, *names)
    shown = await _shown(call, rows)
    return WebhookPage(*page.of(rows, lambda row: shown[row.id]))


async def read(call: Call) -> Webhook:
    """Return one endpoint."""
    row = await store.READ.first(call.services.pool, call.account_id, call.id)
    if row is None:
        raise not_found(WHAT)
    return (await _shown(call, [row]))[row.id]


async def change(call: Call, body: WebhookChange) -> Webhook:
    """Change the given fields of an endpoint."""
    options = PostOptions(
        domains=None if body.domains is UNSET else body.domains,
        streams=None if body.streams is UNSET else body.streams,
        headers=None if body.headers is UNSET else body.headers,
        include_metadata=None if body.include_metadata is UNSET else body.include_metadata,
        signatures=None if body.signatures is UNSET else body.signatures,
        honor_retry_after=None if body.honor_retry_after is UNSET else body.honor_retry_after,
    )
    row = await webhooks_service.change(
        call.services.pool,
        call.account_id,
        call.id,
        url=None if body.url is UNSET else body.url,
        event_types=None if body.event_types is UNSET else body.event_types,
        status=None if body.status is UNSET else body.status,
        description=None if body.description is UNSET else body.description,
        options=_within_key(call, options),
        pepper=call.settings.pepper,
        actor=call.actor,
    )
    return (await _shown(call, [row]))[row.id]


async def remove(call: Call) -> None:
    """Remove an endpoint; it gets no further event."""
    await webhooks_service.remove(call.services.pool, call.account_id, call.id, actor=call.actor)


async def rotate(call: Call) -> SecretMade:
    """Give an endpoint a new secret; only this reply contains it."""
    fresh = await webhooks_service.rotate(
        call.services.pool, call.account_id, call.id, pepper=call.settings.pepper, at=clock.now(), actor=call.actor
    )
    return SecretMade(_public(call.id), fresh.secret, clock.iso(fresh.previous_until))


async def try_out(call: Call) -> Queued:
    """Send a `webhook.test` event to this endpoint alone."""
    event = await webhooks_service.try_out(call.services.pool, call.account_id, call.id, clock.now(), actor=call.actor)
    return Queued(ids.format_id(ids.Kind.EVENT, event), [_public(call.id)])


def _within_key(call: Call, options: PostOptions) -> PostOptions:
    """Return checked options with the filters of the caller's key, if it is limited."""
    return options.checked().within(call.domains, call.streams)


def _public(webhook: UUID) -> str:
    return ids.format_id(ids.Kind.WEBHOOK, webhook)


async def _known(call: Call, rows: Sequence[EndpointRow]) -> KnownNames:
    """Return the account's domains and streams, read only if one of the endpoints filters by them."""
    pool, account = call.services.pool, call.account_id
    of_domains = await domains.NAMES.fetch(pool, account) if any(row.domains for row in rows) else []
    of_streams = await streams.LIST.fetch(pool, account) if any(row.streams for row in rows) else []
    return KnownNames(frozenset(one.name for one in of_domains), frozenset(one.slug for one in of_streams))


async def _shown(call: Call, rows: Sequence[EndpointRow]) -> dict[UUID, Webhook]:
    """Return the endpoints as clients see them, by id."""
    known = await _known(call, rows)
    found = await store.health(call.services.pool, call.account_id, [row.id for row in rows], clock.now())
    return {row.id: _webhook(row, known, found.get(row.id) or HealthRow(row.id, row.status)) for row in rows}


def _webhook(row: EndpointRow, known: KnownNames, health: HealthRow) -> Webhook:
    return Webhook(
        id=_public(row.id), url=row.url, event_types=row.event_types, domains=row.domains, streams=row.streams,
        header_names=row.header_names, include_metadata=row.include_metadata,
        signatures=cast("Signatures", row.signatures), honor_retry_after=row.honor_retry_after,
        status=cast("Literal['active', 'disabled']", row.status), description=row.description,
        created_at=clock.iso(row.created_at), warnings=_warnings(row, known), health=_health(health),
    )  # fmt: skip


def _health(row: HealthRow) -> EndpointHealth:
    last = None
    if row.last_at is not None and row.last_milliseconds is not None:
        last = LastResponse(clock.iso(row.last_at), row.last_status, row.last_milliseconds, row.last_error)
    return EndpointHealth(
        state=row.state,
        success_rate=None if row.success_rate is None else round(row.success_rate, 4),
        posts=row.posts,
        last_response=last,
        failing_since=clock.iso_or_none(row.failing_since),
        next_attempt_at=clock.iso_or_none(row.next_attempt_at),
    )


def _warnings(row: EndpointRow, known: KnownNames) -> list[Warned]:
    names = row.event_types
    found = [(f"eventTypes[{names.index(name)}]", text) for name, text in rules.unmatched(names).items()]
    return [Warned(*one) for one in found + post_options.unknown(row, known)]


_KEYS = Area(
    "Webhooks",
    reads=("webhooks:read",),
    writes=("webhooks:write",),
    limited_keys=LimitedKeys.OWN,
    owner_check=owner_checks.webhook,
    id_of=ids.Kind.WEBHOOK,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/webhooks",
        create,
        "Add a webhook endpoint",
        _KEYS,
        success=201,
        also=(200,),
        refusals=(ErrorType.PLAN_LIMIT_REACHED, ErrorType.NOT_FOUND),
    ),
    Operation(
        "GET", "/v1/webhooks", list_webhooks, "List webhook endpoints", _KEYS, page=ids.Kind.WEBHOOK, lagging=True
    ),
    Operation("GET", "/v1/webhooks/{id}", read, "Read a webhook endpoint", _KEYS),
    Operation("PATCH", "/v1/webhooks/{id}", change, "Change a webhook endpoint", _KEYS, refusals=(ErrorType.CONFLICT,)),
    Operation("DELETE", "/v1/webhooks/{id}", remove, "Remove a webhook endpoint", _KEYS),
    Operation("POST", "/v1/webhooks/{id}/rotate", rotate, "Give a webhook endpoint a new signing secret", _KEYS),
    Operation("POST", "/v1/webhooks/{id}/test", try_out, "Send a test event to a webhook endpoint", _KEYS, success=202),
)
