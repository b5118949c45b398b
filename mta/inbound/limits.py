"""Slow down clients that try out addresses, and those that send much to addresses that no plan counts."""

import math
from collections.abc import Sequence
from typing import Final

from engine.base.settings import Settings
from engine.receiving.receive import MAX_UNCOUNTED_BYTES
from engine.receiving.receive_reports import MAILBOXES, UNCOUNTED
from engine.receiving.types import InboundRecipient, RecipientPurpose
from engine.store.rate_limits import RateLimiter
from mta.inbound.replies import MessageResult

MAX_UNKNOWN: Final = 10  # unknown recipients in a session; the last one is answered 421
MAX_UNKNOWN_HOURLY: Final = 100  # of one network (an IPv4 address or an IPv6 /64), in all processes together
REFILL_S: Final = 128.0  # until a network may send its bytes once more
MIN_COUNTED_BYTES: Final = 4 * 1024  # of a message to one such address: its row is stored, whatever its size
# Mail to `postmaster@` and `abuse@`, of each account that gets it, and of the operator.
POSTMASTER_MESSAGES_DAILY: Final = 1_000
POSTMASTER_BYTES_DAILY: Final = 64 * 1024 * 1024
# The share of one network in each such mailbox, so that no single one closes it for everybody.
POSTMASTER_MESSAGES_EACH: Final = 20
POSTMASTER_BYTES_EACH: Final = POSTMASTER_BYTES_DAILY // 20
_POSTMASTERS: Final = UNCOUNTED | {RecipientPurpose.OPERATOR}
_PER_S: Final = MAX_UNKNOWN_HOURLY / 3600
_DAY_S: Final = 86_400.0
_KIB: Final = 1024  # the unit in which bytes are counted


class UnknownRecipientLimit:
    """The count of unknown recipients per network, shared through Redis; while Redis is away each process counts."""

    def __init__(self, limits: RateLimiter) -> None:
        self._limits = limits

    async def is_exceeded(self, client: str, in_session: int) -> bool:
        """Count an unknown recipient, the `in_session`-th of its session; True if the client must leave."""
        found = await self._limits.check(f"mx:unknown:{client}", _PER_S, burst_s=(MAX_UNKNOWN_HOURLY - 1) / _PER_S)
        return in_session >= MAX_UNKNOWN or not found.allowed


class UnsolicitedMailLimit:
    """The bytes and messages to addresses that no plan counts: reports, `postmaster@`, `abuse@`; shared through Redis.

    Bytes count whether or not the token of a report address is genuine, so that a refusal tells nothing about it.
    """

    def __init__(self, limits: RateLimiter, settings: Settings) -> None:
        self._limits = limits
        self._each_kib = settings.mx_unsolicited_bytes_each // _KIB

    async def refusal(self, client: str, recipients: Sequence[InboundRecipient], size: int) -> MessageResult | None:
        """Count a message of `size` bytes from a network; return the result if it is refused for now, else None."""
        reports = [one for one in recipients if one.purpose not in MAILBOXES]
        owners = {one.account_id for one in recipients if one.purpose in _POSTMASTERS}
        if not reports and not owners:
            return None
        each = math.ceil(max(size, MIN_COUNTED_BYTES) / _KIB)
        # A message that alone exceeds the limit passes with a full bucket: it would never pass otherwise. Buckets hold
        # up to 1% less than its limit, because the time for a unit is rounded to microseconds.
        wanted = min(each * max(1, len(reports)), self._each_kib * 15 // 16)
        if not await self._take(f"mx:unsolicited:{client}", wanted, self._each_kib, REFILL_S):
            return MessageResult.NETWORK_LIMIT
        kept = math.ceil(min(max(size, MIN_COUNTED_BYTES), MAX_UNCOUNTED_BYTES) / _KIB)
        for owner in owners:
            name = f"mx:postmaster:{owner or 'operator'}"
            # The share of the network comes first: mail beyond it takes nothing from the mailbox.
            if not await self._take_mail(f"{name}:{client}", kept, POSTMASTER_MESSAGES_EACH, POSTMASTER_BYTES_EACH):
                return MessageResult.NETWORK_LIMIT
            if not await self._take_mail(name, kept, POSTMASTER_MESSAGES_DAILY, POSTMASTER_BYTES_DAILY):
                return MessageResult.POSTMASTER_LIMIT
        return None

    async def _take_mail(self, name: str, kib: int, messages_daily: int, bytes_daily: int) -> bool:
        """Take a message of `kib` KiB from daily buckets of messages and bytes; False if one of them has less."""
        return await self._take(f"{name}:messages", 1, messages_daily, _DAY_S) and await self._take(
            f"{name}:kib", kib, bytes_daily // _KIB, _DAY_S
        )

    async def _take(self, bucket: str, amount: int, limit: int, refill_s: float) -> bool:
        return await self._limits.take(bucket, amount, limit / refill_s, burst_s=refill_s)
