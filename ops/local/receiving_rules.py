"""Apply the rules of the personalities to the mail that the local sink receives: the reply to each recipient, the reply
to the content, and the reports that follow.

Tries and due times are service time and are kept in the journal. The draw for a rule's `share` depends only on the
seed, the rule and the address.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct

from engine.authentication import judge
from engine.authentication.author import author_domain
from engine.authentication.canonicalization import CanonicalHeader, head_and_body
from engine.authentication.dmarc import is_within
from engine.authentication.dns import AuthenticationDns
from engine.authentication.judge import MessageOrigin
from engine.authentication.results import AuthenticationVerdicts
from engine.base import clock
from engine.mail.received_header import ReceivedHeader, read_header
from ops.local.personalities import TOP, Personalities, ReportKind, Rule, span
from ops.local.sink_journal import SinkJournal, Try

_JUDGED: Final = ("unauthenticated", "unaligned")
_OF_CONTENT: Final = (*_JUDGED, "too_large", "no_one_click")
# An https URL (RFC 8058 3.1); a local service has none, so the ones to this machine count as such.
_one_click_url = re.compile(rb"<https://|<http://(?:localhost|127\.0\.0\.1|\[::1\])[:/]", re.IGNORECASE).search
_one_click = re.compile(rb"\s*List-Unsubscribe\s*=\s*One-Click\s*", re.IGNORECASE).fullmatch
_signed_fields = re.compile(rb"(?:^|;)\s*h\s*=([^;]*)", re.IGNORECASE).search
_LOOPBACK_URL: Final = b"<http://"


class Visit(Struct, frozen=True):
    """The client, and the sender that it named; `declared` is the SIZE of MAIL, 0 without one."""

    client_ip: str
    helo: str
    sender: str
    declared: int = 0


_NO_VISIT: Final = Visit("", "", "")


class FollowingReport(Struct, frozen=True):
    """A report that follows a recipient's mail; `reporter` is the name of the server that sends it."""

    kind: ReportKind
    after_s: float
    reporter: str
    said: str | None


class _AppliedRule(Struct, frozen=True):
    """A rule that concerns an address: its place among all rules names it in keys."""

    place: str
    rule: Rule


