"""The rows and events that late bounces write."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from uuid import UUID

from msgspec import Struct, structs

from engine.base import ids, trace_context
from engine.base.events import MOVES, AccountEvent, EventType, Status, status_of_message
from engine.delivery.late_notices import DecidedNotice, KnownRecipient, LateNotice, NoticeEffect, suppresses
from engine.delivery.outcome import detail
from engine.delivery.sealed_mail import is_masked
from engine.ledger import log, quota_usage
from engine.sending.suppressions.types import Reason
from engine.store.row_sets import Column, RowSet


class AppliedEffect(Struct, frozen=True):
    """An effect that the transaction writes, with the notification that it comes from."""

    notice: LateNotice
    recipient: KnownRecipient
    decided: DecidedNotice
    at: datetime
    simulated: bool

    @property
    def key(self) -> tuple[UUID, str]:
        """Return message and address."""
        return self.recipient.message_id, self.recipient.address

    @property
    def place(self) -> tuple[UUID, int]:
        """Return message and number of the recipient."""
        return self.recipient.message_id, self.recipient.n


class BouncedRecipient(Struct, frozen=True):
    """A recipient to be set to `bounced`."""

    message_id: UUID
    n: int
    response: str | None


class MovedMessage(Struct, frozen=True):
    """A message to be set to `status` if its present one is among `moves`, comma-separated."""

    id: UUID
    status: str
    moves: str


class CountedDay(Struct, frozen=True):
    """Bounces that came on a day, and deliveries of that day to be subtracted."""

    account_id: UUID
    day: date
    bounced: int
    taken_back: int


class SuppressedAddress(Struct, frozen=True):
    """An address to be suppressed, with the message that bounced and the words of the report."""

    account_id: UUID
    address: str
    message_id: UUID
    detail: str | None


EXPECTED = RowSet(
    "expected", KnownRecipient, Column("message_id"), Column("n", "smallint"), Column("address"),
    Column("status", repeats=True),
)  # fmt: skip
BOUNCED = RowSet("bounced", BouncedRecipient, Column("message_id"), Column("n", "smallint"), Column("response"))
MOVED = RowSet("moved", MovedMessage, Column("id"), Column("status", repeats=True), Column("moves", repeats=True))
COUNTED = RowSet(
    "counted", CountedDay, Column("account_id"), Column("day"), Column("bounced", "integer"),
    Column("taken_back", "integer"),
)  # fmt: skip
SUPPRESSED = RowSet(
    "suppressed", SuppressedAddress, Column("account_id"), Column("address"),
    Column("reason", "text", value=lambda _: Reason.BOUNCE.value, repeats=True), Column("message_id"), Column("detail"),
)  # fmt: skip


def moved(message: UUID, recipients: Sequence[KnownRecipient]) -> MovedMessage:
    """Return the new status of a message; one with unsettled recipients stays `sending`."""
    status = status_of_message([Status(each.status) for each in recipients])
    return MovedMessage(message, status.value, ",".join(sorted(MOVES[status])))


def counted(bounced: Sequence[AppliedEffect], delivered: Mapping[tuple[UUID, str], datetime]) -> list[CountedDay]:
    """Count bounces on the day of the notification, and take the deliveries back from the days that counted them."""
    came = Counter((one.recipient.account_id, one.at.date()) for one in bounced)
    back = Counter((one.recipient.account_id, delivered[one.key].date()) for one in bounced if one.key in delivered)
    return [CountedDay(*day, came[day], back[day]) for day in sorted(came.keys() | back.keys())]


def simulated(
    bounced: Sequence[AppliedEffect], delivered: Mapping[tuple[UUID, str], datetime]
) -> list[quota_usage.Simulated]:
    """Count simulated bounces as `counted` counts all."""
    found: list[quota_usage.Simulated] = []
    for one in bounced:
        if one.simulated:
            account, at = one.recipient.account_id, delivered.get(one.key)
            found.append(quota_usage.Simulated(account, one.at.date(), settled=1, bounced=1))
            if at is not None:
                found.append(quota_usage.Simulated(account, at.date(), settled=-1))
    return found


def entry(one: AppliedEffect) -> log.Entry:
    """Return the event of an effect, `bounced` or `deferred`, with the details of a live one and `late`."""
    assert one.decided.outcome is not None
    found = trace_context.detail_of(one.recipient.traceparent)
    found |= {"recipient": one.recipient.address, **detail(one.decided.outcome), "late": True}
    found["diagnostic"] = diagnostic(one) or ""
    kind = EventType.DEFERRED
    if one.decided.effect is NoticeEffect.BOUNCED:
        kind = EventType.BOUNCED
        found["suppressed"] = is_suppressing(one)
    if one.decided.unverified:
        found["unverified"] = True
    if one.notice.said.reporting_mta:
        found["reporting_mta"] = one.notice.said.reporting_mta
    if one.simulated:
        found["simulated"] = True
    public = ids.format_id(ids.Kind.MESSAGE, one.recipient.message_id)
    return log.Entry(one.recipient.account_id, kind, log.detail_text(found), one.at, one.recipient.message_id, public)


def suppressed_entry(one: SuppressedAddress, at: datetime) -> log.Entry:
    """Return the event of a suppressed address, as settling writes it for live bounces."""
    found = {
        "address": one.address,
        "reason": Reason.BOUNCE.value,
        "source": "late_bounce",
        "message_id": ids.format_id(ids.Kind.MESSAGE, one.message_id),
    }
    return log.Entry(one.account_id, AccountEvent.SUPPRESSION_ADDED, log.detail_text(found), at)


def is_suppressing(one: AppliedEffect) -> bool:
    """Return True if the address proved invalid; a simulated or masked one never does."""
    if one.simulated or is_masked(one.recipient.address):
        return False
    return one.decided.outcome is not None and suppresses(one.decided.outcome)


def is_unexplained(one: AppliedEffect) -> bool:
    """Return True if a bounce gives no reason, so that it suppresses if it repeats."""
    if one.simulated or is_masked(one.recipient.address) or one.decided.effect is not NoticeEffect.BOUNCED:
        return False
    return one.decided.outcome is not None and one.decided.outcome.unexplained


def suppressing(one: AppliedEffect) -> AppliedEffect:
    """Return the effect with an outcome that suppresses."""
    assert one.decided.outcome is not None
    outcome = structs.replace(one.decided.outcome, suppress=True)
    return structs.replace(one, decided=structs.replace(one.decided, outcome=outcome))


def diagnostic(one: AppliedEffect) -> str | None:
    """Return the words of the report; none about a masked recipient, whose address they may quote."""
    if one.decided.outcome is None or is_masked(one.recipient.address):
        return None
    return one.decided.outcome.diagnostic or None
