"""The outcome of each reply: scope, retry delay, and suppression of dead addresses."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery.outcome import Category, Outcome, Scope, Verdict, classify, detail
from engine.delivery.reply_rules import HINTS, RECIPIENTS, REFUSALS, ReplyRules, words_of
from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply

D, B = Verdict.DEFERRED, Verdict.BOUNCED
RECIPIENT, MESSAGE, SITE, SESSION = Scope.RECIPIENT, Scope.MESSAGE, Scope.SITE, Scope.SESSION

_LINE = re.compile(r"(\d{3})[ -](?:([245]\.\d{1,3}\.\d{1,3}) )?(.*)", re.DOTALL)


def reply(line: str) -> Reply:
    """A reply as it stands in a log, its enhanced status taken out of the first word as a session does."""
    match = _LINE.fullmatch(line)
    assert match is not None
    return Reply(int(match[1]), match[3], match[2])


def said(phase: Phase, line: str) -> Outcome:
    return classify(Answer(phase, reply(line)))


DEAD_ADDRESSES = [
    (
        "550-5.1.1 The email account that you tried to reach does not exist. Please try 5.1.1 double-checking "
        "the recipient's email address for typos. https://support.google.com/mail/?p=NoSuchUser x1-20si - gsmtp"
    ),
    (
        "550-5.2.1 The email account that you tried to reach is inactive. 5.2.1 For more information, go to "
        "https://support.google.com/mail/?p=DisabledUser - gsmtp"
    ),
    "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302). [MW2NAM10FT012.eop-nam10]",
    "550 5.4.1 Recipient address rejected: Access denied. AS(201806281) [DB5EUR03FT012.prod.outlook.com]",
    "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient ann@b.test not found by SMTP address lookup",
    "554 delivery error: dd This user doesn't have a yahoo.com account (ann@yahoo.com) [0] - mta1.yahoo.com",
    "552 1 Requested mail action aborted, mailbox not found - [ann@yahoo.com]",
    "554 30 Sorry, your message to ann@yahoo.com cannot be delivered. This mailbox is disabled (554.30).",
    "550 5.1.1 <ann@icloud.com>: user does not exist",
    "550 5.1.1 <ann@b.test>: Recipient address rejected: User unknown in virtual mailbox table",
    "550 5.1.1 <ann@b.test>... User unknown",
    "554 5.7.1 <ann@b.test>: Recipient address rejected: User unknown in relay recipient table",
    "550 #5.1.0 Address rejected.",
    "550 5.1.0 Address rejected. ann@cox.net",
    "550 Requested action not taken: mailbox unavailable",
    "550 No such user here",
    "550 Unknown user ann@b.test",
    "551 not our customer",
    "553 sorry, no mailbox here by that name (#5.7.1)",
    "501 5.1.3 Bad recipient address syntax",
    "550 Message was not accepted -- invalid mailbox. Local mailbox ann@mail.ru is unavailable: user not found",
    "550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550 [abc.uk1]",
    "550 Unrouteable address",
    "550 5.1.6 recipient no longer on server: ann@b.test",
    "556 5.1.10 Recipient address has a null MX",
    "551",
    "550 5.1.0",
    "550 5.1.1 Rejected",
    "550 5.1.1 <virus@b.test>: Recipient address rejected: User unknown",
    "550 5.1.1 <blacklist@spamhaus.org>... User unknown",
]

WE_ARE_REFUSED = [
    (("550 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using Spamhaus. To request removal "
     "from this list see https://www.spamhaus.org/query/ip/192.0.2.1 (AS16012611)"), Category.REPUTATION, SITE),
    ("554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org",
     Category.REPUTATION, SITE),
    ("550 5.2.1 Mailbox unavailable. Your IP address 192.0.2.1 is blacklisted using SPAMHAUS-XBL.",
     Category.REPUTATION, SITE),
    ("550 Email blocked by SPAMHAUS", Category.REPUTATION, SITE),
    (("550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service "
     "provider since part of their network is on our block list (S3150)."), Category.REPUTATION, SITE),
    ("550 5.7.606 Access denied, banned sending IP [192.0.2.1].", Category.REPUTATION, SITE),
    ("550 5.7.511 Access denied, banned sender[192.0.2.1].", Category.REPUTATION, SITE),
    ("553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1", Category.REPUTATION, SITE),
    ("553 5.3.0 flpd594 DNSBL:RBL 521< 192.0.2.1 >_is_blocked", Category.REPUTATION, SITE),
    (("550-5.7.26 Your email has been blocked because the sender is unauthenticated. 5.7.26 Gmail requires "
     "all senders to authenticate with either SPF or DKIM."), Category.AUTH, MESSAGE),
    ("550 5.7.26 Unauthenticated email from a.test is not accepted due to domain's 5.7.26 DMARC policy.",
     Category.AUTH, MESSAGE),
    ("550-5.7.25 The IP address sending this message does not have a PTR record setup", Category.AUTH, SITE),
    ("550 5.7.515 Access denied, sending domain a.test doesn't meet the required authentication level.",
     Category.AUTH, MESSAGE),
    (("550-5.7.1 [192.0.2.1      12] Our system has detected that this message is 5.7.1 likely unsolicited "
     "mail. To reduce the amount of spam sent to Gmail, 5.7.1 this message has been blocked."),
     Category.CONTENT, MESSAGE),
    ("550 5.7.1 [CS01] Message rejected due to local policy. Please visit https://support.apple.com/HT204137",
     Category.POLICY, MESSAGE),
    ("554 Message not allowed - [PH01] Email not accepted for policy reasons.", Category.POLICY, MESSAGE),
    ("554 5.7.1 <ann@b.test>: Relay access denied", Category.RELAYING, MESSAGE),
    ("550 5.7.1 Access denied", Category.POLICY, MESSAGE),
    ("550 5.7.0 Local Policy Violation", Category.POLICY, MESSAGE),
    ("550 Administrative prohibition", Category.POLICY, MESSAGE),
    ("530 5.7.0 Must issue a STARTTLS command first", Category.TLS, SITE),
    ("553 5.1.8 <b@a.test>... Domain of sender address b@a.test does not exist",
     Category.SENDER_REFUSED, MESSAGE),
    ("550 Too many invalid recipients", Category.RATE, SITE),
    (("550-5.2.1 The user you are trying to contact is receiving mail at a rate that 5.2.1 prevents "
     "additional messages from being delivered."), Category.RATE, RECIPIENT),
    ("553 5.6.7 Non-ASCII addresses not permitted", Category.SMTPUTF8, MESSAGE),
    ("552 5.3.4 Message size exceeds fixed limit", Category.SIZE, MESSAGE),
    ("502 5.5.1 Unrecognized command", Category.PROTOCOL, MESSAGE),
    ("552 5.2.2 <ann@b.test>: user's mailbox quota exceeded", Category.MAILBOX_FULL, RECIPIENT),
    ("552-5.2.2 The recipient's inbox is out of storage space and inactive.", Category.MAILBOX_FULL, RECIPIENT),
]  # fmt: skip

DEFERRED = [
    (("421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user "
     "complaints - 4.16.55.1"), Category.REPUTATION, SITE),
    ("421-4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your IP address.",
     Category.REPUTATION, SITE),
    ("451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation.",
     Category.REPUTATION, SITE),
    ("451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77714)", Category.RATE, SITE),
    ("421 RP-001 (BAY0-MC1-F1) Unfortunately, some messages from 192.0.2.1 weren't sent.",
     Category.RATE, SITE),
    ("450 4.2.0 <ann@b.test>: Recipient address rejected: Greylisted", Category.GREYLISTED, RECIPIENT),
    ("451 4.7.1 Greylisting in action, please come back later", Category.GREYLISTED, RECIPIENT),
    ("450-4.2.1 The user you are trying to contact is receiving mail too quickly.", Category.RATE, RECIPIENT),
    ("452-4.2.2 The recipient's inbox is out of storage space.", Category.MAILBOX_FULL, RECIPIENT),
    ("450 4.1.1 <ann@b.test>: Recipient address rejected: unverified address", Category.USER_UNKNOWN, RECIPIENT),
    ("452 4.5.3 Error: too many recipients", Category.RATE, SESSION),
    ("421 4.4.2 mx.b.test Error: timeout exceeded", Category.NETWORK, SESSION),
    ("421 Service not available, closing transmission channel", Category.UNAVAILABLE, SITE),
    ("452 4.3.1 Insufficient system storage", Category.SYSTEM, SITE),
    ("451 4.3.0 Temporary System Problem. Try again later", Category.SYSTEM, SITE),
    ("451 Local error in processing", Category.SYSTEM, RECIPIENT),
    ("450 4.7.1 Client host rejected: cannot find your reverse hostname, [192.0.2.1]", Category.AUTH, SITE),
    ("454 TLS not available due to temporary reason", Category.TLS, SITE),
]  # fmt: skip


@pytest.mark.parametrize("line", DEAD_ADDRESSES)
def test_permanent_refusal_of_the_recipient_suppresses(line: str) -> None:
    if " " not in line:
        line += " "
    outcome = said(Phase.RCPT, line)
    assert (outcome.verdict, outcome.scope, outcome.suppress) == (B, RECIPIENT, True), outcome


@pytest.mark.parametrize(("line", "category", "scope"), WE_ARE_REFUSED)
def test_permanent_refusal_of_us_never_suppresses(line: str, category: Category, scope: Scope) -> None:
    outcome = said(Phase.RCPT, line)
    assert (outcome.verdict, outcome.category, outcome.scope) == (B, category, scope)
    assert not outcome.suppress


@pytest.mark.parametrize(("line", "category", "scope"), DEFERRED)
def test_temporary_refusal_is_deferred_with_its_scope(line: str, category: Category, scope: Scope) -> None:
    outcome = said(Phase.RCPT, line)
    assert (outcome.verdict, outcome.category, outcome.scope) == (D, category, scope)
    assert not outcome.suppress


@pytest.mark.parametrize(
    ("phase", "line", "verdict", "category", "scope"),
    [
        (Phase.GREETING, "554 No SMTP service here", D, Category.REPUTATION, SITE),
        (Phase.GREETING, "521 mx.b.test does not accept mail", D, Category.UNAVAILABLE, SITE),
        (Phase.GREETING, "550 rejected", D, Category.UNAVAILABLE, SITE),
        (Phase.GREETING, "421 4.3.2 try later", D, Category.UNAVAILABLE, SITE),
        (Phase.EHLO, "550 Access denied - Invalid HELO name", B, Category.AUTH, SITE),
        (Phase.STARTTLS, "502 not implemented", D, Category.PROTOCOL, SITE),
        (Phase.MAIL, "550 rejected", B, Category.SENDER_REFUSED, MESSAGE),
        (Phase.MAIL, "550 5.1.0 sender rejected", B, Category.SENDER_REFUSED, MESSAGE),
        (Phase.MAIL, "552 too much", B, Category.SIZE, MESSAGE),
        (Phase.MAIL, "550 5.7.1 Client host [192.0.2.1] blocked using zen.spamhaus.org", B,
         Category.REPUTATION, SITE),
        (Phase.MAIL, "451 later", D, Category.SYSTEM, MESSAGE),
        (Phase.DATA, "554 no valid recipients", B, Category.POLICY, MESSAGE),
        (Phase.BODY, "554 Transaction failed", B, Category.POLICY, MESSAGE),
        (Phase.BODY, "554 5.7.1 Message rejected as spam", B, Category.CONTENT, MESSAGE),
        (Phase.BODY, "554 5.6.0 Invalid header", B, Category.CONTENT, MESSAGE),
        (Phase.BODY, "552 5.3.4 Message too big", B, Category.SIZE, MESSAGE),
        (Phase.BODY, "451 4.3.0 later", D, Category.SYSTEM, SITE),
        (Phase.BODY, "452 4.2.2 over quota", D, Category.MAILBOX_FULL, RECIPIENT),
        (Phase.RCPT, "250 out of place", D, Category.PROTOCOL, SESSION),
        (Phase.BODY, "354 go on", D, Category.PROTOCOL, SESSION),
    ],
)  # fmt: skip
def test_phase_decides_what_a_reply_can_be_about(
    phase: Phase, line: str, verdict: Verdict, category: Category, scope: Scope
) -> None:
    outcome = said(phase, line)
    assert (outcome.verdict, outcome.category, outcome.scope) == (verdict, category, scope)
    assert not outcome.suppress


def test_late_user_unknown_suppresses_only_the_recipient_that_stood_alone() -> None:
    answer = Answer(Phase.BODY, Reply(550, "5.1.1 User unknown", "5.1.1"))
    alone, shared = classify(answer), classify(answer, alone=False)
    assert (alone.scope, alone.suppress) == (RECIPIENT, True)
    assert (shared.scope, shared.suppress) == (MESSAGE, False)


@pytest.mark.parametrize("line", ["552 Too many recipients", "550 5.5.3 Too many recipients"])
def test_too_many_recipients_of_one_session_go_in_another(line: str) -> None:
    code, text = line.split(maxsplit=1)
    answer = Answer(Phase.RCPT, Reply(int(code), text, None))
    assert (classify(answer, alone=False).verdict, classify(answer).verdict) == (D, B)
    assert classify(answer, alone=False).scope is SESSION


def test_null_mx_suppresses_and_a_missing_domain_does_not() -> None:
    null = classify(Answer(Phase.ROUTE, Reply(556, "5.1.10 null MX", "5.1.10")))
    missing = classify(Answer(Phase.ROUTE, Reply(550, "5.1.2 no such domain", "5.1.2")))
    assert (null.verdict, null.category, null.suppress) == (B, Category.NULL_MX, True)
    assert (missing.verdict, missing.category, missing.suppress) == (B, Category.DNS, False)


@pytest.mark.parametrize(
    ("phase", "kind", "category", "scope"),
    [
        (Phase.ROUTE, BreakKind.DNS, Category.DNS, SITE),
        (Phase.CONNECT, BreakKind.TIMEOUT, Category.NETWORK, SITE),
        (Phase.CONNECT, BreakKind.REFUSED, Category.NETWORK, SITE),
        (Phase.GREETING, BreakKind.CLOSED, Category.NETWORK, SITE),
        (Phase.GREETING, BreakKind.PROTOCOL, Category.PROTOCOL, SITE),
        (Phase.TLS, BreakKind.TLS, Category.TLS, SITE),
        (Phase.RCPT, BreakKind.CLOSED, Category.NETWORK, SESSION),
        (Phase.RCPT, BreakKind.TIMEOUT, Category.NETWORK, SITE),
        (Phase.BODY, BreakKind.CLOSED, Category.UNKNOWN_AFTER_DOT, SESSION),
        (Phase.BODY, BreakKind.TIMEOUT, Category.UNKNOWN_AFTER_DOT, SITE),
        (Phase.BODY, BreakKind.LOCAL, Category.LOCAL, SESSION),
        (Phase.CONNECT, BreakKind.LOCAL, Category.LOCAL, SESSION),
    ],
)
def test_broken_conversation_is_always_tried_again(
    phase: Phase, kind: BreakKind, category: Category, scope: Scope
) -> None:
    outcome = classify(Answer(phase, Break(kind, "what happened")))
    assert (outcome.verdict, outcome.category, outcome.scope) == (D, category, scope)
    assert (outcome.suppress, outcome.smtp_code, outcome.diagnostic) == (False, None, "what happened")


RULES = [
    pytest.param(rules, place, id=f"{kind}-{place}")
    for kind, rules in (("refusals", REFUSALS), ("recipients", RECIPIENTS), ("hints", HINTS))
    for place in range(len(rules.table))
]


@pytest.mark.parametrize(("rules", "place"), RULES)
def test_every_rule_decides_its_example_and_has_a_source(rules: ReplyRules, place: int) -> None:
    rule = rules.table[place]
    outcome = said(Phase.RCPT, rule.example)
    assert (outcome.category, outcome.scope) == (rule.category, rule.scope)
    assert rules.matches(place, words_of(rule.example)), "another rule or the code decided the example"
    assert len(rule.source) > 3


@pytest.mark.parametrize(("rules", "place"), RULES)
def test_no_rule_matches_the_nearest_reply_that_means_something_else(rules: ReplyRules, place: int) -> None:
    rule = rules.table[place]
    matched = rules.matches(place, words_of(rule.unlike)) and rule.status is None
    assert not matched
    near = set(re.findall(r"\w{3,}", rule.unlike.lower())) & set(
        re.findall(r"\w{3,}", f"{rule.phrase} {rule.example}".lower())
    )
    assert near, "the counter-example shares no word with the rule"


def test_acceptance_of_the_body_is_a_delivery() -> None:
    outcome = said(Phase.BODY, "250 2.0.0 Ok: queued as 4F2")
    assert (outcome.verdict, outcome.category) == (Verdict.DELIVERED, Category.ACCEPTED)
    assert detail(outcome) == {
        "scope": "recipient",
        "class": "accepted",
        "smtp_code": 250,
        "enhanced_code": "2.0.0",
        "diagnostic": "250 2.0.0 Ok: queued as 4F2",
    }


def test_detail_leaves_out_what_is_unknown() -> None:
    outcome = classify(Answer(Phase.CONNECT, Break(BreakKind.TIMEOUT, "no answer")))
    assert detail(outcome) == {"scope": "site", "class": "network", "diagnostic": "no answer"}


def test_status_inside_the_text_counts_and_an_ip_address_does_not() -> None:
    assert said(Phase.RCPT, "550 sorry (#5.1.1)").enhanced_code == "5.1.1"
    assert said(Phase.RCPT, "550 from 5.1.1.7 rejected").enhanced_code is None
    assert classify(Answer(Phase.RCPT, Reply(550, "no", "5.rubbish"))).enhanced_code is None


WORDS = st.sampled_from([rule.example for rules in (REFUSALS, RECIPIENTS, HINTS) for rule in rules.table])
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.one_of(WORDS, st.text(max_size=8))).map(" ".join))
STATUS = st.one_of(
    st.none(),
    st.from_regex(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True),
    st.text(max_size=9),
)
REPLIES = st.builds(Reply, st.integers(-10, 1000), TEXTS, STATUS)
BREAKS = st.builds(Break, st.sampled_from(BreakKind), st.text(max_size=20))
ANSWERS = st.builds(Answer, st.sampled_from(Phase), st.one_of(REPLIES, BREAKS))


@given(ANSWERS, st.booleans())
def test_any_answer_has_one_consistent_outcome(answer: Answer, alone: bool) -> None:
    outcome = classify(answer, alone=alone)
    heard = answer.outcome
    code = heard.code if isinstance(heard, Reply) else 0
    if outcome.suppress:
        assert outcome.verdict is B
        assert outcome.scope is RECIPIENT
    if outcome.verdict is B:
        assert 500 <= code < 600
    if 400 <= code < 500:
        assert outcome.verdict is D
    assert (outcome.verdict is Verdict.DELIVERED) == (200 <= code < 300 and answer.phase is Phase.BODY)
    if answer.phase not in {Phase.ROUTE, Phase.RCPT, Phase.DATA, Phase.BODY}:
        assert outcome.scope is not RECIPIENT
