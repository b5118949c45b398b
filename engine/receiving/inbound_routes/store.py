"""Read and write inbound routes, and decide about received messages within their transaction."""

from collections.abc import Collection
from uuid import UUID

from engine.receiving.inbound_routes import rules
from engine.receiving.inbound_routes.types import (
    AddressRoute,
    AddressRules,
    InboundRouteRow,
    NextForward,
    RouteEndpoint,
    RouteId,
    RouteRule,
    RouteTarget,
)
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_routes", InboundRouteRow)
READ = _SQL.rows("read_route", InboundRouteRow)
ENDPOINTS = _SQL.rows("active_endpoints", RouteEndpoint)
TARGET_ADDRESS = _SQL.rows("target_address", RouteTarget)
TARGET_DOMAIN = _SQL.rows("target_domain", RouteTarget)
OF_TARGET = _SQL.rows("route_of_target", RouteId)
INSERT = _SQL.command("insert_route")
CHANGE = _SQL.command("change_route")
DELETE = _SQL.command("delete_route")
_ENDPOINT_EXISTS = _SQL.command("endpoint_exists")
NEXT_FORWARD = _SQL.rows("next_forward", NextForward)
_MAY_FORWARD = _SQL.command("may_forward")
_RULES = _SQL.rows("rules_of_addresses", AddressRules)


async def endpoint_exists(connection: Conn, account: UUID, webhook: UUID) -> bool:
    """Return True if the account has this webhook endpoint, active or disabled."""
    return bool((await _ENDPOINT_EXISTS.records(connection, account, webhook))[0]["found"])


async def may_forward(source: Source, account: UUID, address: str) -> bool:
    """Return True if the address belongs to the team or is under a verified domain of the account."""
    found = await _MAY_FORWARD.records(source, account, address)
    return bool(found and found[0]["allowed"])


async def routes_of(connection: Conn, addresses: Collection[UUID]) -> dict[UUID, AddressRoute]:
    """Return where mail to these claimed addresses goes now; an address that was deleted is missing.

    One round trip. Lock the heads of their accounts before: every change of addresses and routes does.
    """
    return {row.address_id: _route(row) for row in await _RULES.fetch(connection, list(addresses))}


def _route(row: AddressRules) -> AddressRoute:
    decision = rules.decide(
        RouteRule(*row.address_rules[0]) if row.address_rules else None,
        RouteRule(*row.domain_rules[0]) if row.domain_rules else None,
        rules.wanting([RouteEndpoint(*fields) for fields in row.endpoints], row.domain),
    )
    return AddressRoute(row.account_id, row.enabled and row.account_status != "closing", decision)
