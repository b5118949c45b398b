"""Makes envelopes from queue rows: signature, return path, recipients.

The signature is made once per message: a retry finds it in its row, the other domains of the same message in memory.
"""

import asyncio
from collections import OrderedDict
from functools import partial
from uuid import UUID

import asyncpg
import msgspec

from engine.authentication import dkim_signing as dkim
from engine.base import clock
from engine.base.settings import Settings
from engine.delivery import queue
from engine.delivery.queue import Row
from engine.delivery.sealed_mail import MailSealer
from engine.mail.return_path import key_of, return_path, shared_place
from engine.sending.domains import store as domains
from engine.sending.domains.types import SendingIdentity
from engine.store import large_mail
from engine.store.caches import Cache
from mta.outbound.delivery import ActiveDelivery
from mta.outbound.poison_guard import PoisonGuard
from mta.smtp.client.connection import Envelope

MAX_LARGE = 8  # bodies over queue.LARGE_BYTES in the memory of a process: at most 8 x 40 MiB
_KEPT_SIGNATURES = 1_000


class EnvelopeBuilder:
    """Signs and addresses messages for one process, with their keys in a cache."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, box: PoisonGuard | None = None) -> None:
        self.box = box or PoisonGuard()
        if settings.key_pepper is None:
            raise RuntimeError("delivery needs WAYBILL_KEY_PEPPER")
        self._pool = pool
        self._pepper = settings.pepper
        self.sealer = MailSealer(settings.pepper)
        self._path_key = key_of(settings.pepper)
        self._bounce_domain = f"bounces.{settings.mail_host}"
        self._recent: OrderedDict[UUID, bytes] = OrderedDict()
        self.large = asyncio.Semaphore(MAX_LARGE)
        self.identities: Cache[tuple[UUID, str], SendingIdentity] = Cache("domains", self._load, by_account=True)

    async def load_keys(self, delivery: ActiveDelivery) -> bool:
        """Load the signing keys for a delivery; return False if its domain has no key any more.

        A forwarded message is not signed and leaves under the service's bounce domain: under the customer's, a forged
        message in the customer's name would pass DMARC (ops/decisions/0051).
        """
        if not delivery.row.from_domain:
            delivery.keys, delivery.return_path_host = (), self._bounce_domain
            return True
        domain = (delivery.row.account_id, delivery.row.from_domain)
        identity = await self.identities.get(domain)
        if not identity.keys:  # which would end the message: an account that has just arrived may be cached without
            identity = await self.identities.anew(domain)
        delivery.keys = identity.keys
        delivery.return_path_host = identity.return_path_host or self._bounce_domain
        return bool(identity.keys)

    async def fetch_body(self, delivery: ActiveDelivery) -> None:
        """Load a large body into memory and sign it; the caller holds one of the `large` permits until it is sent."""
        with self.box.holding(delivery.row.message_id):
            mime = await queue.load_body(self._pool, delivery.row.message_id)
            if mime is None:
                raise LookupError("the message's body is gone")
            if delivery.row.forgets:
                message, key = delivery.row.message_id, delivery.row.content_key
                mime = await large_mail.in_thread(len(mime), partial(self.sealer.open_apart, message, mime, key))
            delivery.row = msgspec.structs.replace(delivery.row, mime=mime)
            if delivery.signature is None:  # in a thread: hashing 10 MB takes 10 ms
                delivery.signature = await large_mail.in_thread(len(mime), partial(self._signature, delivery))

    def envelope(self, delivery: ActiveDelivery) -> Envelope:
        """Return the envelope to send now; sign on first use (about 0.25 ms with RSA-2048)."""
        self.box.begin(delivery.row.message_id)
        try:
            return self._envelope(delivery)
        finally:
            self.box.end()

    def part(self, delivery: ActiveDelivery, addresses: tuple[str, ...]) -> Envelope:
        """Return an envelope for some of the recipients, where a site takes no more in one transaction."""
        self.box.begin(delivery.row.message_id)
        try:
            return self._address(delivery, addresses)
        finally:
            self.box.end()

    def _envelope(self, delivery: ActiveDelivery) -> Envelope:
        delivery.envelope = self._address(delivery, delivery.addresses)
        return delivery.envelope

    def _address(self, delivery: ActiveDelivery, addresses: tuple[str, ...]) -> Envelope:
        row = delivery.row
        if delivery.signature is None:
            delivery.signature = self._signature(delivery)
        first = next(place for place, address in delivery.pairs if address == addresses[0])
        place = first if len(addresses) == 1 else shared_place(first)
        return Envelope(
            return_path(self._path_key, row.message_id, place, delivery.return_path_host),
            addresses,
            (delivery.signature, _body(row)),
            eight_bit=not _body(row).isascii(),  # composed mail is 7-bit; mail submitted over SMTP need not be
            smtputf8=row.smtputf8,
        )

    def _signature(self, delivery: ActiveDelivery) -> bytes:
        row, keys = delivery.row, delivery.keys
        if not keys:
            return b""
        if row.total == len(delivery.pairs):
            return dkim.sign(_body(row), keys, at=clock.unix_s())
        known = self._recent.get(row.message_id)
        if known is None:
            known = self._recent[row.message_id] = dkim.sign(_body(row), keys, at=clock.unix_s())
            if len(self._recent) > _KEPT_SIGNATURES:
                self._recent.popitem(last=False)
        return known

    async def _load(self, key: tuple[UUID, str]) -> SendingIdentity:
        account, name = key
        return await domains.sending_identity(self._pool, account, name, pepper=self._pepper)


def _body(row: Row) -> bytes:
    if row.mime is None:
        raise RuntimeError("a large body must be fetched first")
    return row.mime
