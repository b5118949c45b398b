"""Write notices from what was found and from the use of the limits. Pure."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Final

from engine.accounts.alerts import mail
from engine.accounts.alerts.types import AlertKind
from engine.accounts.notices.types import (
    AccountNotice,
    MarkedNotice,
    MarkRow,
    NeededRow,
    NoticeKind,
    NoticeSeverity,
    SendingUse,
)
from engine.base import clock, ids

NEAR: Final = 0.8  # of a limit

_IDS: Final = {
    NoticeKind.ALERT_FIRING: ids.Kind.ALERT_RULE,
    NoticeKind.WEBHOOK_FAILING: ids.Kind.WEBHOOK,
    NoticeKind.WEBHOOK_DISABLED: ids.Kind.WEBHOOK,
    NoticeKind.DOMAIN_UNVERIFIED: ids.Kind.DOMAIN,
    NoticeKind.BROADCAST_IN_REVIEW: ids.Kind.BROADCAST,
    NoticeKind.BROADCAST_PAUSED: ids.Kind.BROADCAST,
    NoticeKind.BROADCAST_STOPPED: ids.Kind.BROADCAST,
    NoticeKind.AGENT_SENDS_WAITING: ids.Kind.AGENT_SEND,
}
_TEXTS: Final = {
    NoticeKind.WEBHOOK_FAILING: "Posts to the webhook endpoint {name} are failing.",
    NoticeKind.WEBHOOK_DISABLED: "The webhook endpoint {name} is disabled and gets no new events.",
    NoticeKind.DOMAIN_UNVERIFIED: "{name} is no longer verified: emails from it are refused.",
    NoticeKind.BROADCAST_IN_REVIEW: "The broadcast “{name}” is waiting for review.",
    NoticeKind.BROADCAST_PAUSED: "The broadcast “{name}” is paused.",
    NoticeKind.BROADCAST_STOPPED: "The broadcast “{name}” was stopped.",
    NoticeKind.AGENT_SENDS_WAITING: "Emails of agents wait for approval: {name}.",
}
_SEVERITIES: Final[dict[NoticeKind, NoticeSeverity]] = {
    NoticeKind.WEBHOOK_FAILING: "bad",
    NoticeKind.DOMAIN_UNVERIFIED: "bad",
    NoticeKind.BROADCAST_STOPPED: "bad",
    NoticeKind.LIMIT_REACHED: "bad",
    NoticeKind.WEBHOOK_DISABLED: "info",
}
_ORDER: Final[tuple[NoticeSeverity, ...]] = ("bad", "warn", "info")


def notices_of(found: Iterable[NeededRow], use: SendingUse, at: datetime) -> list[AccountNotice]:
    """Return all notices of an account, the most severe first, then the newest."""
    notices = [_about(row) for row in _distinct(found)] + _limits(use, at)
    notices.sort(key=lambda one: (_ORDER.index(one.severity), -(one.since.timestamp() if one.since else 0), one.id))
    return notices


def shown_to(marks: Iterable[MarkRow], notices: Sequence[AccountNotice]) -> list[MarkedNotice]:
    """Return the notices that a person has not dismissed."""
    marked = {one.notice: one.dismissed for one in marks}
    return [MarkedNotice(one, one.id not in marked) for one in notices if not marked.get(one.id, False)]


def _distinct(found: Iterable[NeededRow]) -> list[NeededRow]:
    """Leave out the alert about failing webhooks if the failing endpoints are found: it reports the same failure."""
    rows = list(found)
    if not any(row.kind == NoticeKind.WEBHOOK_FAILING for row in rows):
        return rows
    return [row for row in rows if (row.kind, row.name) != (NoticeKind.ALERT_FIRING, AlertKind.WEBHOOK_FAILING)]


def _about(row: NeededRow) -> AccountNotice:
    kind = NoticeKind(row.kind)
    public = ids.format_id(_IDS[kind], row.object_id)
    since = 0 if row.since is None else int(row.since.timestamp())
    message = _alert(row) if kind is NoticeKind.ALERT_FIRING else _TEXTS[kind].format(name=row.name.partition("?")[0])
    return AccountNotice(f"{kind}.{public}.{since}", kind, _SEVERITIES.get(kind, "warn"), message, public, row.since)


def _alert(row: NeededRow) -> str:
    kind, threshold = AlertKind(row.name), row.threshold or 0.0
    fired = threshold if row.fired_value is None else row.fired_value
    value = fired if row.value is None else row.value
    if value >= threshold:
        return f"{mail.summary_of(kind, value)}; the rule fires at {mail.shown(kind, threshold)}."
    # A rule ends only after several lower values in a row: until then the present value alone would contradict it.
    return f"{mail.summary_of(kind, fired)} when the alert fired, now {mail.shown(kind, value)}."


def _limits(use: SendingUse, at: datetime) -> list[AccountNotice]:
    day, month = at.date(), clock.first_of_month(at.date())
    return [
        *_limit(use.sent_today, use.daily_limit, "today", "until midnight UTC", day),
        *_limit(use.sent_this_month, use.monthly_limit, "this month", "until the 1st (UTC)", month),
    ]


def _limit(sent: int, limit: int, period: str, until: str, since: date) -> list[AccountNotice]:
    if limit <= 0 or sent < NEAR * limit:
        return []
    kind = NoticeKind.LIMIT_REACHED if sent >= limit else NoticeKind.LIMIT_NEAR
    message = f"{sent:,} of the {limit:,} emails of {period} are sent."
    if kind is NoticeKind.LIMIT_REACHED:
        message = f"The limit of {limit:,} emails {period} is reached: more are refused {until}."
    key = f"{kind}.{period.replace(' ', '_')}.{since.isoformat()}"
    return [AccountNotice(key, kind, _SEVERITIES.get(kind, "warn"), message, None, None)]
