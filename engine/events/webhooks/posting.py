"""Post events to webhook endpoints; the worker process runs one Poster.

Steps: poll for endpoints with due posts, claim some posts of each under a lease, sign and post them, record the
attempts: a row is deleted or gets its next due time. The queue is in PostgreSQL: posts claimed by a process that dies
become due again when their lease ends, with the same attempt number. The statement that records a batch compares
attempt counts, so it never records an attempt twice.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

import asyncpg
import structlog
import yarl
from msgspec import Struct, structs

from engine.base import clock, ids, secrets
from engine.base.secrets import Unsealable
from engine.base.settings import Settings
from engine.delivery.retry_schedule import RetrySchedule
from engine.events.webhooks import post_options, retry_after, rules, standard, store
from engine.events.webhooks.pacing import EndpointPace, Shares
from engine.events.webhooks.post_trace import PostTrace
from engine.events.webhooks.service import secret_key
from engine.events.webhooks.types import Claimed, Recorded
from engine.store import metrics, service_time
from engine.store.database_errors import BadData, DatabaseUnavailable
from engine.store.group_commit import GroupCommit
from engine.store.http_client import HttpClient, HttpFailure, HttpReply
from engine.store.pace import PACE

POLL_S = 0.25  # between polls for due posts
BUSY_POLL_S = 0.1  # while posts are due to endpoints that answer
POLL_SHARE, MAX_POLL_PAUSE_S = 0.2, 0.5  # polls take at most a fifth of the time
MIN_CLAIM_S = 0.01
MIN_RECORD_S = 0.01
LEASE_EXTRA_S = 20.0  # beyond the post's timeout: waiting after the claim, and the commit of the record
MAX_ENDPOINTS, MAX_POSTS = 256, 1_024  # per claim
DATABASE_RETRY_S = 0.5
STALE, HOPELESS_S = timedelta(days=1), 3600.0
SWEEP_S, SWEPT_EACH = 60.0, 1_000
FORGET_S = 3600.0
_MAX_SECRETS = 10_000

_log = structlog.get_logger("webhooks")


class PostVerdict(Struct, frozen=True):
    """The meaning of an answer, or of a failure to get one."""

    delivered: bool
    status: int | None
    answer: str | None
    error: str | None
    answer_headers: str | None = None
    retry_after: str | None = None


class SentPost(Struct, frozen=True):
    """The parts that differ between the requests of a delivery: the URL and the signatures. None: nothing was sent."""

    url: str | None = None
    signature: str | None = None
    signature_previous: str | None = None
    signature_standard: str | None = None


class EventBodies(Protocol):
    """Completes the payloads of events that do not hold all that is posted."""

    async def completed(self, account: UUID, payload: str) -> str:
        """Return the payload to post."""
        ...


class Poster:
    """Claim and post until drained. Several processes may each run one on the same queue."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        client: HttpClient,
        settings: Settings,
        *,
        on_record: Callable[[int, float], None],
        received_bodies: EventBodies | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        if settings.key_pepper is None:
            raise RuntimeError("WAYBILL_KEY_PEPPER is not set; posting webhooks needs it to unseal signing secrets")
        self._pool = pool
        self._client = client
        self._timeout_s = settings.webhook_timeout_s
        self._lease_s = settings.webhook_timeout_s + LEASE_EXTRA_S
        self._schedule = rules.retry_schedule(settings.webhook_ladder_s)
        self._key = secret_key(settings.pepper)
        self._headers_key = post_options.headers_key(settings.pepper)
        self._secrets: dict[tuple[UUID, bytes], str] = {}
        self._on_record = on_record
        self._received_bodies = received_bodies
        self._rng = rng
        self._shares = Shares(max_in_hand=settings.webhook_connections, each=settings.webhook_connections_each)
        self._records: GroupCommit[Recorded, bool] = GroupCommit(
            self._flush, max_items=256, max_waiting=1_000_000, min_interval_s=MIN_RECORD_S, bad_data=(BadData,)
        )
        self._wake = asyncio.Event()
        PACE.wake(self._wake)
        self._tasks: set[asyncio.Task[None]] = set()
        self._poll_at = 0.0
        self._poll_cost_s = 0.0
        self._sweep_at = 0.0
        self._stopping = False
        self._claims_over = asyncio.Event()
        self._claims_over.set()

    async def run(self) -> None:
        """Post until `drain`; retry while the database is unavailable."""
        self._claims_over.clear()
        service_time.on_step(self._look_now)
        try:
            await self._rounds()
        finally:
            self._claims_over.set()

    def _look_now(self) -> None:
        self._poll_at = 0.0
        self._wake.set()

    async def _rounds(self) -> None:
        while not self._stopping:
            try:
                wait_s = await self._round()
            except DatabaseUnavailable as error:
                _log.warning("database unavailable, posting paused", error=repr(error))
                wait_s = DATABASE_RETRY_S
            except Exception:  # noqa: BLE001 - process loop: one failed round must not end the posting
                _log.exception("posting round failed")
                wait_s = DATABASE_RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            self._wake.clear()
            self._poll_at = min(self._poll_at, asyncio.get_running_loop().time() + PACE.interval(POLL_S))
            await asyncio.sleep(MIN_CLAIM_S)

    async def drain(self, grace_s: float) -> None:
        """Stop claiming, release posts not started, and give running ones up to `grace_s` to be recorded."""
        self._stopping = True
        self._wake.set()
        with suppress(DatabaseUnavailable, TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._claims_over.wait()
                await self._release([endpoint for endpoint in self._shares.endpoints.values() if endpoint.waiting])
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await self._records.idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- polling and claiming ----------------------------------------------------------------------

    async def _round(self) -> float:
        """Poll if it is time, claim what there is room for; return the seconds until the next round."""
        now = clock.monotonic()
        if now >= self._poll_at:
            began = time.monotonic()
            busy = await self._poll(now)
            self._poll_cost_s += (time.monotonic() - began - self._poll_cost_s) / 8  # moving average
            pause_s = min(MAX_POLL_PAUSE_S, self._poll_cost_s / POLL_SHARE)
            self._poll_at = now + max(BUSY_POLL_S if busy else PACE.interval(POLL_S), pause_s)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            await self._sweep(now)
        rooms = self._shares.next_rooms(now, max_endpoints=MAX_ENDPOINTS, max_posts=MAX_POSTS)
        if rooms:
            await self._claim(rooms)
            if self._shares.unserved:
                return 0.0
        return max(0.0, self._poll_at - clock.monotonic())

    async def _poll(self, now: float) -> bool:
        """Note the endpoints with due posts; return True if one of them is no suspect."""
        rows = await store.DUE.fetch(self._pool)
        busy = False
        for row in rows:
            endpoint = self._shares.known(row.webhook_id, now)
            self._shares.has_due(endpoint)
            busy = busy or not endpoint.suspect
        oldest = min((row.due_at for row in rows), default=None)
        metrics.WEBHOOKS_DUE.set(len(rows))
        metrics.WEBHOOK_AGE.set(0.0 if oldest is None else max(0.0, (clock.now() - oldest).total_seconds()))
        metrics.WEBHOOKS_IN_FLIGHT.set(len(self._tasks))
        return busy

    async def _claim(self, rooms: dict[UUID, int]) -> None:
        posts = await store.claim(self._pool, rooms, self._lease_s)
        now = clock.monotonic()
        self._shares.claimed(rooms, Counter(post.webhook_id for post in posts))
        for post in posts:
            endpoint = self._shares.known(post.webhook_id, now)
            endpoint.moved_to(post.url)
            endpoint.used_at = now
            endpoint.waiting.append((post, now))
            if endpoint.in_flight < self._shares.each:
                self._begin(endpoint)

    async def _sweep(self, now: float) -> None:
        """End posts due for over a day to endpoints that have not answered for an hour.

        Such an endpoint is never disabled and gets one post at a time, so its queue would grow without bound.
        """
        self._shares.forget(now - FORGET_S)
        hopeless = [
            one.id
            for one in self._shares.endpoints.values()
            if one.due and one.failing_since is not None and now - one.failing_since > HOPELESS_S
        ]
        if hopeless:
            why = "given up: the endpoint has not responded, and the post was due for more than a day"
            ended = await store.give_up(self._pool, hopeless, clock.now() - STALE, max_each=SWEPT_EACH, why=why)
            metrics.WEBHOOK_POSTS.labels("given_up").inc(ended)

    async def _release(self, endpoints: Sequence[EndpointPace]) -> None:
        """Make claimed posts that were not started due again."""
        posts = [post for endpoint in endpoints for post, _ in endpoint.waiting]
        for endpoint in endpoints:
            endpoint.waiting.clear()
        if posts:
            await store.release(self._pool, posts)

    # -- posting -----------------------------------------------------------------------------------

    def _begin(self, endpoint: EndpointPace) -> None:
        endpoint.in_flight += 1
        task = asyncio.create_task(self._serve(endpoint))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, endpoint: EndpointPace) -> None:
        """Make the posts that wait for this endpoint, one after the other, until none is left."""
        try:
            while endpoint.waiting:
                post, claimed_at = endpoint.waiting.popleft()
                if clock.monotonic() - claimed_at > self._lease_s - self._timeout_s - LEASE_EXTRA_S / 4:
                    continue  # the lease could end during the post: leave it to the next claim
                await self._make(endpoint, post)
                if endpoint.waiting and not endpoint.proven:
                    with suppress(DatabaseUnavailable):
                        await self._release([endpoint])
        finally:
            endpoint.in_flight -= 1
            if self._shares.ended(endpoint, clock.monotonic()):
                self._wake.set()

    async def _make(self, endpoint: EndpointPace, post: Claimed) -> None:
        started_at, began = clock.now(), time.monotonic()
        if post.url is None or post.payload is None:
            self._enqueue(_ended(post, started_at))
            return
        sent, traced = SentPost(), PostTrace.of(post.payload)
        try:
            answer, sent = await self._post(post, traced)
            verdict = judged(answer)
        except Exception:  # noqa: BLE001 - process loop: record it, or it would be retried forever
            _log.exception("post failed", webhook=str(post.webhook_id), event_id=str(post.event_id))
            verdict = PostVerdict(delivered=False, status=None, answer=None, error="the post could not be made")
        took_s, now = time.monotonic() - began, clock.monotonic()
        endpoint.answered(delivered=verdict.delivered, took_s=took_s, now=now)
        milliseconds = round(took_s * 1000)
        self._enqueue(recorded(post, verdict, started_at, milliseconds, self._schedule, jitter=self._rng(), sent=sent))
        if traced is not None:
            traced.ended(post, started_at, status=verdict.status, delivered=verdict.delivered)
        if self._shares.ended(endpoint, now):
            self._wake.set()

    async def _post(self, post: Claimed, traced: PostTrace | None) -> tuple[HttpReply | HttpFailure, SentPost]:
        assert post.url is not None
        assert post.payload is not None
        assert post.occurred_at is not None
        assert post.sealed_secret is not None
        payload = post.payload
        if self._received_bodies is not None and payload.startswith(rules.RECEIVED):
            payload = await self._received_bodies.completed(post.account_id, payload)
        body = rules.body(post.event_id, post.seq, post.occurred_at, payload, tags=post.tags, metadata=post.metadata)
        try:
            secret = self._secret(post.webhook_id, post.sealed_secret)
            previous = None if post.sealed_previous is None else self._secret(post.webhook_id, post.sealed_previous)
            own_headers = post_options.opened(post.sealed_headers, self._headers_key, post.webhook_id)
        except Unsealable:
            why = "the signing secret or a header can't be unsealed: WAYBILL_KEY_PEPPER has changed since it was stored"
            return HttpFailure("sign", why), SentPost()
        headers = rules.headers(
            body,
            event_id=post.event_id,
            attempt=post.attempt,
            secret=secret,
            previous=previous,
            at_s=int(clock.machine_now().timestamp()),  # receivers compare it with their own clock
            signs_standard=post.signs_standard,
        )
        try:
            url = _url(post.url)
        except ValueError:
            return HttpFailure("url", "the URL is invalid; change the endpoint's URL"), SentPost()
        sent = SentPost(
            post.url,
            headers[rules.SIGNATURE],
            headers.get(rules.SIGNATURE_PREVIOUS),
            headers.get(standard.SIGNATURE),
        )
        answer = await self._client.post(
            url,
            body,
            post_options.merged(own_headers, headers if traced is None else headers | traced.headers),
            timeout_s=self._timeout_s,
            max_bytes=rules.MAX_ANSWER_BYTES,
            max_header_chars=rules.MAX_ANSWER_HEADERS,
        )
        return answer, sent

    def _secret(self, webhook: UUID, sealed: bytes) -> str:
        secret = self._secrets.get((webhook, sealed))
        if secret is None:
            secret = secrets.unseal(self._key, sealed, webhook.bytes).decode()
            if len(self._secrets) >= _MAX_SECRETS:
                self._secrets.clear()
            self._secrets[webhook, sealed] = secret
        return secret

    # -- recording ---------------------------------------------------------------------------------

    def _enqueue(self, record: Recorded) -> None:
        self._records.enqueue(record).add_done_callback(_log_unrecorded)

    async def _flush(self, batch: Sequence[Recorded]) -> list[bool | Exception]:
        started = asyncio.get_running_loop().time()
        while True:
            try:
                moved = await store.record(self._pool, batch)
            except BadData:
                if len(batch) > 1 or batch[0].answer is None:
                    raise
                batch = [
                    structs.replace(batch[0], answer=None, answer_headers=None, error="the response can't be stored")
                ]
            except DatabaseUnavailable as error:
                _log.warning("database unavailable, posts not recorded yet", error=repr(error), posts=len(batch))
                await asyncio.sleep(DATABASE_RETRY_S)
            else:
                break
        for result, count in Counter(_result(one) for one in batch).items():
            metrics.WEBHOOK_POSTS.labels(result).inc(count)
        self._on_record(len(batch), asyncio.get_running_loop().time() - started)
        return [one.id in moved for one in batch]


