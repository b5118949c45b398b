"""Judge a received message by SPF, DKIM, ARC and DMARC at once; the MX calls `authenticate`.

Failures of DNS end as `temperror` within the time budget, and so does a bug: authentication never loses mail.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Final, TypeVar

import structlog
from msgspec import Struct

from engine.authentication import arc_check as arc
from engine.authentication import author, dmarc, public_keys, spf
from engine.authentication import dkim_check as dkim
from engine.authentication.arc_check import ArcChain, ArcResult
from engine.authentication.author import NoAuthorDomain
from engine.authentication.canonicalization import HeaderTooLarge, SignedMessage
from engine.authentication.dkim_check import DkimResult, DkimSignature
from engine.authentication.dmarc import AuthenticatedDomains, DmarcResult, is_within
from engine.authentication.dns import AuthenticationDns, printable
from engine.authentication.public_keys import UnusableKey, VerificationKey
from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts
from engine.authentication.spf import SpfClient, SpfResult
from engine.store import large_mail
from engine.store.deadlines import within
from engine.store.resolver import ascii_domain

MAX_SECONDS: Final = 20.0  # of all look-ups for one message
MAX_INLINE: Final = 256 * 1024  # octets of a message that the event loop verifies itself, in about 1 ms
_KEYS_SHARE: Final = 0.45  # of the time, for one DKIM key; the rest of DKIM's part is for verifying
_DMARC_SHARE: Final = 0.4  # of the time, kept for DMARC, which needs the results of SPF and DKIM

# From the result that says most for a message to the one that says least.
_DKIM_ORDER: Final = ("pass", "temperror", "policy", "fail", "permerror", "neutral", "none")

T = TypeVar("T")
_log = structlog.get_logger("mx")


class MessageOrigin(Struct, frozen=True):
    """The origin of a message. `mail_from` is "" for the null sender; `receiver` is the name of this host."""

    client_ip: str
    helo: str
    mail_from: str
    receiver: str


async def authenticate(
    message: bytes, envelope: MessageOrigin, dns: AuthenticationDns, *, at: int, max_seconds: float = MAX_SECONDS
) -> AuthenticationVerdicts:
    """Return the verdicts on a message with CRLF line ends, after at most about `max_seconds`.

    `at`: Unix time in seconds. Raises nothing but CancelledError.
    """
    check = _MessageCheck(message, envelope, dns, at, keys_s=max_seconds * _KEYS_SHARE)
    early_s, late_s = max_seconds * (1 - _DMARC_SHARE), max_seconds * _DMARC_SHARE
    await check.prepare()
    if check.has_keys():  # tasks of their own would cost more than the checks
        signatures = await _within(early_s, check.dkim, check.dkim_failed)
        chain = await _within(early_s, check.arc, check.arc_failed)
        sender = await _within(early_s, check.spf, check.spf_failed)
        policy = await _within(late_s, lambda: check.dmarc(sender, signatures), check.dmarc_failed)
        return _verdicts(sender, signatures, policy, chain)
    async with asyncio.TaskGroup() as group:
        spf_task = group.create_task(_within(early_s, check.spf, check.spf_failed))
        arc_task = group.create_task(_within(max_seconds, check.arc, check.arc_failed))
        signatures = await _within(early_s, check.dkim, check.dkim_failed)
        sender = await spf_task
        policy = await _within(late_s, lambda: check.dmarc(sender, signatures), check.dmarc_failed)
        return _verdicts(sender, signatures, policy, await arc_task)


def _verdicts(
    sender: SpfResult, signatures: Sequence[DkimResult], policy: DmarcResult, chain: ArcResult
) -> AuthenticationVerdicts:
    return AuthenticationVerdicts(
        AuthenticationVerdict(sender.result, sender.domain or None, sender.detail),
        dkim_verdict(signatures, policy.domain),
        AuthenticationVerdict(policy.result, policy.domain or None, policy.detail),
        AuthenticationVerdict(chain.result, chain.domain or None, chain.detail),
        policy.policy,
    )


def dkim_verdict(results: Sequence[DkimResult], author_domain: str) -> AuthenticationVerdict:
    """Return the verdict of the signature that says most for the message, those of the author's domain first."""
    if not results:
        return AuthenticationVerdict("none", None, "the message has no signature")
    best = min(results, key=lambda one: (_DKIM_ORDER.index(one.result), not _related(one.domain, author_domain)))
    detail = best.detail or ("the signature is valid" if best.result == "pass" else "")
    others = [f"{one.domain or 'unknown'} {one.result}" for one in results if one is not best]
    return AuthenticationVerdict(
        best.result, best.domain or None, printable(f"{detail}; also {', '.join(others)}" if others else detail)
    )


