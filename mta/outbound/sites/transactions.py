"""Joins transactions of one message, and decides whether one settled its recipients. Pure."""

from collections.abc import Sequence

import msgspec

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.smtp.client.connection import Transaction


def joined(done: Sequence[Transaction]) -> Transaction:
    """Join the transactions of one message into one: all their answers, and the conversation of the first that was not
    all well, or of the last."""
    bad = [one for one in done if any(not _went_well(answer) for answer in one.answers)]
    shown = bad[0] if bad else done[-1]
    return msgspec.structs.replace(
        shown,
        recipients=tuple(address for one in done for address in one.recipients),
        answers=tuple(answer for one in done for answer in one.answers),
    )


def _went_well(answer: Answer) -> bool:
    return isinstance(answer.outcome, Reply) and answer.outcome.code < 300


def not_reached(recipients: tuple[str, ...]) -> Transaction:
    answer = Answer(Phase.MAIL, Break(BreakKind.CLOSED, "the connection ended before it was their turn"))
    return Transaction(recipients, (answer,) * len(recipients), (), ())


def is_undecided(transaction: Transaction) -> bool:
    """Return True if the session broke before the server decided about anything: no content was sent."""
    return all(
        isinstance(answer.outcome, Break)
        and answer.phase is not Phase.BODY
        and answer.outcome.kind in (BreakKind.CLOSED, BreakKind.LOCAL)
        for answer in transaction.answers
    )
