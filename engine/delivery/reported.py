"""Classify what a delivery report says of a recipient, by the rules of live replies (`outcome.py`)."""

import re
from typing import Final

from msgspec import structs

from engine.delivery.outcome import Category, Outcome, Scope, Verdict, classify
from engine.delivery.reply_rules import RECIPIENTS, words_of
from engine.mail.delivery_status import Action, RecipientReport
from engine.mail.replies import Answer, Phase, Reply

# Codes for reports that quote no SMTP reply: at BODY they mean nothing by themselves, so only words and enhanced
# status decide.
_FAILED_CODE: Final = 554
_DELAYED_CODE: Final = 451
# Titles of bounces: no server says so in a reply, but the words would mean an unknown address there.
_TITLE = re.compile(r"\b(?:undeliver\w*|unzustellbar\w*|onbestelbaar|non remis|not deliverable)\b", re.IGNORECASE).sub
_CLOSING: Final = 421  # classified by the session's rules; a report has no session


def outcome_of(report: RecipientReport) -> Outcome:
    """Return the outcome that a report stands for; never raises.

    A recipient that failed has bounced, whatever digit the status begins with; only a permanent reply suppresses. One
    that was relayed or expanded counts as delivered.
    """
    if report.action not in {Action.FAILED, Action.DELAYED}:
        return _accepted(report)
    failed = report.action is Action.FAILED
    found = structs.replace(
        classify(Answer(_phase(report), _reply(report)), alone=True),
        smtp_code=report.reply_code, enhanced_code=report.status, diagnostic=_line(report),
    )  # fmt: skip
    if failed and found.verdict is not Verdict.BOUNCED:
        return structs.replace(found, verdict=Verdict.BOUNCED, suppress=False)
    if not failed:
        return structs.replace(found, verdict=Verdict.DEFERRED, suppress=False)
    return found


def _line(report: RecipientReport) -> str:
    """Return the reply as one line, as the report quotes it."""
    code = "" if report.reply_code is None else f"{report.reply_code} "
    shown = report.status is None or report.status in report.diagnostic
    return f"{code}{report.diagnostic}" if shown else f"{code}{report.status} {report.diagnostic}".rstrip()


def _accepted(report: RecipientReport) -> Outcome:
    return Outcome(
        verdict=Verdict.DELIVERED, scope=Scope.RECIPIENT, category=Category.ACCEPTED, suppress=False,
        smtp_code=report.reply_code, enhanced_code=report.status, diagnostic=_line(report),
    )  # fmt: skip


def _reply(report: RecipientReport) -> Reply:
    """Return the SMTP reply that a report quotes, or one with its words.

    Without a quoted reply the class of the status decides between a permanent and a temporary failure.
    """
    code, status = report.reply_code, report.status
    text = report.diagnostic.partition(" (in reply to ")[0]
    if code is None or code // 100 not in {4, 5}:
        permanent = status is None or not status.startswith("4")
        code = _FAILED_CODE if permanent and report.action is Action.FAILED else _DELAYED_CODE
        text = _TITLE(" ", text)
        if status is not None and status[1:4] == ".4." and not _names_no_domain(text):
            text = ""  # the words are the reporter's own, about the network
    if code == _CLOSING:
        code = _DELAYED_CODE
    if status is not None and status[0] != str(code)[0]:
        status = None if status.endswith(".0.0") else f"{str(code)[0]}{status[1:]}"
    return Reply(code, text, status)


def _names_no_domain(text: str) -> bool:
    """Return True if a relay says that the domain does not exist: Postfix does so with 5.4.4."""
    found = RECIPIENTS.first(words_of(text), None)
    return found is not None and found.category is Category.DNS


def _phase(report: RecipientReport) -> Phase:
    """Return the phase of a quoted reply.

    It is BODY, where a bare reply is about the message, if the report names none or quotes no reply.
    """
    quoted = report.reply_code is not None and report.reply_code // 100 in {4, 5}
    return report.phase if quoted and report.phase is not None else Phase.BODY