class _MessageCheck:
    """The four checks of one message. `prepare` it first."""

    def __init__(
        self, message: bytes, envelope: MessageOrigin, dns: AuthenticationDns, at: int, *, keys_s: float
    ) -> None:
        self._octets = message
        self._envelope = envelope
        self._dns = dns
        self._at = at
        self._keys_s = keys_s
        self._message: SignedMessage | None = None
        self._author: str | NoAuthorDomain = NoAuthorDomain("the header can't be read")
        self._chain: ArcChain | ArcResult = ArcResult("temperror", "", "internal error")
        self._keys: dict[str, VerificationKey | UnusableKey] | None = None
        self._signatures: list[DkimSignature | DkimResult] = [DkimResult("temperror", "", "internal error")]

    async def prepare(self) -> None:
        """Split the header into fields, find the author domain, and parse the signatures; what fails stays unset."""
        try:
            await self._computed(self._parse)
        except HeaderTooLarge as error:
            self._author = NoAuthorDomain(str(error))
        except Exception:  # noqa: BLE001 - a bug must not lose mail
            _log.exception("header not read: internal error")

    def _parse(self) -> None:
        message = SignedMessage(self._octets)
        self._author = author.author_domain(message.header)
        self._message = message
        self._chain = arc.chain(message)
        self._signatures = dkim.signatures(message, self._author if isinstance(self._author, str) else "")

    def has_keys(self) -> bool:
        """Return True if DKIM and ARC of a small message can be verified without a wait, since all keys are known."""
        if len(self._octets) > MAX_INLINE:
            return False
        names = dkim.key_names(self._signatures)
        if isinstance(self._chain, ArcChain):
            names += arc.key_names(self._chain)
        self._keys = public_keys.known(self._dns, names)
        return self._keys is not None

    async def spf(self) -> SpfResult:
        """Evaluate SPF."""
        given = self._envelope
        client = SpfClient(ip_address(given.client_ip), given.mail_from, given.helo, given.receiver)
        return await spf.check_host(self._dns, client, at=self._at)

    def spf_failed(self, detail: str) -> SpfResult:
        """Return the result of an evaluation that did not end."""
        domain = self._envelope.mail_from.rpartition("@")[2] or self._envelope.helo
        return SpfResult("temperror", printable(ascii_domain(domain) or domain), detail)

    async def dkim(self) -> list[DkimResult]:
        """Verify the DKIM signatures."""
        message = self._message
        if message is None:
            return [DkimResult("permerror", "", "the header can't be read")]
        found = self._signatures
        if not found:
            return []
        keys = self._keys
        if keys is None:
            keys = await dkim.fetch_keys(self._dns, found, max_seconds=self._keys_s)
        return await self._computed(lambda: dkim.verify_all(message, found, keys, at=self._at))

    def dkim_failed(self, detail: str) -> list[DkimResult]:
        """Return the results of a verification that did not end, one per signature: DMARC needs their domains."""
        failed = [
            one if isinstance(one, DkimResult) else DkimResult("temperror", one.domain, detail)
            for one in self._signatures
        ]
        return failed or [DkimResult("temperror", "", detail)]

    async def arc(self) -> ArcResult:
        """Verify the ARC chain."""
        message = self._message
        if message is None:
            return ArcResult("fail", "", "the header can't be read")
        found = self._chain
        if isinstance(found, ArcResult):
            return found
        keys = self._keys
        if keys is None:
            keys = await arc.fetch_keys(self._dns, found)
        return await self._computed(lambda: arc.verify(message, found, keys, at=self._at))

    def arc_failed(self, detail: str) -> ArcResult:
        """Return the result of a verification that did not end."""
        return ArcResult("temperror", "", detail)

    async def dmarc(self, sender: SpfResult, signatures: Sequence[DkimResult]) -> DmarcResult:
        """Evaluate DMARC from the results of SPF and DKIM."""
        if isinstance(self._author, NoAuthorDomain):
            return DmarcResult("permerror", "", printable(self._author.detail))
        checks: tuple[SpfResult | DkimResult, ...] = (sender, *signatures)
        passed = AuthenticatedDomains(
            sender.domain if sender.result == "pass" else None,
            tuple([one.domain for one in signatures if one.result == "pass"]),
            tuple([one.domain for one in checks if one.result == "temperror"]),
        )
        return await dmarc.evaluate(self._dns, self._author, passed)

    def dmarc_failed(self, detail: str) -> DmarcResult:
        """Return the result of an evaluation that did not end."""
        return DmarcResult("temperror", self._author if isinstance(self._author, str) else "", detail)

    async def _computed(self, work: Callable[[], T]) -> T:
        """Return the result of pure work, done in a thread for a large message."""
        size = len(self._octets)
        return work() if size <= MAX_INLINE else await large_mail.in_thread(size, work)


async def _within(seconds: float, check: Callable[[], Awaitable[T]], failed: Callable[[str], T]) -> T:
    """Await a check within its time; a time-out or a bug becomes its result."""
    try:
        with within(seconds):
            return await check()
    except TimeoutError:
        return failed(f"no result within {seconds:g} s")
    except Exception:  # noqa: BLE001 - a bug must not lose mail
        _log.exception("message not authenticated: internal error")
        return failed("internal error")


def _related(domain: str, author_domain: str) -> bool:
    return is_within(domain, author_domain) or is_within(author_domain, domain)
