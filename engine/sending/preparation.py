"""Read and check send requests and compose their messages: what is done before a message is stored.

key restrictions → sender domain verified → stream exists → shape and times → template rendered → recipients, headers,
attachments → MIME composed. Nothing is stored; only tables of domains, streams and templates are read, through caches.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
from msgspec import Struct, structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, invalid, unavailable
from engine.base.events import SEALED_SOURCES
from engine.base.secrets import derived
from engine.base.settings import Settings
from engine.mail import unsubscribe_links
from engine.mail.address import Mailbox
from engine.mail.feedback_headers import cfbl_fields, cfbl_key
from engine.mail.submitted import with_crlf
from engine.people.api_keys.rules import KeyRestrictions
from engine.sending import auto_unsubscribe
from engine.sending.domains import store as domains
from engine.sending.emails import rules, submitted
from engine.sending.emails.defaults import stream_of
from engine.sending.emails.recipients import sender_of
from engine.sending.emails.request_digest import request_digest
from engine.sending.emails.submitted import Submitted
from engine.sending.emails.timing import timing_of
from engine.sending.emails.types import (
    BroadcastCopy,
    Checked,
    Content,
    MessageFacts,
    Prepared,
    RefusedRequest,
    SendRequest,
    Timing,
)
from engine.sending.emails.unsubscribe import AUTO_UNSUBSCRIBE
from engine.sending.streams import store as streams
from engine.sending.templates import rules as template_rules
from engine.sending.templates.store import TemplateCache
from engine.store.caches import Cache
from engine.store.database_errors import DatabaseUnavailable
from engine.store.large_mail import run_sized
from engine.store.traces import TRACES

MAX_BUSY_S = 0.001  # of composing, after which a batch yields to other requests

Value = TypeVar("Value")
Composer = Callable[[SendRequest, Content, BroadcastCopy | None, UUID], Prepared]


class Origin(Struct, frozen=True):
    """The account, source and restrictions of a send request."""

    account_id: UUID
    source: str  # `api`, `smtp` or `system`
    reach: KeyRestrictions | None = None  # None for a key without restrictions, and for people
    resent_from: UUID | None = None  # the message whose content is resent
    answers: UUID | None = None  # the received message that this one answers
    traceparent: str | None = None  # as engine.base.trace_context keeps it; None: the service may begin a trace


class SenderDefaults(Struct, frozen=True):
    """The settings that a message inherits from its sending domain and its stream."""

    return_path_host: str | None  # of the domain's own
    content_hours: int | None  # of the stream, see `Prepared.content_hours`


class Preparer:
    """Checks and composes the messages of one process."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._feedback_key = None if settings.key_pepper is None else derived(settings.pepper, "feedback id")
        self._cfbl_key = None if settings.key_pepper is None else cfbl_key(settings.pepper)
        self._links = unsubscribe_links.links_of(settings)
        self.domains: Cache[UUID, dict[str, str | None]] = Cache("domains", self._load_domains, by_account=True)
        self.streams: Cache[UUID, dict[str, int | None]] = Cache("streams", self._load_streams, by_account=True)
        self.templates = TemplateCache(pool)

    @property
    def caches(self) -> tuple[Cache[Any, Any], ...]:
        """Return the caches that the process must keep current (engine.store.caches.Stamps)."""
        return self.domains, self.streams, self.templates.latest

    @property
    def max_request_bytes(self) -> int:
        """Return the limit of all messages of one request together, composed."""
        return self._settings.max_request_bytes

    async def prepare(self, request: SendRequest | Submitted, origin: Origin) -> Prepared:
        """Check and compose one message; raise the Refusal of the first failed check, or `unavailable`."""
        checked = await self.check(request, origin)
        if isinstance(checked, RefusedRequest):
            raise checked.refusal
        return checked

    async def check(self, request: SendRequest | Submitted, origin: Origin) -> Checked:
        """Check and compose one message, for `Acceptor.accept`; raise `unavailable` without the database."""
        return await self._checked(request, origin, set())

    async def check_all(self, requests: Sequence[SendRequest | Submitted | Refusal], origin: Origin) -> list[Checked]:
        """Compose or refuse each message, within a total size: templates make large messages of small requests.

        A Refusal is returned in its place. Raises `unavailable` without the database.
        """
        checked: list[Checked] = []
        composed = 0
        reread: set[str] = set()
        began = time.monotonic()
        for request in requests:
            if time.monotonic() - began > MAX_BUSY_S:
                await asyncio.sleep(0)  # let other requests run
                began = time.monotonic()
            if isinstance(request, Refusal):
                checked.append(RefusedRequest(origin.account_id, request))
                continue
            one = await self._checked(request, origin, reread)
            if isinstance(one, Prepared):
                if composed + len(one.mime) > self.max_request_bytes:
                    one = _refused(one, batch_too_large(self.max_request_bytes))
                else:
                    composed += len(one.mime)
            checked.append(one)
        return checked

    async def composer(self, origin: Origin, sender: Mailbox, stream: str) -> Composer:
        """Return a function that composes messages of one sender and stream: from a request, its content, the broadcast
        and contact that it is for, and the id of the message.

        Raises the Refusal if the account may not send from this domain or on this stream.
        """
        known = await self._checked_origin(origin, sender.domain, stream, set())

        def composed(request: SendRequest, content: Content, copy: BroadcastCopy | None, message: UUID) -> Prepared:
            facts = self._facts(origin, known, clock.now(), message, copy)
            return rules.prepare(request, sender, content, Timing(), facts)

        return composed

    async def checked_facts(self, origin: Origin, domain: str, stream: str, reread: set[str]) -> MessageFacts:
        """Return the facts of a message of this domain and stream; raise a Refusal if the key or the account forbids
        them, or DatabaseUnavailable.
        """
        return self._facts(origin, await self._checked_origin(origin, domain, stream, reread), clock.now())

    async def _checked(self, request: SendRequest | Submitted, origin: Origin, reread: set[str]) -> Checked:
        try:
            if isinstance(request, Submitted):
                made = await self._prepare_submitted(request, origin, reread)
            else:
                made = await self._prepare(request, origin, reread)
            if origin.reach is not None:
                origin.reach.check_recipients(one.canonical for one in made.recipients)
            return made  # noqa: TRY300 - its refusals are those of the request
        except Refusal as refusal:
            digest = await _digest_of(request)
            return RefusedRequest(origin.account_id, refusal, request.idempotency_key, digest)
        except (DatabaseUnavailable, OSError) as error:
            raise unavailable() from error

    async def _prepare_submitted(self, message: Submitted, origin: Origin, reread: set[str]) -> Prepared:
        known = await self._checked_origin(origin, message.sender.domain, message.stream, reread)
        at = clock.now()
        give_up_s = self._settings.give_up_s
        timing = timing_of(message.scheduled_at, message.deliver_by, at, give_up_s=give_up_s)
        facts = self._facts(origin, known, at)
        if message.mail.traceparent is not None:
            facts = structs.replace(facts, traceparent=message.mail.traceparent)
        return await run_sized(message.size_bytes, partial(submitted.prepare, message, timing, facts))

    async def _prepare(self, request: SendRequest, origin: Origin, reread: set[str]) -> Prepared:
        sender = sender_of(request)
        known = await self._checked_origin(origin, sender.domain, stream_of(request), reread)
        rules.check_shape(request)
        at = clock.now()
        timing = timing_of(request.scheduled_at, request.deliver_by, at, give_up_s=self._settings.give_up_s)
        content = await self._content(request, origin)
        size_bytes = rules.composing_bytes(request)
        if content.template is not None:
            size_bytes += len(content.text or "") + len(content.html or "")
            size_bytes += sum(len(file.content) for file in content.files)
        facts = auto_unsubscribe.with_own_link(self._facts(origin, known, at), request, self._links)
        return await run_sized(size_bytes, partial(rules.prepare, request, sender, content, timing, facts))

    async def _checked_origin(self, origin: Origin, domain: str, stream: str, reread: set[str]) -> SenderDefaults:
        """Return the facts of domain and stream; raise a Refusal if the key or the account forbids one of them.

        A refusal is decided on the tables, not on the cache, so that a domain verified or a stream created in another
        process is usable at once. `reread` bounds this to one read of each table per request, however many messages it
        has.
        """
        if origin.reach is not None:
            origin.reach.check(domain, stream)
        account = origin.account_id
        if not await _fits_cached(self.domains, account, lambda known: domain in known, reread):
            raise Refusal(
                ErrorType.DOMAIN_NOT_VERIFIED,
                f"{domain} isn't a verified domain of your account. Add and verify it first.",
                domain=domain,
            )
        if not await _fits_cached(self.streams, account, lambda known: stream in known, reread):
            raise invalid("stream", f"Your account has no stream named {stream!r}. Create it with POST /v1/streams.")
        host = (await self.domains.get(account)).get(domain)
        return SenderDefaults(host, (await self.streams.get(account)).get(stream))

    async def _content(self, request: SendRequest, origin: Origin) -> Content:
        if request.template is None:
            return rules.content_of(request)
        version = await self.templates.get(origin.account_id, request.template, request.template_version)
        if version is None:
            raise template_rules.unknown(request.template, request.template_version)
        template_rules.check_sendable(version)
        values = request.variables or {}
        if request.list_unsubscribe == AUTO_UNSUBSCRIBE:
            values = {**values, unsubscribe_links.NAME: unsubscribe_links.PLACEHOLDER}
        if request.data:
            render = partial(template_rules.render_checked, version, values, request.data, subject=request.subject)
            rendered = await asyncio.to_thread(render)  # lists can take tens of milliseconds
        else:
            rendered = template_rules.render(version, values, subject=request.subject)
        return Content(rendered.subject, rendered.text, rendered.html, version.slug, version.version, version.files)

    def _facts(
        self,
        origin: Origin,
        known: SenderDefaults,
        at: datetime,
        message: UUID | None = None,
        copy: BroadcastCopy | None = None,
    ) -> MessageFacts:
        message_id, host = message or ids.uuid7(), known.return_path_host
        return MessageFacts(
            account_id=origin.account_id,
            message_id=message_id,
            source=origin.source,
            at=at,
            max_bytes=self._settings.max_message_bytes,
            feedback_key=self._feedback_key,
            cfbl=cfbl_fields(self._cfbl_key, message_id, host) if host and self._cfbl_key else "",
            resent_from=origin.resent_from,
            answers=origin.answers,
            traceparent=origin.traceparent or TRACES.begin(message_id),
            copy=copy,
            # Codes and system mail are encrypted and deleted in any case, by engine.sending.sealing.
            stream_content_hours=None if origin.source in SEALED_SOURCES else known.content_hours,
        )

    async def _load_domains(self, account: UUID) -> dict[str, str | None]:
        """Return the verified domains of an account, each with its own return-path host."""
        known = await domains.NAMES.fetch(self._pool, account)
        return {row.name: row.return_path_host for row in known if row.status == "verified"}

    async def _load_streams(self, account: UUID) -> dict[str, int | None]:
        """Return the streams of an account, each with its hours of content."""
        return {row.slug: row.content_hours for row in await streams.LIST.fetch(self._pool, account)}