def judged(answer: HttpReply | HttpFailure) -> PostVerdict:
    """Return the meaning of an answer: any 2xx delivers, anything else is a failure with its reason. Pure."""
    if isinstance(answer, HttpFailure):
        return PostVerdict(delivered=False, status=answer.status, answer=None, error=answer.text)
    text, headers = rules.shown(answer.body), answer.headers.replace("\0", "\ufffd")
    if 200 <= answer.status < 300:
        return PostVerdict(delivered=True, status=answer.status, answer=text, error=None, answer_headers=headers)
    reason = f"responded with {answer.status}"
    if 300 <= answer.status < 400:
        reason += ": redirects are not followed"
    return PostVerdict(
        delivered=False,
        status=answer.status,
        answer=text,
        error=reason,
        answer_headers=headers,
        retry_after=answer.retry_after,
    )


def recorded(
    post: Claimed,
    verdict: PostVerdict,
    started_at: datetime,
    milliseconds: int,
    schedule: RetrySchedule,
    *,
    jitter: float,
    sent: SentPost | None = None,
) -> Recorded:
    """Return the record of one attempt. Pure except for its new id."""
    made = post.attempt - post.ladder_from
    request = sent or SentPost()
    scheduled_s = None if verdict.delivered else rules.wait_after(verdict.status, made, schedule, jitter=jitter)
    later = None if scheduled_s is None else _next_attempt(post, verdict, scheduled_s, schedule)
    return Recorded(
        post=post,
        id=ids.uuid7(),
        started_at=started_at,
        milliseconds=milliseconds,
        delivered=verdict.delivered,
        status_code=verdict.status,
        answer=verdict.answer,
        error=verdict.error,
        wait_s=None if later is None else later.wait_s,
        url=request.url,
        signature=request.signature,
        signature_previous=request.signature_previous,
        signature_standard=request.signature_standard,
        late_s=None if later is None else later.late_s or None,
        answer_headers=verdict.answer_headers,
    )


