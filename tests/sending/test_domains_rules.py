"""Rules for domain names, for the result of a check, and for the time of the next check."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from engine.base.errors import Refusal
from engine.sending.domains import rules
from engine.sending.domains.rules import DomainState, DomainVerdict, Rival
from engine.sending.domains.types import DomainKeyRow, DomainStatus, RecordStatus

HOST = "mail.waybill.test"
ID = UUID(int=1)


def key(selector: str, status: str, *, retire_at: datetime | None = None) -> DomainKeyRow:
    algorithm = "ed25519-sha256" if selector.endswith("e") else "rsa-sha256"
    return DomainKeyRow(ID, selector, algorithm, f"v=DKIM1; p={selector}", status, retire_at)


FIRST = [key("wb1", "active"), key("wb1e", "pending"), key("wb2", "standby"), key("wb2e", "standby")]
ROTATING = [key("wb1", "active"), key("wb1e", "active"), key("wb2", "pending"), key("wb2e", "standby")]
PENDING, VERIFIED = DomainState("pending", 0, vouched=False), DomainState("verified", 0, vouched=False)


# -- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "bücher.example", "BÜCHER.example", "Bücher.Example.", "xn--bcher-kva.example", "XN--BCHER-KVA.EXAMPLE",
        "xn--bcher-kva.example.", "bu\u0308cher.example", "bücher\u3002example", "bücher\uff0eexample\uff0e",
        "\uff42ücher.example", "bücher.example\u3002",
    ],
)  # fmt: skip
def test_every_form_of_a_name_is_one_name(text: str) -> None:
    assert rules.checked_name(text, HOST) == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("192.0.2.1", "IP address"), ("192.0.2.1.", "IP address"), ("[192.0.2.1]", "IP address"),
        ("2001:db8::1", "IP address"), ("[IPv6:2001:db8::1]", "IP address"), ("0x7f.1", "not a domain"),
        ("com", "not a domain"), ("localhost", "not a domain"), ("", "not a domain"), (".", "not a domain"),
        ("a..example", "not a domain"), ("example.com..", "not a domain"), ("-a.example", "not a domain"),
        ("*.example.com", "not a domain"), ("a_b.example", "not a domain"), ("xn--a.example", "not a domain"),
        (f"{'a' * 64}.example", "not a domain"), ("a b.example", "not a domain"), (" example.com", "not a domain"),
        ("example.com\n", "not a domain"), ("exa\0mple.com", "not a domain"), ("exa\ud800mple.com", "not a domain"),
        ("exa\u200bmple.com", "not a domain"), ("example.com,example.org", "not a domain"),
        ("me@example.com", "@-sign"), ("https://example.com/", "https://"), ("example.com:25", "https://"),
        ("co.uk", "registry"), ("COM.AU.", "registry"), ("or.jp", "registry"),
        (HOST, "this service"), (HOST.upper() + ".", "this service"), (f"bounces.{HOST}", "this service"),
        (f"simulator.{HOST}", "this service"),
        (f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 55}.test", "longer"),
    ],
)  # fmt: skip
def test_what_nobody_can_send_from_is_refused_with_a_sentence(text: str, word: str) -> None:
    with pytest.raises(Refusal) as caught:
        rules.checked_name(text, HOST)

    assert caught.value.fields == {"field": "name"}
    assert caught.value.status == 400
    assert word in caught.value.message
    assert "\0" not in caught.value.message


@pytest.mark.parametrize("text", ["waybill.test", "shop.co.uk", "a-b.example", "1and1.example", "xmail.waybill.test"])
def test_names_near_those_are_taken(text: str) -> None:
    assert rules.checked_name(text, HOST) == text


# -- standing --------------------------------------------------------------------------------------------------


def decide(
    standing: DomainState,
    found: dict[str, RecordStatus | None],
    *,
    keys: list[DomainKeyRow] = FIRST,
    rival: Rival = "none",
) -> DomainVerdict:
    return rules.decide(standing, keys, found, rival)


def test_a_published_rsa_key_verifies() -> None:
    verdict = decide(PENDING, {"wb1": "ok", "wb1e": "missing", "wb2": "missing", "wb2e": "missing"})

    assert (verdict.status, verdict.misses, verdict.keys, verdict.contested) == ("verified", 0, {}, False)


@pytest.mark.parametrize("found", ["missing", "mismatch"])
def test_one_miss_does_not_fail_a_domain_and_a_second_in_a_row_does(found: RecordStatus) -> None:
    once = decide(VERIFIED, {"wb1": found})
    twice = decide(DomainState("verified", once.misses, vouched=False), {"wb1": found})

    assert (once.status, once.misses) == ("verified", 1)
    assert twice.status == "failed"


def test_a_find_between_two_misses_starts_the_count_anew() -> None:
    assert decide(DomainState("verified", 1, vouched=False), {"wb1": "ok"}).misses == 0


@pytest.mark.parametrize("status", ["pending", "verified", "failed"])
@pytest.mark.parametrize("misses", [0, 1])
def test_dns_that_does_not_answer_decides_nothing(status: DomainStatus, misses: int) -> None:
    verdict = decide(DomainState(status, misses, vouched=False), {"wb1": None, "wb1e": None})

    assert (verdict.status, verdict.misses, verdict.keys, verdict.required) == (status, misses, {}, None)


def test_a_pending_domain_stays_pending_however_often_nothing_is_found() -> None:
    assert decide(PENDING, {"wb1": "missing"}) == DomainVerdict("pending", 0, {}, None, "missing", contested=False)


def test_a_failed_domain_is_back_with_its_record() -> None:
    assert decide(DomainState("failed", 2, vouched=False), {"wb1": "ok"}).status == "verified"


def test_the_operators_word_outlasts_missing_records() -> None:
    vouched = DomainState("verified", 1, vouched=True)

    assert decide(vouched, {"wb1": "missing"}).status == "verified"
    assert decide(vouched, {"wb1": "missing"}).misses == 0


@pytest.mark.parametrize(("rival", "status"), [("none", "verified"), ("gone", "verified"), ("published", "pending"),
                                               ("unsure", "pending")])  # fmt: skip
def test_a_name_passes_over_only_when_its_holders_record_is_gone(rival: Rival, status: str) -> None:
    verdict = decide(PENDING, {"wb1": "ok"}, rival=rival)

    assert verdict.status == status
    assert verdict.contested == (status == "pending")


# -- keys --------------------------------------------------------------------------------------------------------


def test_ed25519_signs_while_it_is_published() -> None:
    found: dict[str, RecordStatus | None] = {"wb1": "ok", "wb1e": "ok"}
    signing = [key("wb1", "active"), key("wb1e", "active")]

    assert decide(VERIFIED, found).keys == {"wb1e": "active"}
    assert decide(VERIFIED, found | {"wb1e": "mismatch"}, keys=signing).keys == {"wb1e": "pending"}
    assert decide(VERIFIED, found | {"wb1e": None}, keys=signing).keys == {}


def test_a_key_on_standby_is_not_used_however_well_it_is_published() -> None:
    assert decide(VERIFIED, {"wb1": "ok", "wb1e": "missing", "wb2": "ok", "wb2e": "ok"}).keys == {}


def test_signing_moves_when_the_waiting_key_is_found() -> None:
    verdict = decide(VERIFIED, {"wb1": "ok", "wb1e": "ok", "wb2": "ok", "wb2e": "ok"}, keys=ROTATING)

    assert verdict.rotated == ("wb1", "wb2")
    assert verdict.keys == {"wb1": "retiring", "wb1e": "retiring", "wb2": "active", "wb2e": "active"}


def test_signing_moves_with_rsa_alone_when_ed25519_is_not_published() -> None:
    for ed25519 in ("missing", None):
        verdict = decide(VERIFIED, {"wb1": "ok", "wb2": "ok", "wb2e": ed25519}, keys=ROTATING)
        assert verdict.keys["wb2e"] == "pending"


@pytest.mark.parametrize("found", ["missing", "mismatch", None])
def test_signing_stays_until_the_waiting_key_is_found(found: RecordStatus | None) -> None:
    verdict = decide(VERIFIED, {"wb1": "ok", "wb1e": "ok", "wb2": found, "wb2e": "ok"}, keys=ROTATING)

    assert (verdict.rotated, verdict.keys) == (None, {})


def test_a_domain_whose_old_record_is_gone_is_kept_by_the_new_one() -> None:
    verdict = decide(DomainState("failed", 2, vouched=False), {"wb1": "missing", "wb2": "ok"}, keys=ROTATING)

    assert (verdict.status, verdict.rotated) == ("verified", ("wb1", "wb2"))


# -- times ---------------------------------------------------------------------------------------------------------

EVERY_S = 6 * 3600.0


def wait(
    status: DomainStatus,
    misses: int = 0,
    *,
    soon: bool = False,
    age_s: float = 0.0,
    required: RecordStatus | None = "ok",
) -> float | None:
    verdict = DomainVerdict(status, misses, {}, None, required, contested=False)
    return rules.next_check_s(verdict, soon=soon, age=timedelta(seconds=age_s), every_s=EVERY_S, jitter=0.5)


def test_what_is_in_question_is_looked_at_sooner() -> None:
    assert wait("verified") == EVERY_S
    assert wait("verified", 1) == rules.SOON_S
    assert wait("verified", soon=True) == rules.SOON_S
    assert wait("failed", 2) == rules.FAILED_S
    assert wait("verified", required=None) == rules.FAILED_S


def test_a_new_domain_is_looked_at_ever_less_often_and_in_the_end_no_more() -> None:
    ages = (0, 600, 3600, 4 * 86400)
    assert [wait("pending", age_s=age) for age in ages] == [60, 150, 900, EVERY_S]
    assert wait("pending", age_s=8 * 86400) is None


def test_checks_spread_by_a_tenth_either_way() -> None:
    verdict = DomainVerdict("verified", 0, {}, None, "ok", contested=False)
    waits = [
        rules.next_check_s(verdict, soon=False, age=timedelta(), every_s=EVERY_S, jitter=jitter)
        for jitter in (0.0, 1.0)
    ]

    assert waits == pytest.approx([EVERY_S * 0.9, EVERY_S * 1.1])


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gmail.com", "gmail.com"),
        ("GMAIL.com.", "gmail.com"),
        ("mail.gmail.com", "gmail.com"),
        ("yahoo.co.uk", "yahoo.co.uk"),
        ("hotmail.fr", "hotmail.fr"),
        ("web.de", "web.de"),
    ],
)
def test_a_domain_of_a_public_mailbox_provider_is_refused(name: str, provider: str) -> None:
    with pytest.raises(Refusal, match=f"{provider} is a public mailbox provider"):
        rules.checked_name(name, "mail.test")


@pytest.mark.parametrize("name", ["notgmail.com", "gmail.example.com", "yahoo.example.com", "hotmail.dev", "web.dev"])
def test_a_name_that_only_resembles_a_provider_is_taken(name: str) -> None:
    assert rules.checked_name(name, "mail.test") == name