async def _fits_cached(
    cache: Cache[UUID, Value], account: UUID, fits: Callable[[Value], bool], reread: set[str]
) -> bool:
    """Return True if the cached value of the account fits; before returning False, read its table once per request."""
    if fits(await cache.get(account)):
        return True
    if cache.kind in reread:
        return False
    reread.add(cache.kind)
    return fits(await cache.anew(account))


def _refused(message: Prepared, refusal: Refusal) -> RefusedRequest:
    return RefusedRequest(message.account_id, refusal, message.idempotency_key, message.request_digest)


async def _digest_of(request: SendRequest | Submitted) -> bytes:
    """Return the digest of a refused request, b"" without a key."""
    if isinstance(request, Submitted):
        return request.request_digest
    if not request.idempotency_key:
        return b""
    return await run_sized(rules.composing_bytes(request), partial(request_digest, request))


async def read_message(
    octets: bytes, recipients: Sequence[Mailbox] | None, *, smtputf8: bool, host: str, protocol: str | None = None
) -> Submitted | SendRequest:
    """Read a message that its client composed, and its options, as `submitted.read` does.

    `protocol`: None for SMTP submission. By another one all lines may end in LF, as programs write files.
    """

    def work() -> Submitted | SendRequest:
        lines = octets if protocol is None else with_crlf(octets)
        return submitted.read(lines, recipients, smtputf8=smtputf8, host=host, protocol=protocol)

    return await run_sized(len(octets), work)


def batch_too_large(limit: int) -> Refusal:
    """Return the 413 of a message that takes its request over the limit of all its messages."""
    return Refusal(
        ErrorType.PAYLOAD_TOO_LARGE,
        f"The composed messages of this batch exceed {limit} bytes in total. Send this message in another request.",
        limit=limit,
    )
