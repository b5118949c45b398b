"""Write the values of the mail about an alert: the value, since when, and what to look at first. Pure.

The text around them is `engine/people/system_mail/templates/alert_fired.txt`.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from engine.accounts.alerts.types import RATES, TERMS, AlertEvent, AlertKind
from engine.base import ids

_SUMMARY: Final = {
    AlertKind.COMPLAINT_RATE: "Complaint rate of {value}",
    AlertKind.BOUNCE_RATE: "Bounce rate of {value}",
    AlertKind.QUOTA_USAGE: "{value} of the month's emails are used",
    AlertKind.DNS_DRIFT: "DNS records changed ({value})",
    AlertKind.BLOCKLIST: "Listed on blocklists ({value})",
    AlertKind.WEBHOOK_FAILING: "Webhooks are failing ({value})",
}
_WHAT: Final = {
    AlertKind.COMPLAINT_RATE: "{complained} of {settled} recipients marked messages as spam {window}.",
    AlertKind.BOUNCE_RATE: "{bounced} of {settled} recipients bounced {window}.",
    AlertKind.QUOTA_USAGE: "{sent} of the {limit} emails that the account may send in {month} are sent.",
    AlertKind.DNS_DRIFT: "DNS records of domains were correct and no longer are, by two checks in a row.",
    AlertKind.BLOCKLIST: "Blocklists name domains of the account, or addresses that its mail is sent from.",
    AlertKind.WEBHOOK_FAILING: "Posts to webhook endpoints of the account fail. They are retried; events are kept.",
}
_ADVICE: Final = {
    AlertKind.COMPLAINT_RATE: "Which stream or campaign went out last, and whether its recipients asked for it."
    " `GET /v1/analytics/delivery?groupBy=tag` shows complaints by tag. At 0.5% the account is suspended.",
    AlertKind.BOUNCE_RATE: "Where the addresses come from: old or bought lists and typing errors bounce."
    " `GET /v1/analytics/delivery` shows bounces by domain. At 15% the account is suspended.",
    AlertKind.QUOTA_USAGE: "Whether the volume is intended. Above the limit, emails are refused until the 1st (UTC):"
    " upgrade the plan in time.",
    AlertKind.DNS_DRIFT: "Whether somebody changed the zone or moved it to another DNS provider."
    " `GET /v1/domains/{id}` shows each record and what DNS answers.",
    AlertKind.BLOCKLIST: "The site of each list says why it lists the name and how to be removed. For addresses of the"
    " service, the operator asks for removal; for a domain, you do.",
    AlertKind.WEBHOOK_FAILING: "Whether your server is reachable and responds with 2xx within 10 seconds."
    " `GET /v1/webhooks/{id}/deliveries` shows each request and response. Replay what failed once it responds.",
}


def values_of(event: AlertEvent, account: str, *, test: bool) -> dict[str, Any]:
    """Return the values of the mail's template. A test says so, in place of when the alert fired."""
    kind = AlertKind(event.kind)
    detail: dict[str, Any] = orjson.loads(event.detail)
    value = shown(kind, event.value)
    summary = summary_of(kind, event.value)
    return {
        "account_name": account,
        "summary": f"[Test] {summary}" if test else summary,
        "what": _what(kind, event, detail),
        "since": "this is a test, nothing has fired" if test else f"{event.fired_at:%d %B %Y, %H:%M} UTC",
        "value": value,
        "limit": shown(kind, event.threshold),
        "facts": "\n".join(_facts(detail)) or None,
        "advice": _ADVICE[kind],
        "rule": ids.format_id(ids.Kind.ALERT_RULE, event.rule_id),
    }


def summary_of(kind: AlertKind, value: float) -> str:
    """Return a value of an alert in a few words, such as `Bounce rate of 6%`."""
    return _SUMMARY[kind].format(value=shown(kind, value))


def shown(kind: AlertKind, value: float) -> str:
    """Return a value in words, such as `0.3%` or `2 records`."""
    if kind in RATES or kind is AlertKind.QUOTA_USAGE:
        return f"{round(value * 100, 2):g}%"
    unit = TERMS[kind].unit
    return f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"


def _what(kind: AlertKind, event: AlertEvent, detail: dict[str, Any]) -> str:
    window = "in the last 24 hours" if event.window_days == 1 else f"in the last {event.window_days} days"
    known = {name: detail.get(name, "?") for name in ("settled", "bounced", "complained", "sent", "limit", "month")}
    return _WHAT[kind].format(window=window, **known)


def _facts(detail: dict[str, Any]) -> Iterator[str]:
    for domain in detail.get("domains", ()):
        for record in domain["records"]:
            yield f"{record['type']} {record['host']}: {record['status']}"
    for listing in detail.get("listings", ()):
        yield f"{listing['target']} on {listing['list']}, since {listing['since'][:10]}"
    for endpoint in detail.get("endpoints", ()):
        yield f"{endpoint['url']}, since {endpoint['failing_since']}"
    if detail.get("more"):
        yield f"and {detail['more']} more"
