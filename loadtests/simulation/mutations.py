"""Deliberate faults of the service, each of which the invariants must find: patches of a process that runs a seed."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

from msgspec import structs

from engine.base import clock
from engine.base.events import EventType
from engine.delivery import hints, queue
from engine.delivery.outcome import Outcome, Verdict, classify
from engine.events.webhooks import posting
from engine.ledger import heads, quota
from engine.mail.replies import Answer, Break, Phase
from engine.sending import accept, accept_store, release, settle, settled_rows
from engine.sending.admission import Pending
from engine.sending.emails.types import Accepted, Prepared
from engine.store.queries import Query
from loadtests.simulation.process import current
from mta.outbound import attempts, deliver

_HEAD_LOCKS: Final = ("FOR NO KEY UPDATE OF a", "FOR NO KEY UPDATE OF h", "FOR NO KEY UPDATE")


def answer_before_commit() -> None:
    """Answer 202 while the group commit still waits."""
    whole: Any = accept.Acceptor.accept

    async def accepted(self: Any, message: Any, tied: Any = None) -> Accepted:
        if not isinstance(message, Prepared):
            found: Accepted = await whole(self, message, tied)
            return found
        self._group_of([message]).enqueue(Pending(message)).add_done_callback(_ignore)
        return Accepted(message.public_id, "queued" if message.scheduled_at is None else "scheduled")

    accept.Acceptor.accept = accepted  # type: ignore[method-assign]


def settle_without_lease() -> None:
    """Settle whether or not the process is a member of the shards."""
    whole: Any = settle._write  # noqa: SLF001

    async def written(connection: Any, plans: Any, *, member: Any = None) -> Any:
        return await whole(connection, plans, member=member and None)

    settle._write = written  # noqa: SLF001
    _change(
        settle._UNCHANGED_ROWS,  # noqa: SLF001
        "SELECT 1 FROM shard_members WHERE id = $4 FOR KEY SHARE",
        "SELECT 1 WHERE $4::uuid IS NOT NULL",
    )


def hint_ends_search() -> None:
    """Take a hint that was read for a row that was loaded: due times leave the message out."""
    read: Any = hints.HintReader.read
    due, load = queue.due, queue.load_hinted
    taken: dict[object, set[UUID]] = {}

    async def noted(self: Any, shards: Any, **options: Any) -> Any:
        found = await read(self, shards, **options)
        taken.setdefault(current(), set()).update(message for _, message in found.messages)
        return found

    async def loaded(connection: Any, messages: Collection[UUID], shards: Collection[int]) -> Any:
        rows = await load(connection, messages, shards)
        taken.setdefault(current(), set()).difference_update(row.message_id for row in rows)
        return rows

    async def left(connection: Any, shards: Collection[int], **options: Any) -> Any:
        known = taken.get(current(), set())
        return [row for row in await due(connection, shards, **options) if row.message_id not in known]

    hints.HintReader.read = noted  # type: ignore[method-assign]
    vars(queue).update(due=left, load_hinted=loaded)


def quota_counted_twice() -> None:
    """Count each message twice on its account's head."""
    whole = quota.take

    def taken(head: Any, at: Any, parent: Any = None) -> Any:
        head.sent_today += 1
        return whole(head, at, parent)

    release.quota.take = taken  # type: ignore[attr-defined]


def seq_outside_lock() -> None:
    """Read the account heads without locking them."""
    for one in (heads.LOCK, heads.LOCK_COUNTED, accept_store._ACCEPT, settle._SETTLE):  # noqa: SLF001
        for lock in _HEAD_LOCKS:
            one.sql = one.sql.replace(lock, "")


def posted_before_response() -> None:
    """Record a webhook post as delivered before its response has come."""

    async def made(self: Any, endpoint: Any, post: Any) -> None:
        verdict = posting.PostVerdict(delivered=True, status=200, answer="", error=None)
        self._enqueue(posting.recorded(post, verdict, clock.now(), 0, self._schedule, jitter=0.0))
        began = time.monotonic()
        await self._post(post)
        endpoint.answered(delivered=True, took_s=time.monotonic() - began, now=clock.monotonic())

    posting.Poster._make = made  # type: ignore[method-assign]


def deferral_deletes_row() -> None:
    """Delete the queue row of a deferred delivery."""
    settled_rows.SettlingPlan.waiting = property(lambda _: [])  # type: ignore[assignment,method-assign]


def unknown_outcome_fails() -> None:
    """Fail a delivery whose connection was lost after the final dot."""

    def judged(answer: Answer, *, alone: bool = True) -> Outcome:
        outcome = classify(answer, alone=alone)
        if answer.phase is Phase.BODY and isinstance(answer.outcome, Break):
            return structs.replace(outcome, verdict=Verdict.BOUNCED)
        return outcome

    attempts.classify = deliver.classify = judged  # type: ignore[attr-defined]


def release_without_event() -> None:
    """Queue a scheduled message without its `accepted` event."""
    whole: Any = release._entries  # noqa: SLF001
    release._entries = lambda *given: [one for one in whole(*given) if one.kind is not EventType.ACCEPTED]  # noqa: SLF001


def settle_twice() -> None:
    """Settle an attempt again though its queue row has changed since, or is gone."""
    _change(settle._SETTLE, "IF unchanged < (SELECT count(*) FROM", "IF unchanged < 0 * (SELECT count(*) FROM")  # noqa: SLF001


MUTATIONS: Final[dict[str, Callable[[], None]]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        answer_before_commit, settle_without_lease, hint_ends_search, quota_counted_twice, seq_outside_lock,
        posted_before_response, deferral_deletes_row, unknown_outcome_fails, release_without_event, settle_twice,
    )
}  # fmt: skip


def apply(name: str) -> None:
    """Change the service in this process."""
    MUTATIONS[name]()


def _change(one: Query, part: str, other: str) -> None:
    if part not in one.sql:
        raise RuntimeError(f"the statement {one.name} no longer has what the mutation changes: {part}")
    one.sql = one.sql.replace(part, other)


def _ignore(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()
