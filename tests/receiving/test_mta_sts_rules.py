"""Hosted MTA-STS policies: their text, their ids, and what DNS says of them. The sender's own parser judges them."""

from datetime import UTC, datetime

import pytest

from engine.base import ids
from engine.receiving.mta_sts import rules
from engine.receiving.mta_sts.types import HostedPolicyRow, ServedPolicy, StsFindings, StsMode
from mta.outbound.tls import mta_sts as sender

AT = datetime(2026, 11, 22, 8, 9, 10, tzinfo=UTC)


def row(mode: StsMode = "enforce", max_age_s: int = 604_800) -> HostedPolicyRow:
    return HostedPolicyRow(
        ids.uuid7(),
        ids.uuid7(),
        "shop.test",
        mode,
        max_age_s,
        "20261122080910",
        AT,
        None,
        None,
        0,
        0,
        None,
    )


@pytest.mark.parametrize("mode", ["none", "testing", "enforce"])
def test_the_policy_text_is_what_senders_read(mode: str) -> None:
    text = rules.policy_text(ServedPolicy(mode, 86_400), ["mail.waybill.test"])
    policy = sender.parse(text.encode())

    assert (policy.mode.value, policy.max_age_s, policy.patterns) == (mode, 86_400, ("mail.waybill.test",))


def test_each_change_makes_a_larger_policy_id() -> None:
    first = rules.next_policy_id(None, AT)
    second = rules.next_policy_id(first, AT)
    assert (first, second) == ("20261122080910", "20261122080911")
    assert rules.next_policy_id(second, AT.replace(year=2027)) == "20271122080910"
    assert rules.next_policy_id("20261231235959", AT) == "20270101000000"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((), "missing"),
        (("v=spf1 -all",), "missing"),
        (("v=STSv1; id=20261122080910",), "ok"),
        (("v=STSv1;id=20261122080910;", "unrelated"), "ok"),
        (("v=STSv1; id=20261122080909",), "stale"),
        (("v=STSv1",), "invalid"),
        (("v=STSv1; id=2026-11-22",), "invalid"),
        (("v=STSv10; id=20261122080910",), "invalid"),
        (("v=STSv1; id=1", "v=STSv1; id=2"), "invalid"),
    ],
)
def test_the_txt_record_is_compared_with_the_policy_id(found: tuple[str, ...], status: str) -> None:
    assert rules.txt_status(found, "20261122080910") == status


def test_a_put_that_changes_nothing_is_no_change() -> None:
    assert rules.changed(None, "testing", None) == ("testing", 604_800)
    assert rules.changed(row("testing", 90_000), "testing", None) is None
    assert rules.changed(row("testing", 90_000), "enforce", None) == ("enforce", 90_000)
    assert rules.changed(row("testing", 90_000), "testing", 86_400) == ("testing", 86_400)


def test_what_would_lose_mail_is_warned_of() -> None:
    foreign = StsFindings(cname="ok", txt="ok", certificate="ok", mx_ours=False, foreign_mx=("mx.other.test",))
    assert any("mx.other.test" in one for one in rules.warnings_of(row(), foreign))
    assert rules.warnings_of(row("testing"), foreign) == []
    assert any("certificate" in one for one in rules.warnings_of(row(), StsFindings("ok", "ok", "expired")))
    assert any("wildcard" in one for one in rules.warnings_of(row(), StsFindings("ok", "ok", "ok", wildcard=True)))
    assert any("86400" in one for one in rules.warnings_of(row("none"), StsFindings("ok", "ok", "ok")))


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("mta-sts.shop.test", "shop.test"),
        ("MTA-STS.Shop.Test.:443", "shop.test"),
        ("shop.test", None),
        ("mta-sts.", None),
        ("", None),
    ],
)
def test_the_host_of_a_request_names_the_domain(host: str, domain: str | None) -> None:
    assert rules.served_domain(host) == domain
