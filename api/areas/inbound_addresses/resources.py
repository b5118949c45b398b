"""`/v1/inbound/addresses`: claiming, listing, reading, changing and deleting the addresses that receive mail."""

from typing import Any

from api.areas.inbound_addresses.schemas import (
    InboundAddress,
    InboundAddressChange,
    InboundAddressPage,
    InboundAddressWithUnread,
    NewInboundAddress,
)
from api.http import if_exists
from api.http.if_exists import Existing
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing
from engine.receiving.inbound_addresses import service, store
from engine.receiving.inbound_addresses.types import InboundAddressRow

WHAT = service.WHAT


async def claim(call: Call, body: NewInboundAddress) -> InboundAddressWithUnread:
    """Claim an address."""

    async def make() -> InboundAddressWithUnread:
        row = await service.claim(
            call.services.pool,
            call.account_id,
            body.address,
            label=body.label,
            mail_host=call.settings.mail_host,
            domains=call.domains,
            actor=call.actor,
        )
        return InboundAddressWithUnread(**_fields(row), unread=0)

    found = Existing(read, change, InboundAddressChange, ids.Kind.INBOUND_ADDRESS)
    return await if_exists.made(call, body, found, make)


async def list_addresses(call: Call, page: Page) -> InboundAddressPage:
    """Return a page of the account's addresses."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, _domains(call), page.probe)
    return InboundAddressPage(*page.of(rows, lambda row: InboundAddress(**_fields(row))))


async def read(call: Call) -> InboundAddressWithUnread:
    """Return one address."""
    row = existing(await store.READ.first(call.services.pool, call.account_id, call.id, _domains(call)), WHAT)
    return await _with_unread(call, row)


async def change(call: Call, body: InboundAddressChange) -> InboundAddressWithUnread:
    """Change the given fields of an address."""
    row = await service.change(
        call.services.pool,
        call.account_id,
        call.id,
        label=body.label,
        enabled=body.enabled,
        domains=call.domains,
        actor=call.actor,
    )
    return await _with_unread(call, row)


async def delete(call: Call) -> None:
    """Delete an address."""
    await service.delete(call.services.pool, call.account_id, call.id, domains=call.domains, actor=call.actor)


def _domains(call: Call) -> list[str] | None:
    return None if call.domains is None else list(call.domains)


async def _with_unread(call: Call, row: InboundAddressRow) -> InboundAddressWithUnread:
    unread = await store.unread(call.services.pool, call.account_id, row.id)
    return InboundAddressWithUnread(**_fields(row), unread=unread)


def _fields(row: InboundAddressRow) -> dict[str, Any]:
    return {
        "id": ids.format_id(ids.Kind.INBOUND_ADDRESS, row.id),
        "address": row.address,
        "label": row.label,
        "enabled": row.enabled,
        "created_at": clock.iso(row.created_at),
        "last_received_at": clock.iso_or_none(row.last_received_at),
    }


_KEYS = Area(
    "Inbound",
    reads=("inbound:read", "domains:read"),
    writes=("inbound:write", "domains:write"),
    limited_keys=LimitedKeys.OWN,
    id_of=ids.Kind.INBOUND_ADDRESS,
)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/inbound/addresses",
        claim,
        "Claim an address to receive mail at",
        _KEYS,
        note="`support+42@` reaches `support@` unless it is claimed itself. `*@domain` catches every address of "
        "the domain that you haven't claimed, and counts as one.",
        success=201,
        also=(200,),
        refusals=(
            ErrorType.INVALID_ADDRESS,
            ErrorType.DOMAIN_NOT_VERIFIED,
            ErrorType.CONFLICT,
            ErrorType.PLAN_LIMIT_REACHED,
            ErrorType.NOT_FOUND,
        ),
    ),
    Operation(
        "GET",
        "/v1/inbound/addresses",
        list_addresses,
        "List claimed addresses",
        _KEYS,
        page=ids.Kind.INBOUND_ADDRESS,
        lagging=True,
    ),
    Operation(
        "GET", "/v1/inbound/addresses/{id}", read, "Read a claimed address with its number of unread messages", _KEYS
    ),
    Operation(
        "PATCH",
        "/v1/inbound/addresses/{id}",
        change,
        "Change the label of a claimed address, or disable and enable it",
        _KEYS,
    ),
    Operation(
        "DELETE",
        "/v1/inbound/addresses/{id}",
        delete,
        "Delete a claimed address and its route; received mail stays",
        _KEYS,
    ),
)
