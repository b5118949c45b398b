"""Decide what a delivery status notification changes. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from engine.base.events import SETTLED, Status
from engine.delivery.outcome import Outcome, Scope
from engine.delivery.reported import outcome_of
from engine.mail.address import BadAddress, canonical
from engine.mail.delivery_reports import Action, DeliveryReport, RecipientReport, ReportKind
from engine.mail.return_path import ReturnPathOrigin, domain_of, is_within, recipients_of

MAX_LATE_DELAYS: Final = 3  # recorded per recipient of a message: events are permanent, and posted to webhooks


class LateNotice(Struct, frozen=True):
    """A notification that arrived at a genuine return path.

    `report` is the id of the stored mail. `author` is the domain of its author, None if it is not authenticated.
    `servers` are those that accepted the message, by address; only an author with a shared token is compared with them.
    """

    report: UUID
    origin: ReturnPathOrigin
    said: DeliveryReport
    received_at: datetime
    author: str | None = None
    servers: Mapping[str, str] = {}


class KnownRecipient(Struct, frozen=True):
    """A recipient of the message that a notification is about.

    `kind` is to, cc or bcc. `late_delays`: the delay notices on record.
    """

    message_id: UUID
    n: int
    account_id: UUID
    address: str
    kind: str
    status: str
    late_delays: int = 0
    traceparent: str | None = None  # of the message


class NoticeEffect(StrEnum):
    """The effect of a notification on one recipient."""

    BOUNCED = "bounced"
    DEFERRED = "deferred"  # an event only
    EARLY = "early"  # the delivery is not on record yet: to be read again
    NONE = "none"


class DecidedNotice(Struct, frozen=True):
    """The effect of a notification on one recipient, with the word and the sentence that the operator reads.

    `unverified`: a co-recipient could have written the notification, so it suppresses nobody.
    """

    effect: NoticeEffect
    result: str
    reason: str
    recipient: KnownRecipient | None = None
    outcome: Outcome | None = None
    unverified: bool = False


def decide(notice: LateNotice, recipients: Sequence[KnownRecipient]) -> list[DecidedNotice]:
    """Return the effects of a notification, given the recipients of its message with their present statuses.

    A token of one recipient decides who is meant. A token that recipients share needs the address of one of them, and
    speaks for their domain only. All of them have read it, so the author must be authenticated as well: under the
    recipient's domain, or that of the server that accepted the message. Without this nobody is suppressed, and a
    recipient in Bcc, whom the others do not know, does not bounce.
    """
    if not recipients:
        return [_none("unknown_message", "The message is erased or past its retention.")]
    reports = _reports(notice.said)
    entitled = recipients_of(notice.origin, recipients)
    if notice.origin.is_shared:
        return _shared(notice, reports, entitled)
    if not entitled:
        return [_none("unknown_recipient", "The message has no such recipient.")]
    own = entitled[0]
    about = _about(own, reports)
    if about is None:
        return [_none("several_recipients", f"The report names several recipients, but not {own.address}.", own)]
    return [_effect(own, about)]


def is_delay(notice: LateNotice) -> bool:
    """Return True if a notification says of a recipient that the delivery is delayed."""
    return any(one.action is Action.DELAYED for one in _reports(notice.said))


def suppresses(outcome: Outcome) -> bool:
    """Return True if a late bounce suppresses the address: only if it concerns the recipient itself."""
    return outcome.suppress and outcome.scope is Scope.RECIPIENT


def _reports(said: DeliveryReport) -> list[RecipientReport]:
    """Return what is said of each recipient; in a delay notice without fields everything is a delay."""
    if said.kind is not ReportKind.DELAY:
        return list(said.recipients)
    return [
        structs.replace(one, action=Action.DELAYED) if one.action is Action.FAILED else one for one in said.recipients
    ]


def _shared(
    notice: LateNotice, reports: Sequence[RecipientReport], recipients: Sequence[KnownRecipient]
) -> list[DecidedNotice]:
    by_address = {canonical(one.address): one for one in recipients}
    found: dict[int, DecidedNotice] = {}
    for said in reports:
        own = by_address.get(canonical_or_empty(said.address)) or by_address.get(canonical_or_empty(said.final))
        if own is not None and (own.n not in found or said.action is Action.FAILED):
            effect = _effect(own, said)
            found[own.n] = effect if _is_authentic(notice, own) else _unverified(effect, own)
    return list(found.values()) or [
        _none("unknown_recipient", "The report names no recipient for whom its return path speaks.")
    ]


def _is_authentic(notice: LateNotice, own: KnownRecipient) -> bool:
    """Return True if the author writes for the domain of the recipient, or for that of its mail server."""
    if notice.author is None:
        return False
    server = notice.servers.get(own.address, "").rstrip(".").lower()
    return is_within(domain_of(own), notice.author) or is_within(server, notice.author)


def _unverified(effect: DecidedNotice, own: KnownRecipient) -> DecidedNotice:
    """Return the effect that is left if any co-recipient may have written the notification."""
    if effect.outcome is None:
        return effect
    if own.kind == "bcc":
        return _none("not_authenticated", f"{own.address} was in Bcc, and the author is not authenticated.", own)
    outcome = structs.replace(effect.outcome, suppress=False, unexplained=False)
    reason = f"{effect.reason} The author is not authenticated, so this suppresses nobody."
    return structs.replace(effect, outcome=outcome, reason=reason, unverified=True)


def _about(own: KnownRecipient, reports: Sequence[RecipientReport]) -> RecipientReport | None:
    """Return the report that concerns the token's recipient.

    After a forward the report names another address. If it names several, some of which got the mail, then our address
    is a list, whose members are not ours to judge.
    """
    address = canonical(own.address)
    named = [one for one in reports if address in (canonical_or_empty(one.address), canonical_or_empty(one.final))]
    for action in (Action.FAILED, Action.DELAYED):
        for one in named:
            if one.action is action:
                return one
    if named or not reports:
        return named[0] if named else None
    first = reports[0]
    return first if all(one.action is first.action for one in reports) else None


def _effect(own: KnownRecipient, said: RecipientReport) -> DecidedNotice:
    if said.action not in (Action.FAILED, Action.DELAYED):
        return _none(said.action.value, f"The report says that the mail to {own.address} was {said.action.value}.", own)
    if Status(own.status) not in SETTLED:
        return DecidedNotice(
            NoticeEffect.EARLY, "not_delivered", f"The delivery to {own.address} is not on record.", own
        )
    if own.status != Status.DELIVERED:
        return _none(
            f"already_{own.status}", f"{own.address} is {own.status}; only delivered mail can bounce late.", own
        )
    if said.action is Action.DELAYED and own.late_delays >= MAX_LATE_DELAYS:
        return _none("delayed_often", f"{MAX_LATE_DELAYS} delays of the mail to {own.address} are on record.", own)
    outcome = outcome_of(said)
    if said.action is Action.DELAYED:
        return DecidedNotice(
            NoticeEffect.DEFERRED, "deferred", f"{own.address}: the receiving side is still trying.", own, outcome
        )
    return DecidedNotice(NoticeEffect.BOUNCED, "bounced", f"{own.address} bounced late.", own, outcome)


def _none(result: str, reason: str, own: KnownRecipient | None = None) -> DecidedNotice:
    return DecidedNotice(NoticeEffect.NONE, result, reason, own)


def canonical_or_empty(address: str) -> str:
    """Return the canonical form of an address in a report, "" if it is none."""
    try:
        return canonical(address) if "@" in address else ""
    except BadAddress:
        return ""
