"""Compare a message and its sender with the requirements of mailbox providers for bulk senders. Pure.

Gmail: "Email sender guidelines", support.google.com/a/answer/81126 (from 5,000 emails a day to Gmail accounts). Yahoo:
senders.yahooinc.com/best-practices. Microsoft: "Outlook's New Requirements for High-Volume Senders",
techcommunity.microsoft.com (from 5 May 2025, 5,000 emails a day). Read in November 2026.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts
from engine.authentication.spam_rules import SPAM_THRESHOLD, spam_points
from engine.mail.received import ReceivedSummary

MAX_COMPLAINT_RATE: Final = 0.003  # Gmail and Yahoo: "below 0.3%"
MIN_SETTLED: Final = 50  # recipients; a rate of fewer is not significant
RATE_DAYS: Final = 30


class RequirementName(StrEnum):
    """Name a requirement of mailbox providers."""

    SPF = "spf"
    DKIM = "dkim"
    DMARC = "dmarc"
    ALIGNMENT = "alignment"
    ONE_CLICK = "one_click_unsubscribe"
    TLS = "tls"
    COMPLAINT_RATE = "complaint_rate"


_RESULTS: Final = {
    True: "pass",
    False: "none",
    None: "temperror",
}  # the words of RFC 8601; an unknown one scores nothing
_EVERYWHERE: Final = (RequirementName.SPF, RequirementName.DKIM, RequirementName.DMARC, RequirementName.ALIGNMENT)
PROVIDERS: Final = {
    "gmail": (*_EVERYWHERE, RequirementName.ONE_CLICK, RequirementName.TLS, RequirementName.COMPLAINT_RATE),
    "yahoo": (*_EVERYWHERE, RequirementName.ONE_CLICK, RequirementName.COMPLAINT_RATE),
    "microsoft": _EVERYWHERE,
}


class SpamReason(Struct, frozen=True):
    """A rule of the spam score that applies, with its points."""

    rule: str
    points: float


class SpamEstimate(Struct, frozen=True):
    """The score that the built-in spam rules of received mail give the message; spam from `threshold` on."""

    score: float
    threshold: float
    reasons: list[SpamReason]


class SenderRequirement(Struct, frozen=True):
    """A requirement of mailbox providers: whether it is met (null: unknown, or not needed), and why, in a sentence."""

    name: RequirementName
    met: bool | None
    detail: str


class ProviderCheck(Struct, frozen=True):
    """How many of a provider's requirements are met; those that are unknown or not needed are not counted."""

    provider: str
    met: int
    required: int
    missing: list[RequirementName]


class SendChecks(Struct, frozen=True):
    """The expected judgement of spam filters and mailbox providers about a message."""

    spam: SpamEstimate
    requirements: list[SenderRequirement]
    providers: list[ProviderCheck]


class SenderFacts(Struct, frozen=True, kw_only=True):
    """The records of a sender's domain and the rates of its account; None for a record that was never looked up."""

    domain: str
    is_verified: bool
    return_path: str  # the domain on which receivers check SPF
    has_spf: bool | None
    has_dmarc: bool | None
    settled: int
    complained: int


class OneClick(Struct, frozen=True):
    """The unsubscribe fields of a message's header, and whether its kind of mail needs them."""

    has_list_unsubscribe: bool
    has_post: bool
    needed: bool


def checked(sender: SenderFacts, one_click: OneClick, mail: ReceivedSummary) -> SendChecks:
    """Return the checks of a composed message."""
    requirements = list(_requirements(sender, one_click))
    return SendChecks(_spam(sender, mail), requirements, [_provider(name, requirements) for name in PROVIDERS])


def _spam(sender: SenderFacts, mail: ReceivedSummary) -> SpamEstimate:
    found = [SpamReason(rule, points) for rule, points in spam_points(_verdicts(sender), mail) if points]
    return SpamEstimate(max(0.0, round(sum(one.points for one in found), 2)), SPAM_THRESHOLD, found)


