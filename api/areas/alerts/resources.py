"""`/v1/alerts`: rules, their test, and the alerts that have fired."""

from typing import Any, Final, Literal, cast

import orjson
from msgspec import UNSET, structs

from api.areas.alerts.schemas import (
    AlertEventPage,
    AlertEventRecord,
    AlertRuleChange,
    AlertRuleDefaults,
    AlertRulePage,
    AlertRuleRecord,
    AlertRulesMade,
    AlertTestReply,
    AlertVocabularyItem,
    NewAlertRule,
)
from api.http.operation import Area, Call, LimitedKeys, Operation
from api.http.paging import Page
from engine.accounts.alerts import rule_actions, rules, service, store
from engine.accounts.alerts.types import DEFAULT_SET, TERMS, AlertEvent, AlertKind, AlertRule, AlertRuleFields
from engine.base import clock, ids
from engine.base.errors import ErrorType, invalid

_DIGITS: Final = 6  # of values


async def create(call: Call, body: NewAlertRule) -> AlertRulesMade:
    """Create a rule; without a body or with an empty object, the missing rules of the default set."""
    if body == NewAlertRule():  # most clients send `{}` for nothing
        made = await service.create_missing(call.services.pool, call.account_id, actor=call.actor)
        return AlertRulesMade(data=[record(row) for row in made])
    if body.kind is UNSET:
        raise invalid("kind", f"`kind` is missing. Use one of {', '.join(AlertKind)}.")
    if body.threshold is UNSET:
        raise invalid("threshold", f"`threshold` is missing. The default of {body.kind} is {_default(body.kind):g}.")
    row = await service.create(call.services.pool, call.account_id, body.kind, _fields(body), actor=call.actor)
    return AlertRulesMade(**structs.asdict(record(row)))


async def list_rules(call: Call, page: Page) -> AlertRulePage:
    """Return a page of the account's rules, and the vocabulary."""
    rows = await store.LIST.fetch(call.services.pool, call.account_id, page.before, page.probe)
    return AlertRulePage(*page.of(rows, record), VOCABULARY)


async def change(call: Call, body: AlertRuleChange) -> AlertRuleRecord:
    """Change the given fields of a rule."""
    changed = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    row = await service.change(call.services.pool, call.account_id, call.id, changed, actor=call.actor)
    return record(row)


async def delete(call: Call) -> None:
    """Delete a rule; its alert events stay."""
    await rule_actions.delete_rule(call.services.pool, call.account_id, call.id, clock.now(), actor=call.actor)


async def test(call: Call) -> AlertTestReply:
    """Measure a rule now, and send a test notice on its channels."""
    found = await rule_actions.send_test(
        call.services.pool, call.settings, call.account_id, call.id, clock.now(), actor=call.actor
    )
    value, threshold = found.reading.value, found.rule.threshold
    return AlertTestReply(
        rule_id=found.rule.public_id,
        kind=found.rule.kind,
        value=_rounded(value),
        threshold=threshold,
        reached=None if value is None else value >= threshold,
        channels=_channels(found.channels),
    )


async def list_events(call: Call, page: Page) -> AlertEventPage:
    """Return a page of the account's alert events."""
    rows = await store.EVENTS.fetch(call.services.pool, call.account_id, page.before, page.probe)
    return AlertEventPage(*page.of(rows, event_record))


def record(row: AlertRule) -> AlertRuleRecord:
    """Return a rule as clients see it."""
    return AlertRuleRecord(
        id=row.public_id,
        kind=row.kind,
        threshold=row.threshold,
        window_days=row.window_days,
        cooldown_minutes=row.cooldown_minutes,
        notify_email=row.notify_email,
        notify_webhook=row.notify_webhook,
        enabled=row.enabled,
        state=cast("Literal['ok', 'firing', 'unknown']", row.state),
        firing_since=clock.iso_or_none(row.firing_since),
        last_value=_rounded(row.last_value),
        last_measured_at=clock.iso_or_none(row.last_measured_at),
        created_at=clock.iso(row.created_at),
        updated_at=clock.iso(row.updated_at),
    )


