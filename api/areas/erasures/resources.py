"""`/v1/erasures`: request the erasure of one recipient, and read its receipt."""

from typing import Literal, cast

import orjson

from api.areas.erasures.schemas import Erasure, ErasureIn, ErasurePage
from api.http.operation import Access, Area, Call, Operation
from api.http.paging import Page
from engine.base import clock, ids
from engine.base.errors import ErrorType, existing
from engine.base.roles import Role
from engine.retention.erasures import rules, service, store
from engine.retention.erasures.types import ErasureRow

WHAT = "erasure"


async def request(call: Call, body: ErasureIn) -> Erasure:
    """Queue the erasure; an address whose erasure is not completed gets the same receipt."""
    address = rules.address_of(body.address)
    return _shown(await service.request(call.services.pool, call.account_id, address, actor=call.actor))


async def list_erasures(call: Call, page: Page) -> ErasurePage:
    """Return a page of the account's erasures."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.below, page.probe)
    return ErasurePage(*page.of(rows, _shown))


async def read(call: Call) -> Erasure:
    """Return one receipt."""
    row = existing(await store.READ.first(call.services.pool, call.account_id, call.id), WHAT)
    return _shown(row)


def _shown(row: ErasureRow) -> Erasure:
    return Erasure(
        id=ids.format_id(ids.Kind.ERASURE, row.id),
        state=cast("Literal['queued', 'running', 'completed']", row.state),
        counts=orjson.loads(row.counts),
        requested_at=clock.iso(row.requested_at),
        started_at=clock.iso_or_none(row.started_at),
        finished_at=clock.iso_or_none(row.finished_at),
    )


_ADMINS = Area("Account", access=Access.SESSION, role=Role.ADMIN, id_of=ids.Kind.ERASURE)
OPERATIONS = (
    Operation(
        "POST",
        "/v1/erasures",
        request,
        "Erase the data of one recipient from the account",
        _ADMINS,
        note="Erases content and address of messages to the address, received mail from or to it, the contact, copies "
        "of broadcasts, codes, links and log entries. A suppression stays as a keyed digest: mail to the address "
        "is still refused. Unsent messages to the address are canceled, those with other recipients too. Erased log "
        "entries keep `seq`, `occurredAt`, `hash`, `prevHash` and `messageId`.",
        success=202,
        refusals=(ErrorType.INVALID_ADDRESS, ErrorType.INVALID_STATE),
        open_to_suspended=True,
    ),
    Operation(
        "GET",
        "/v1/erasures",
        list_erasures,
        "List erasures, newest first",
        _ADMINS,
        page=ids.Kind.ERASURE,
        lagging=True,
    ),
    Operation(
        "GET", "/v1/erasures/{id}", read, "Read the receipt of an erasure", _ADMINS, refusals=(ErrorType.NOT_FOUND,)
    ),
)
