"""Makes the attempts that are settled: from outcomes by address, or from what kept a delivery from being tried."""

import random
from collections.abc import Sequence
from datetime import datetime

import msgspec

from engine.base import clock
from engine.base.settings import Settings
from engine.delivery.outcome import Category, Outcome, Scope, Verdict, classify
from engine.delivery.retry_schedule import next_attempt_at
from engine.delivery.wait_reasons import UntriedReason
from engine.mail.replies import Answer
from engine.sending.settle import DeliveryAttempt, Result
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.poison_guard import MAX_DEATHS

SHARED_ATTEMPT = "the attempt of another message to the same servers, just before, spoke for this one"
MAX_FAULTS = 3  # attempts that may end in an internal fault before the message fails
NO_KEY = Outcome(
    Verdict.DEFERRED,
    Scope.MESSAGE,
    Category.UNSIGNED,
    suppress=False,
    smtp_code=None,
    enhanced_code=None,
    diagnostic="the sending domain has no signing key any more: it was removed after the message was accepted",
)

TOO_LATE = msgspec.structs.replace(
    NO_KEY, category=Category.EXPIRED, diagnostic="`deliverBy` passed while the message waited"
)


def attempt_of(
    delivery: ActiveDelivery,
    outcomes: dict[str, Outcome],
    conversation: dict[str, object] | None,
    started: datetime,
    settings: Settings,
    ladder_s: Sequence[float] | None = None,
) -> DeliveryAttempt:
    """Return an attempt with its outcomes by address, suppressed recipients among its results. `ladder_s` is the retry
    schedule of the site, where it has one of its own."""
    now = clock.now()
    results = []
    for place, address in delivery.pairs:
        reason = delivery.suppressed.get(address)
        outcome = None if reason else outcomes[address]
        if delivery.simulated and outcome is not None and outcome.suppress:
            outcome = msgspec.structs.replace(outcome, suppress=False)
        results.append(Result(place, address, outcome, reason))
    deferred = any(one.outcome is not None and one.outcome.verdict is Verdict.DEFERRED for one in results)
    next_at = None
    if deferred:
        next_at = next_attempt_at(
            delivery.row.attempts + 1,
            delivery.row.accepted_at,
            now,
            ladder_s=ladder_s or settings.retry_ladder_s,
            give_up_s=settings.give_up_s,
            jitter=random.random(),
            deliver_by=delivery.row.deliver_by,
        )
    waits, fair_share = delivery.wait.upto(now, started, delivery.row)
    return DeliveryAttempt(
        row=delivery.row,
        started_at=started,
        ended_at=now,
        results=tuple(results),
        conversation=conversation,
        signature=delivery.signature if deferred else None,
        next_at=next_at,
        simulated=delivery.simulated,
        waits=waits,
        fair_share=fair_share,
    )


def refused_by_route(
    delivery: ActiveDelivery,
    answer: Answer,
    conversation: dict[str, object] | None,
    settings: Settings,
    ladder_s: Sequence[float] | None = None,
) -> DeliveryAttempt:
    """Return an attempt with one answer for all recipients: no server exists, or none could be reached."""
    outcome = classify(answer)
    outcomes = dict.fromkeys(delivery.addresses, outcome)
    return attempt_of(delivery, outcomes, conversation, clock.now(), settings, ladder_s)


def without_key(delivery: ActiveDelivery, settings: Settings) -> DeliveryAttempt:
    """Return a final outcome: the domain was removed while the message waited, so that nothing can sign it."""
    return _untried(delivery, NO_KEY, UntriedReason.DOMAIN_REMOVED, settings)


def without_recipients(delivery: ActiveDelivery) -> DeliveryAttempt:
    """Return an attempt of which all recipients were suppressed after acceptance."""
    now = clock.now()
    results = tuple(Result(place, address, None, delivery.suppressed[address]) for place, address in delivery.pairs)
    waits, fair_share = delivery.wait.upto(now, now, delivery.row)
    return DeliveryAttempt(
        row=delivery.row, started_at=now, ended_at=now, results=results, conversation=None, signature=None,
        next_at=None, waits=waits, fair_share=fair_share,
    )  # fmt: skip


def too_late(delivery: ActiveDelivery, settings: Settings) -> DeliveryAttempt:
    """Return a final outcome: the message's `deliverBy` passed while it waited."""
    return _untried(delivery, TOO_LATE, UntriedReason.DELIVER_BY_PASSED, settings)


def at_fault(delivery: ActiveDelivery, error: Exception, faults: int, settings: Settings) -> DeliveryAttempt:
    """Return an attempt that failed by an internal fault, the message's `faults`th. It is retried on the schedule and
    fails after `MAX_FAULTS`; deferrals by servers do not count among them."""
    words = f"an internal fault ({type(error).__name__}); the operator's log has the details"
    return _our_fault(delivery, words, settings, again=faults < MAX_FAULTS)


def after_deaths(delivery: ActiveDelivery, deaths: int, settings: Settings) -> DeliveryAttempt:
    """Return an attempt during which the process died, the message's `deaths`th; counted apart from other faults."""
    words = f"the delivering process died while it prepared this message ({deaths} of {MAX_DEATHS} times)"
    return _our_fault(delivery, words, settings, again=deaths < MAX_DEATHS)


def _untried(delivery: ActiveDelivery, outcome: Outcome, reason: UntriedReason, settings: Settings) -> DeliveryAttempt:
    """Return a final outcome for a delivery that was not tried; it counts no attempt."""
    attempt = attempt_of(delivery, dict.fromkeys(delivery.addresses, outcome), None, clock.now(), settings)
    return msgspec.structs.replace(attempt, next_at=None, untried=reason)


def _our_fault(delivery: ActiveDelivery, diagnostic: str, settings: Settings, *, again: bool) -> DeliveryAttempt:
    outcome = Outcome(
        Verdict.DEFERRED,
        Scope.MESSAGE,
        Category.LOCAL,
        suppress=False,
        smtp_code=None,
        enhanced_code=None,
        diagnostic=diagnostic,
    )
    attempt = attempt_of(delivery, dict.fromkeys(delivery.addresses, outcome), None, clock.now(), settings)
    return attempt if again else msgspec.structs.replace(attempt, next_at=None)
