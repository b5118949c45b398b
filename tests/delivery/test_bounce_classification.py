"""The classification against replies of real servers that no rule was written for; `pytest -s` shows the figures."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.delivery.outcome import Category, Scope, Verdict, classify, detail
from engine.delivery.reply_rules import HINTS, RECIPIENTS, REFUSALS
from engine.mail.replies import Answer, Phase, Reply
from tests.delivery.reply_files import Bounce, read

RECOGNISED = 0.95  # of permanent refusals of the recipient

BOUNCES = read("bounces.tsv")
HELD_OUT = read("bounces-heldout.tsv")


def of(*labels: str) -> list[Bounce]:
    return [one for one in BOUNCES if one.label in labels]


def tell(figures: str) -> None:
    print(figures)  # noqa: T201 - the figures are what this module is for


def test_the_set_is_large_held_out_and_labelled_with_its_sources() -> None:
    written = {
        " ".join(rule.example.lower().split()) for rules in (REFUSALS, RECIPIENTS, HINTS) for rule in rules.table
    }
    counts = Counter(one.label for one in BOUNCES)

    assert set(counts) == {"dead", "full", "refused", "soft"}
    assert len(BOUNCES) >= 150
    assert len({one.text for one in BOUNCES}) == len(BOUNCES)
    assert all(len(one.source) > 4 for one in BOUNCES)
    known = [one for one in BOUNCES if " ".join(one.text.lower().split()) in written]
    assert len(known) <= len(BOUNCES) // 10, known  # some servers say just what the standard's example says


def test_permanent_refusals_of_the_recipient_are_recognised() -> None:
    bounces = of("dead", "full")
    missed = [
        (one.text, one.outcome.category, one.outcome.scope)
        for one in bounces
        if (one.outcome.verdict, one.outcome.scope) != (Verdict.BOUNCED, Scope.RECIPIENT)
    ]
    share = 1 - len(missed) / len(bounces)
    tell(f"\nrecipient-scope permanent: {len(bounces) - len(missed)} of {len(bounces)} recognised ({share:.1%})")
    assert share >= RECOGNISED, missed


def test_dead_addresses_are_suppressed() -> None:
    bounces = of("dead")
    missed = [(one.text, one.outcome.category) for one in bounces if not one.outcome.suppress]
    share = 1 - len(missed) / len(bounces)
    tell(f"\ndead addresses: {len(bounces) - len(missed)} of {len(bounces)} suppressed ({share:.1%})")
    assert share >= RECOGNISED, missed


@pytest.mark.parametrize("label", ["full", "refused", "soft"])
def test_nothing_else_ever_suppresses(label: str) -> None:
    wrong = [(one.text, one.outcome.category, one.outcome.scope) for one in of(label) if one.outcome.suppress]
    tell(f"\n{label}: {len(wrong)} of {len(of(label))} suppressed")
    assert not wrong


def test_the_registered_class_stands_beside_our_own() -> None:
    kinds = {
        "550 5.1.1 no such user": "addressing", "552 5.2.2 full": "mailbox", "451 4.3.0 later": "mail_system",
        "421 4.4.2 timeout": "network_and_routing", "502 5.5.1 what": "mail_delivery_protocol",
        "554 5.6.0 header": "content_or_media", "550 5.7.26 no": "security_or_policy", "550 5.0.0 no": None,
        "550 no": None, "550 5.9.1 no": None,
    }  # fmt: skip
    for text, expected in kinds.items():
        assert detail(Bounce("", Phase.RCPT, text, "").outcome).get("iana_class") == expected


def test_temporary_refusals_are_tried_again_and_full_mailboxes_are_called_full() -> None:
    assert [one.text for one in of("soft") if one.outcome.verdict is not Verdict.DEFERRED] == []
    assert [one.text for one in of("full") if one.outcome.category is not Category.MAILBOX_FULL] == []


# -- a second set, gathered after the first had shaped the rules ----------------------------------------


def test_the_second_set_is_new_labelled_and_says_where_each_line_was_seen() -> None:
    known = {" ".join(one.text.lower().split()) for one in BOUNCES}

    assert len(HELD_OUT) >= 120
    assert {one.label for one in HELD_OUT} == {"dead", "full", "refused", "soft"}
    assert len({one.text for one in HELD_OUT}) == len(HELD_OUT)
    assert all(one.source.startswith("http") for one in HELD_OUT)
    assert [one.text for one in HELD_OUT if " ".join(one.text.lower().split()) in known] == []


def test_a_temporary_refusal_never_suppresses() -> None:
    wrong = [one.text for one in HELD_OUT if one.label == "soft" and one.outcome.suppress]
    later = [one for one in HELD_OUT if one.label == "soft" and one.outcome.verdict is Verdict.DEFERRED]
    tell(f"\nsecond set, soft: {len(wrong)} suppressed, {len(later)} tried again")
    assert wrong == []
    assert len(later) == sum(one.label == "soft" for one in HELD_OUT)


def test_a_refusal_of_us_or_a_full_mailbox_never_suppresses() -> None:
    wrong = [one.text for one in HELD_OUT if one.label in ("refused", "full") and one.outcome.suppress]
    tell(f"\nsecond set, refused and full: {len(wrong)} suppressed")
    assert wrong == []


def test_permanent_refusals_of_the_recipient_are_recognised_in_the_second_set_too() -> None:
    bounces = [one for one in HELD_OUT if one.label in ("dead", "full")]
    found = [one for one in bounces if (one.outcome.verdict, one.outcome.scope) == (Verdict.BOUNCED, Scope.RECIPIENT)]
    tell(f"\nsecond set, recipient-scope permanent: {len(found)} of {len(bounces)}")
    assert len(found) / len(bounces) >= RECOGNISED


# -- a third set: words behind a code that says nothing --------------------------------------------------

WORDS = read("bounces-words.tsv")
MAX_MISTAKEN = 0.02  # of refusals of us, with a bare permanent code at RCPT


def test_behind_a_bare_code_the_words_decide_what_is_recognised_and_suppressed() -> None:
    dead = [one for one in WORDS if one.label == "dead"]
    found = [one for one in dead if (one.outcome.verdict, one.outcome.scope) == (Verdict.BOUNCED, Scope.RECIPIENT)]
    suppressed = [one for one in dead if one.outcome.suppress]
    tell(f"\nthird set: {len(found)} of {len(dead)} recognised, {len(suppressed)} suppressed")
    assert len(found) / len(dead) >= RECOGNISED
    assert len(suppressed) / len(dead) >= RECOGNISED


def test_a_permanent_code_never_suppresses_where_the_words_tell_of_a_passing_state() -> None:
    assert [one.text for one in WORDS if one.label in ("full", "passing") and one.outcome.suppress] == []


def test_a_refusal_of_us_behind_a_bare_code_is_hardly_ever_mistaken() -> None:
    refused = [one for one in WORDS if one.label == "refused"]
    wrong = [one.text for one in refused if one.outcome.suppress]
    tell(f"\nthird set: {len(wrong)} of {len(refused)} refusals of us suppressed")
    assert len(wrong) / len(refused) <= MAX_MISTAKEN, wrong


# -- further sets: by server and provider, gathered afterwards, and replies that quote telling words ------

SERVERS, UNSEEN, QUOTED = read("bounces-servers.tsv"), read("bounces-unseen.tsv"), read("bounces-quoted.tsv")
PROVIDERS = read("bounces-providers.tsv")
EVERY = [*BOUNCES, *HELD_OUT, *WORDS, *SERVERS, *UNSEEN, *QUOTED, *PROVIDERS]
MIN_SUPPRESSED = 0.97  # of dead addresses
MAX_SUPPRESSED = 0.005  # of all other replies


@pytest.mark.parametrize(
    "bounces", [SERVERS, UNSEEN, QUOTED, PROVIDERS, EVERY], ids=["servers", "unseen", "quoted", "providers", "every"]
)
def test_dead_addresses_are_suppressed_and_hardly_any_other(bounces: list[Bounce]) -> None:
    dead = [one for one in bounces if one.label == "dead"]
    others = [one for one in bounces if one.label != "dead"]
    missed = [one.text for one in dead if not one.outcome.suppress]
    wrong = [one.text for one in others if one.outcome.suppress]
    tell(f"\n{len(dead) - len(missed)} of {len(dead)} dead, {len(wrong)} of {len(others)} others suppressed")
    assert 1 - len(missed) / len(dead) >= MIN_SUPPRESSED, missed
    assert len(wrong) / len(others) <= MAX_SUPPRESSED, wrong


def test_replies_without_a_word_about_the_cause_are_told_from_all_others() -> None:
    assert [one.text for one in EVERY if one.label == "silent" and not one.outcome.unexplained] == []
    told = [one for one in EVERY if one.label not in {"silent", "dead"}]
    wrong = [one.text for one in told if one.outcome.unexplained]
    tell(f"\n{len(wrong)} of {len(told)} replies with a cause would suppress when they repeat")
    assert len(wrong) / len(told) <= MAX_MISTAKEN, wrong


@pytest.mark.parametrize("labels", [{"dead"}, {"full", "refused", "soft"}])
def test_the_sets_hold_replies_of_thirty_servers_and_providers(labels: set[str]) -> None:
    named = [one for one in [*BOUNCES, *SERVERS, *UNSEEN, *PROVIDERS] if one.label in labels]
    assert len({re.split(r"[,;]", one.source)[0] for one in named}) >= 30


@pytest.mark.parametrize("status", ["5.1.1", "5.1.3", "5.1.6", "5.2.1"])
@pytest.mark.parametrize(
    "words",
    [
        "Mail refused", "Message rejected", "Blocked", "Access denied", "Administrative prohibition", "spam detected",
        "not permitted", "<ann@b.test>: Recipient address rejected: Blocked by policy", "attachment", "Relaying",
    ],
)  # fmt: skip
def test_a_status_of_a_dead_mailbox_does_not_suppress_beside_words_that_refuse_us(status: str, words: str) -> None:
    assert Bounce("", Phase.RCPT, f"550 {status} Address rejected", "").outcome.suppress

    found = Bounce("", Phase.RCPT, f"550 {status} {words}", "").outcome
    assert (found.verdict, found.suppress) == (Verdict.BOUNCED, False)
    assert found.scope is Scope.MESSAGE, "one recipient's refusal slows no mail to others"


@pytest.mark.parametrize(
    "text",
    [
        "450 4.1.1 unverified address: Address lookup failed", "450 4.1.1 Blocked", "451 4.2.1 spam check pending",
        "450 4.2.1 service unavailable for this mailbox",
    ],
)  # fmt: skip
def test_a_temporary_reply_with_a_mailbox_status_defers_no_mail_to_others(text: str) -> None:
    found = Bounce("", Phase.RCPT, text, "").outcome
    assert (found.verdict, found.scope) == (Verdict.DEFERRED, Scope.RECIPIENT)


@pytest.mark.parametrize(
    "text",
    [
        "550 5.1.1 lookup failed", "550 5.1.1 this message could not be delivered", "550 5.1.1 configuration error",
        "550 Account expired", "550 ann@b.test expired", "550 5.2.1 This mailbox expired 90 days ago",
        "550 mailbox disabled after 180 days of inactivity",
    ],
)  # fmt: skip
def test_a_status_of_a_dead_mailbox_or_an_expired_one_suppresses(text: str) -> None:
    assert Bounce("", Phase.RCPT, text, "").outcome.suppress


@pytest.mark.parametrize(
    "text",
    [
        "550 ", "554 ", "553 ", "550 5.0.0", "550 5.2.0", "550 Rejected", "550 5.0.0 Rejected", "550 5.1.0 Rejected",
        "550 <ann@b.test>: Refused", "554 Transaction failed", "550 failed", "550 permanent failure",
        "550 Requested action not taken", "550 Command rejected", "554 Error: 550", "550 Fehler", "550 no",
        "550 permanent failure for one or more recipients (ann@b.test)",
    ],
)  # fmt: skip
def test_a_reply_that_says_nothing_bounces_and_suppresses_only_when_it_repeats(text: str) -> None:
    found = Bounce("", Phase.RCPT, text if " " in text[4:] else f"{text} ", "").outcome
    assert (found.verdict, found.scope) == (Verdict.BOUNCED, Scope.RECIPIENT)
    assert (found.suppress, found.unexplained) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        "550 your mail is not wanted", "550 mailbox busy, try again later", "550 5.7.1 Rejected", "450 Rejected",
        "550 5.1.1 Rejected", "550 Message rejected", "552 5.2.2 full",
    ],
)  # fmt: skip
def test_a_reply_that_tells_its_cause_never_counts_as_unexplained(text: str) -> None:
    assert not Bounce("", Phase.RCPT, text, "").outcome.unexplained


@pytest.mark.parametrize("phase", [Phase.MAIL, Phase.DATA, Phase.BODY])
def test_only_at_rcpt_a_reply_that_says_nothing_is_about_the_address(phase: Phase) -> None:
    assert not Bounce("", phase, "554 Transaction failed", "").outcome.unexplained


GAVE_UP = [
    "550 Envelope expired", "550 <ann@b.test>: Envelope expired", "554 5.4.7 Delivery expired (message too old)",
    "550 5.0.0 retry timeout exceeded", "550 Message expired: unable to deliver in 840 minutes",
    "554 5.4.7 message timeout (exceeded max time)", "550 unable to deliver message after 3 days",
    "550 ann@b.test could not be delivered for 5 days; deleted from queue", "550 QUEUE.Expired; message expired",
    "550 retry time not reached for any host after a long failure period", "550 message has been in the queue too long",
    "550 Tried 4 times to deliver ann@b.test, delivery attempts exceeded",
]  # fmt: skip
NO_SENDER = [
    "550 5.7.27 Sender address has null MX", "550 5.7.27 nullMX", "550 5.1.8 Host not found",
    "553 5.1.7 address does not exist", "550 5.1.2 sender's host unknown", "550 Sender domain x.test does not exist",
    "550 5.1.10 Sender domain has a null MX", "450 4.1.8 <b@a.test>: Sender address rejected: Domain not found",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "category"),
    [*[(text, Category.NETWORK) for text in GAVE_UP], *[(text, Category.SENDER_REFUSED) for text in NO_SENDER]],
)
def test_a_server_that_gave_up_or_misses_the_senders_domain_tells_nothing_of_the_address(
    text: str, category: Category
) -> None:
    found = Bounce("", Phase.RCPT, text, "").outcome
    assert (found.category, found.scope, found.suppress) == (category, Scope.MESSAGE, False)


@pytest.mark.parametrize(
    "text",
    [
        "550 5.1.2 Access denied", "550 5.1.2 x.test", "550 Host not found", "550 x.test does not exist",
        "550 unknown domain",
        "550 Domain x.test does not exist", "550 5.4.310 DNS domain x.test does not exist", "550 No such domain",
        "556 5.1.10 <ann@x.test>: Recipient address rejected: Domain x.test does not accept mail (nullMX)",
        "550 all relevant MX records point to non-existent hosts", "550 an MX or SRV record indicated no SMTP service",
    ],
)  # fmt: skip
def test_a_domain_that_does_not_exist_is_a_dead_address(text: str) -> None:
    found = Bounce("", Phase.RCPT, text, "").outcome
    assert found.suppress
    assert found.category in {Category.DNS, Category.NULL_MX}


def test_a_host_that_is_not_configured_to_relay_for_us_is_not_about_the_address() -> None:
    text = "501 Rcpt-To validation failed: <ann@b.test>: this host is not configured to relay mail"
    found = Bounce("", Phase.RCPT, text, "").outcome
    assert (found.category, found.suppress, found.unexplained) == (Category.RELAYING, False, False)


@given(
    st.sampled_from([one for one in EVERY if one.label == "dead" and one.outcome.suppress]),
    st.sampled_from(["spam", "policy", "blocked", "dnsbl"]),
)
def test_what_a_reply_quotes_changes_nothing(one: Bounce, word: str) -> None:
    quoted = f"{one.text} [{word}.{word}.example.com] <{word}@{word}.example> https://{word}.example/{word}"
    assert one._replace(text=quoted).outcome.suppress == one.outcome.suppress


@pytest.mark.parametrize(
    "text", ["4.7.0 too much mail from you", "4.7.0 Mail from your server is not wanted now", "mail from you: later"]
)
def test_a_server_that_closes_the_connection_at_mail_asks_for_less_mail(text: str) -> None:
    enhanced = text.split(maxsplit=1)[0] if text[0] == "4" else None
    found = classify(Answer(Phase.MAIL, Reply(421, text, enhanced)))
    assert found.scope in {Scope.SITE, Scope.SESSION}
    assert not found.suppress