class ReceivingRules:
    """The rules of a sink; lives as long as it. `dns` answers for the records of senders."""

    def __init__(self, personalities: Personalities, journal: SinkJournal, dns: AuthenticationDns, name: str) -> None:
        self._personalities = personalities
        self._journal = journal
        self._dns = dns
        self._name = name

    def name_a_mailbox(self, address: str) -> bool:
        """Return True if a rule is made for this very mailbox, so that no other behaviour of its name applies."""
        return any(one.rule.mailboxes for one in self._of(address))

    def at_recipient(self, visit: Visit, address: str) -> str | None:
        """Return the reply that refuses a recipient, None to accept it; counts the try."""
        for one in self._of(address):
            rule = one.rule
            if rule.reply is None or rule.check not in ("always", "too_large"):
                continue
            too_large = rule.max_bytes is not None and visit.declared > rule.max_bytes
            if too_large or (rule.check == "always" and self._holds(one, visit, address)):
                return _filled(rule.reply, visit, address)
        return None

    def read_content(self, recipients: Sequence[str]) -> bool:
        """Return True if the reply to the content depends on it."""
        return any(one.rule.check in _OF_CONTENT for address in recipients for one in self._of(address))

    async def at_content(self, visit: Visit, recipients: Sequence[str], content: bytes) -> str | None:
        """Return the reply that refuses a message, None to accept it."""
        header = read_header(content)
        verdicts: AuthenticationVerdicts | None = None
        for address in recipients:
            for one in self._of(address):
                rule = one.rule
                if rule.check in _JUDGED and verdicts is None:
                    origin = MessageOrigin(visit.client_ip, visit.helo, visit.sender, self._name)
                    verdicts = await judge.authenticate(content, origin, self._dns, at=_now_ms() // 1_000)
                if rule.reply is not None and _finds(rule, header, content, verdicts):
                    return _filled(rule.reply, visit, address)
        return None

    def report(self, address: str) -> FollowingReport | None:
        """Return the report that follows an accepted mail to this address, if one does."""
        for one in self._of(address):
            if one.rule.report is not None:
                after_s = span(one.rule.after).total_seconds()
                said = None if one.rule.said is None else _filled(one.rule.said, _NO_VISIT, address)
                return FollowingReport(one.rule.report, after_s, f"{one.place.partition('/')[0]}.{TOP}", said)
        return None

    def _of(self, address: str) -> Iterator[_AppliedRule]:
        """Yield the rules that hold for this address, in their order."""
        local, _, domain = address.rpartition("@")
        name = self._personalities.name_of(domain)
        if name is None:
            return
        plain = local.partition("+")[0].lower()
        for number, rule in enumerate(self._personalities.by_name[name].rules):
            place = f"{name}/{number}"
            if (not rule.mailboxes or plain in rule.mailboxes) and self._drawn(place, rule, address):
                yield _AppliedRule(place, rule)

    def _drawn(self, place: str, rule: Rule, address: str) -> bool:
        if rule.share >= 1:
            return True
        drawn = sha256(f"{self._personalities.seed}/{place}/{address.lower()}".encode()).digest()
        return int.from_bytes(drawn[:6], "big") / 2**48 < rule.share

    def _holds(self, one: _AppliedRule, visit: Visit, address: str) -> bool:
        """Record a try of a recipient; return True if a rule without further check refuses it now."""
        rule = one.rule
        if rule.lasts is None:
            return True
        key = f"{one.place}/{_key(rule, visit, address)}"
        now_ms, lasts_ms = _now_ms(), span(rule.lasts).total_seconds() * 1_000
        known = self._journal.find(key)
        if known is None or (rule.allow and now_ms - known.at_ms >= lasts_ms):
            known = Try(key, now_ms, 1)
            self._journal.record(known)
        elif rule.allow:
            known = Try(key, known.at_ms, known.count + 1)
            self._journal.record(known)
        return known.count > rule.allow and now_ms - known.at_ms < lasts_ms


def _key(rule: Rule, visit: Visit, address: str) -> str:
    match rule.per:
        case "recipient":
            return address.lower()
        case "client":
            return visit.client_ip
        case "triplet":
            return f"{visit.client_ip}/{_stable_sender(visit.sender)}/{address.lower()}"


def _stable_sender(sender: str) -> str:
    """Return a sender without the part that differs per message: greylisting has to recognise a return path."""
    local, at, domain = sender.lower().rpartition("@")
    return f"{local.partition('+')[0]}{at}{domain}"


def _finds(rule: Rule, header: ReceivedHeader, content: bytes, verdicts: AuthenticationVerdicts | None) -> bool:
    """Return True if the check of a rule finds the fault in a message."""
    match rule.check:
        case "too_large":
            return rule.max_bytes is not None and len(content) > rule.max_bytes
        case "no_one_click":
            return (bool(rule.mailboxes) or _is_bulk(header)) and not _has_one_click(header)
        case "unauthenticated":
            return verdicts is not None and not _may_pass(verdicts)
        case "unaligned":
            return verdicts is not None and not _is_aligned(content, verdicts)
        case "always":
            return False


def _may_pass(verdicts: AuthenticationVerdicts) -> bool:
    """Return True unless neither SPF nor DKIM passes. Fails open, because the local DNS server may be restarting."""
    return any(one.result in ("pass", "temperror") for one in (verdicts.spf, verdicts.dkim))


def _is_aligned(content: bytes, verdicts: AuthenticationVerdicts) -> bool:
    """Return True if DMARC passes or, without a record, SPF or DKIM passes for the domain of From. Fails open."""
    if verdicts.dmarc.result in ("pass", "temperror"):
        return True
    if verdicts.dmarc.result != "none":
        return False
    found = author_domain(CanonicalHeader(head_and_body(content)[0]))
    passed = [one.domain for one in (verdicts.spf, verdicts.dkim) if one.result == "pass" and one.domain is not None]
    return isinstance(found, str) and any(is_within(found, one) or is_within(one, found) for one in passed)


def _is_bulk(header: ReceivedHeader) -> bool:
    precedence = (header.first(b"precedence") or b"").strip().lower()
    marked = any(header.first(name) is not None for name in (b"list-id", b"list-unsubscribe"))
    return marked or precedence in (b"bulk", b"list")


def _has_one_click(header: ReceivedHeader) -> bool:
    """Return True if the message offers RFC 8058, and a signature covers both fields (section 4)."""
    url = header.first(b"list-unsubscribe") or b""
    if _one_click_url(url) is None:
        return False
    if _LOOPBACK_URL in url.lower():
        return True  # without https, the service writes no List-Unsubscribe-Post
    wanted = {b"list-unsubscribe", b"list-unsubscribe-post"}
    signed = [
        {name.strip().lower() for name in found[1].split(b":")}
        for value in header.by_name.get(b"dkim-signature", ())
        if (found := _signed_fields(value)) is not None
    ]
    offered = _one_click(header.first(b"list-unsubscribe-post") or b"") is not None
    return offered and any(wanted <= names for names in signed)


def _filled(reply: str, visit: Visit, address: str) -> str:
    places = {
        "{recipient}": address, "{domain}": visit.sender.rpartition("@")[2] or visit.helo, "{client}": visit.client_ip,
        "{helo}": visit.helo,
    }  # fmt: skip
    return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], reply)


def _now_ms() -> int:
    return clock.milliseconds(clock.now())