def event_record(row: AlertEvent) -> AlertEventRecord:
    """Return an alert event as clients see it."""
    return AlertEventRecord(
        id=row.public_id,
        rule_id=ids.format_id(ids.Kind.ALERT_RULE, row.rule_id),
        kind=row.kind,
        value=round(row.value, _DIGITS),
        threshold=row.threshold,
        window_days=row.window_days,
        channels=_channels(row.channels),
        fired_at=clock.iso(row.fired_at),
        ended_at=clock.iso_or_none(row.ended_at),
        detail=orjson.loads(row.detail),
    )


def _fields(body: NewAlertRule) -> AlertRuleFields:
    """Return the fields of a new rule, with defaults for those left out."""
    assert body.kind is not UNSET
    given: dict[str, Any] = {
        name: value
        for name in AlertRuleFields.__struct_fields__
        if (value := getattr(body, name)) is not None and value is not UNSET
    }
    return structs.replace(rules.defaults(body.kind), **given)


def _default(kind: AlertKind) -> float:
    return TERMS[kind].threshold


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _channels(names: list[str]) -> list[Literal["email", "webhook"]]:
    return cast("list[Literal['email', 'webhook']]", names)


def _vocabulary(kind: AlertKind) -> AlertVocabularyItem:
    terms, fields = TERMS[kind], rules.defaults(kind)
    chosen = AlertRuleDefaults(**(structs.asdict(fields) | {"window_days": terms.window_days}))
    return AlertVocabularyItem(
        kind=kind.value, unit=terms.unit, defaults=chosen, maximum=terms.maximum, preset=kind in DEFAULT_SET
    )


VOCABULARY: Final = [_vocabulary(kind) for kind in AlertKind]

_KEYS = Area(
    "Alerts",
    reads=("alerts:read",),
    writes=("alerts:write",),
    limited_keys=LimitedKeys.WHOLE_ACCOUNT,
    id_of=ids.Kind.ALERT_RULE,
)
OPERATIONS = (
    Operation(
        "GET",
        "/v1/alerts/events",
        list_events,
        "List the alerts that have fired",
        _KEYS,
        page=ids.Kind.ALERT_EVENT,
        note="They stay as long as the account's records do, also when their rule is deleted.",
        lagging=True,
    ),
    Operation(
        "GET",
        "/v1/alerts/rules",
        list_rules,
        "List alert rules with their state, and the kinds that there are",
        _KEYS,
        page=ids.Kind.ALERT_RULE,
        lagging=True,
    ),
    Operation(
        "POST",
        "/v1/alerts/rules",
        create,
        "Create an alert rule, or without a body the default rules",
        _KEYS,
        note="One rule per kind. It is measured every minute, fires at `threshold`, and ends after two measurements "
        "below. Owners and admins get one mail for each firing, webhooks `alert.fired` and `alert.ended`. Without a "
        "body, or with `{}`, the reply is `{data}` with the rules that were created. The kind `webhook_failing` is an "
        "extra and not in the default set: create it by name.",
        success=201,
        refusals=(ErrorType.CONFLICT, ErrorType.NOT_FOUND, ErrorType.THRESHOLD_REFUSED),
    ),
    Operation(
        "PATCH",
        "/v1/alerts/rules/{id}",
        change,
        "Change an alert rule",
        _KEYS,
        note=(
            "An alert that is firing keeps firing: neither a change nor switching `enabled` off and on makes "
            "it fire again."
        ),
        refusals=(ErrorType.THRESHOLD_REFUSED,),
    ),
    Operation("DELETE", "/v1/alerts/rules/{id}", delete, "Delete an alert rule; an alert that is firing ends", _KEYS),
    Operation(
        "POST",
        "/v1/alerts/rules/{id}/test",
        test,
        "Measure an alert rule now and send a test notice on its channels",
        _KEYS,
        note="The mail's subject begins with `[Test]`, the webhook post has `test` true in its detail. The rule's "
        "state stays. Once a minute for each rule.",
        success=202,
    ),
)