def _next_attempt(
    post: Claimed, verdict: PostVerdict, scheduled_s: float, schedule: RetrySchedule
) -> retry_after.NextAttempt:
    """Return the next attempt: as scheduled, or as the answer asks if the endpoint honors that."""
    asked_s = 0.0
    if post.honors_retry_after and verdict.status is not None:
        asked_s = retry_after.seconds(verdict.status, verdict.retry_after, clock.machine_now())
    made = post.attempt - post.ladder_from
    return retry_after.postponed(scheduled_s, made, schedule, asked_s=asked_s, late_s=post.late_s)


def _ended(post: Claimed, at: datetime) -> Recorded:
    """Return the record that ends a post whose event was purged or whose endpoint was removed."""
    why = "the event is no longer stored" if post.payload is None else "the endpoint was removed"
    return Recorded(post, ids.uuid7(), at, None, False, None, None, why, None)  # noqa: FBT003 - a field


def _result(one: Recorded) -> str:
    if one.delivered:
        return "delivered"
    return "failed" if one.wait_s is None else "retried"


def _log_unrecorded(future: "asyncio.Future[bool]") -> None:
    """Log a record that could not be written; the post becomes due again when its lease ends."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("post not recorded", error=repr(error))


@lru_cache(maxsize=4_096)
def _url(text: str) -> yarl.URL:
    return rules.target(text)