def _verdicts(sender: SenderFacts) -> AuthenticationVerdicts:
    """Return the verdicts that receivers will probably come to: mail is signed with the key of its From domain."""
    spf = AuthenticationVerdict(_RESULTS[sender.has_spf], sender.return_path)
    dkim = AuthenticationVerdict("pass" if sender.is_verified else "none", sender.domain)
    dmarc = AuthenticationVerdict(_RESULTS[sender.has_dmarc])
    if sender.has_dmarc:
        dmarc = AuthenticationVerdict("pass" if sender.is_verified else "fail", sender.domain)
    return AuthenticationVerdicts(spf, dkim, dmarc, AuthenticationVerdict("none"))


def _requirements(sender: SenderFacts, one_click: OneClick) -> Iterator[SenderRequirement]:
    domain = sender.domain
    spf = f"Receivers check SPF on {sender.return_path}, which allows this service."
    if sender.has_spf is None:
        spf = f"The SPF record of {sender.return_path} has not been looked up yet. Check the domain."
    elif not sender.has_spf:
        spf = f"No SPF record was found for {sender.return_path}, on which receivers check SPF. Tell the operator."
    yield SenderRequirement(RequirementName.SPF, sender.has_spf, spf)
    dkim = f"Emails are signed with the key of {domain}."
    if not sender.is_verified:
        dkim = f"{domain} is not verified. Publish its DKIM record."
    yield SenderRequirement(RequirementName.DKIM, sender.is_verified, dkim)
    dmarc = f"{domain} has a DMARC record."
    if sender.has_dmarc is None:
        dmarc = f"The DMARC record of {domain} has not been looked up yet. Check the domain."
    elif not sender.has_dmarc:
        dmarc = f"No DMARC record was found. Publish one at _dmarc.{domain}; `p=none` is enough."
    yield SenderRequirement(RequirementName.DMARC, sender.has_dmarc, dmarc)
    yield SenderRequirement(
        RequirementName.ALIGNMENT,
        sender.is_verified,
        f"The signature names {domain}, the domain of the From address." if sender.is_verified else dkim,
    )
    yield _one_click(one_click)
    yield SenderRequirement(RequirementName.TLS, True, "Emails are encrypted wherever the receiving server offers TLS.")  # noqa: FBT003 - a field
    yield _complaint_rate(sender)


def _one_click(found: OneClick) -> SenderRequirement:
    name = RequirementName.ONE_CLICK
    if found.has_list_unsubscribe and found.has_post:
        return SenderRequirement(name, True, "The header offers one-click unsubscribe (RFC 8058).")  # noqa: FBT003 - a field
    if not found.needed:
        return SenderRequirement(name, None, "Not needed for transactional email.")
    detail = "`List-Unsubscribe` is missing. Send with `listUnsubscribe` set to `auto`."
    if found.has_list_unsubscribe:
        detail = "`List-Unsubscribe-Post` is missing: one-click unsubscribing needs an https URL that takes a POST."
    return SenderRequirement(name, False, detail)  # noqa: FBT003 - a field


def _complaint_rate(sender: SenderFacts) -> SenderRequirement:
    name = RequirementName.COMPLAINT_RATE
    if sender.settled < MIN_SETTLED:
        return SenderRequirement(
            name, None, f"Fewer than {MIN_SETTLED} recipients in {RATE_DAYS} days: the complaint rate is not known yet."
        )
    rate = sender.complained / sender.settled
    detail = f"{rate:.2%} of recipients complained in {RATE_DAYS} days; it must stay below {MAX_COMPLAINT_RATE:.1%}."
    return SenderRequirement(name, rate < MAX_COMPLAINT_RATE, detail)


def _provider(name: str, requirements: Sequence[SenderRequirement]) -> ProviderCheck:
    counted = [one for one in requirements if one.name in PROVIDERS[name] and one.met is not None]
    missing = [one.name for one in counted if not one.met]
    return ProviderCheck(name, len(counted) - len(missing), len(counted), missing)
