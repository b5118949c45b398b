"""`/v1/inbound/routes`: where the mail of claimed addresses goes: mailbox, webhooks, both, or on to another address."""

from collections.abc import Sequence
from uuid import UUID

from msgspec import UNSET, structs

from api.areas.inbound_routes.schemas import (
    InboundRoute,
    InboundRouteChange,
    InboundRoutePage,
    NewInboundRoute,
)
from api.http import if_exists
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing, invalid
from engine.receiving.inbound_routes import rules, service, store
from engine.receiving.inbound_routes.types import (
    InboundRouteRow,
    IncludedBody,
    RouteAction,
    RouteEndpoint,
    RouteSettings,
)

WHAT = service.WHAT


async def create(call: Call, body: NewInboundRoute) -> InboundRoute:
    """Create a route."""
    if (body.address is None) == (body.domain is None):
        raise invalid("address", "Give `address` or `domain`: a route is for exactly one of them.")
    settings = RouteSettings(
        action=body.action,
        webhook_id=_webhook(body.webhook_id),
        include=rules.checked_include(body.include or ()),
        forward_to=rules.checked_forward(body.forward_to),
        retain_content=body.retain_content is not False,
    )

    async def make() -> InboundRoute:
        row = await service.create(
            call.services.pool,
            call.account_id,
            address=body.address,
            domain=body.domain,
            settings=settings,
            domains=call.domains,
            actor=call.actor,
        )
        return _shown(row, await _endpoints(call))

    found = Existing(read, change, InboundRouteChange, ids.Kind.INBOUND_ROUTE)
    return await if_exists.made(call, body, found, make)


async def list_routes(call: Call, page: Page) -> InboundRoutePage:
    """Return a page of the account's routes."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, _domains(call), page.probe)
    endpoints = await _endpoints(call)
    return InboundRoutePage(*page.of(rows, lambda row: _shown(row, endpoints)))


async def read(call: Call) -> InboundRoute:
    """Return one route."""
    row = existing(await store.READ.first(call.services.pool, call.account_id, call.id, _domains(call)), WHAT)
    return _shown(row, await _endpoints(call))


async def change(call: Call, body: InboundRouteChange) -> InboundRoute:
    """Change the given fields of a route."""
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    if "webhook_id" in given:
        given["webhook_id"] = _webhook(given["webhook_id"])
    if "include" in given:
        given["include"] = rules.checked_include(given["include"] or ())
    if "forward_to" in given:
        given["forward_to"] = rules.checked_forward(given["forward_to"])
    row = await service.change(
        call.services.pool, call.account_id, call.id, changes=given, domains=call.domains, actor=call.actor
    )
    return _shown(row, await _endpoints(call))


async def delete(call: Call) -> None:
    """Delete a route."""
    await service.delete(call.services.pool, call.account_id, call.id, domains=call.domains, actor=call.actor)


async def _endpoints(call: Call) -> list[RouteEndpoint]:
    return await store.ENDPOINTS.fetch(call.services.pool, call.account_id)


def _domains(call: Call) -> list[str] | None:
    return None if call.domains is None else list(call.domains)


def _webhook(text: str | None) -> UUID | None:
    if text is None:
        return None
    try:
        return ids.parse_id(ids.Kind.WEBHOOK, text)
    except ids.WrongId as error:
        raise invalid("webhookId", f"`webhookId` is not the id of a webhook endpoint: {error}.") from None


def _shown(row: InboundRouteRow, endpoints: Sequence[RouteEndpoint]) -> InboundRoute:
    return InboundRoute(
        id=ids.format_id(ids.Kind.INBOUND_ROUTE, row.id),
        address=row.address,
        domain=row.domain,
        action=RouteAction(row.action),
        webhook_id=None if row.webhook_id is None else ids.format_id(ids.Kind.WEBHOOK, row.webhook_id),
        include=[IncludedBody(one) for one in row.include],
        forward_to=row.forward_to,
        enabled=row.enabled,
        retain_content=row.retain_content,
        effective=rules.effective(row.rule, rules.wanting(endpoints, row.of_domain)),
        created_at=clock.iso(row.created_at),
    )


_REFUSALS = (ErrorType.INVALID_ADDRESS, ErrorType.NOT_FOUND)

_KEYS = Area(
    "Inbound",
    reads=("inbound:read", "domains:read"),
    writes=("inbound:write", "domains:write"),
    limited_keys=LimitedKeys.OWN,
    id_of=ids.Kind.INBOUND_ROUTE,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/inbound/routes",
        create,
        "Create the route of a claimed address or of a domain",
        _KEYS,
        note="The route of an address beats the route of its domain, also when it is disabled. Mail that no route "
        "covers stays in the mailbox. For the managed receiving domain, route its address `*@…`; claim it first.",
        success=201,
        also=(200,),
        refusals=(*_REFUSALS, ErrorType.DOMAIN_NOT_VERIFIED, ErrorType.CONFLICT),
    ),
    Operation(
        "GET",
        "/v1/inbound/routes",
        list_routes,
        "List inbound routes",
        _KEYS,
        page=ids.Kind.INBOUND_ROUTE,
        lagging=True,
    ),
    Operation("GET", "/v1/inbound/routes/{id}", read, "Read an inbound route", _KEYS),
    Operation("PATCH", "/v1/inbound/routes/{id}", change, "Change an inbound route", _KEYS, refusals=_REFUSALS),
    Operation(
        "DELETE", "/v1/inbound/routes/{id}", delete, "Delete an inbound route; mail falls back to the mailbox", _KEYS
    ),
)
