"""Tell people and webhooks about alerts, within the transaction that changes their state.

Mail goes to owners and admins as system mail of the service: it counts against no limit of the account, and goes out
whatever the account's status. Webhooks get the events `alert.fired` and `alert.ended` of the account log.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct

from engine.accounts.alerts import mail
from engine.accounts.alerts.types import AlertChannel, AlertEvent, AlertRule
from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.ledger import log
from engine.ledger.events import append_locked
from engine.ledger.heads import AccountHead
from engine.people.system_mail.store import enqueue_many
from engine.people.system_mail.types import SystemMailKind
from engine.store.queries import Conn, Queries


class AlertNotice(Struct, frozen=True):
    """An alert to tell, with its rule. A test has an event that is not stored."""

    rule: AlertRule
    event: AlertEvent
    test: bool = False


class PeopleToTell(Struct, frozen=True):
    """The name of an account, and the people who get mail about it."""

    account_id: UUID
    name: str
    emails: list[str]


_SQL = Queries.beside(__file__, "notices.sql")
_PEOPLE = _SQL.rows("people_to_tell", PeopleToTell)
_SUBSCRIBED = _SQL.command("subscribed")
_UNPOST = _SQL.command("unpost")


async def tell(
    connection: Conn, locked: dict[UUID, AccountHead], notices: Sequence[AlertNotice], at: datetime, *, actor: str
) -> dict[UUID, list[str]]:
    """Send the notices, at most one of each account, whose heads are locked; return the channels of each event."""
    if not notices:
        return {}
    accounts = [one.rule.account_id for one in notices]
    people = {one.account_id: one for one in await _PEOPLE.fetch(connection, accounts)}
    posted = {row["account_id"] for row in await _SUBSCRIBED.records(connection, accounts, AccountEvent.ALERT_FIRED)}
    entries = [
        log.Entry(one.rule.account_id, AccountEvent.ALERT_FIRED, log.detail_text(_detail(one, actor)), at)
        for one in notices
    ]
    await append(connection, locked, entries, silent=[one.rule.account_id for one in notices if _is_silent(one)])
    await enqueue_many(connection, SystemMailKind.ALERT_FIRED, _mails(notices, people), at=at)
    return {one.event.id: _channels(one, people, posted) for one in notices}


async def append(
    connection: Conn, locked: dict[UUID, AccountHead], entries: Sequence[log.Entry], *, silent: Collection[UUID]
) -> None:
    """Append events to account logs; those of the accounts `silent` are not posted to webhooks."""
    rows = await append_locked(connection, locked, entries)
    unposted = [row.id for row in rows if row.account_id in set(silent)]
    if unposted:
        await _UNPOST.execute(connection, list(silent), unposted)


def _is_silent(notice: AlertNotice) -> bool:
    return not notice.rule.notify_webhook


def _channels(notice: AlertNotice, people: Mapping[UUID, PeopleToTell], posted: Collection[UUID]) -> list[str]:
    """Return the channels that reach somebody."""
    account = notice.rule.account_id
    told = account in people and bool(people[account].emails)
    return [
        *([AlertChannel.EMAIL.value] if notice.rule.notify_email and told else []),
        *([AlertChannel.WEBHOOK.value] if notice.rule.notify_webhook and account in posted else []),
    ]


def _mails(notices: Sequence[AlertNotice], people: Mapping[UUID, PeopleToTell]) -> list[tuple[str, dict[str, object]]]:
    mails = []
    for one in notices:
        told = people.get(one.rule.account_id)
        if told is not None and one.rule.notify_email:
            values = mail.values_of(one.event, told.name, test=one.test)
            mails += [(address, values) for address in told.emails]
    return mails


def _detail(notice: AlertNotice, actor: str) -> dict[str, object]:
    event = notice.event
    detail: dict[str, object] = {
        "id": event.public_id,
        "rule_id": ids.format_id(ids.Kind.ALERT_RULE, event.rule_id),
        "kind": event.kind,
        "value": event.value,
        "threshold": event.threshold,
        "window_days": event.window_days,
        "fired_at": clock.iso(event.fired_at),
        "detail": orjson.loads(event.detail),
        "actor": actor,
    }
    return detail | ({"id": None, "test": True} if notice.test else {})
