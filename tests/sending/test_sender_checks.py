"""The checks before sending: the spam rules of received mail, and what mailbox providers require of bulk senders."""

from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import Settings
from engine.mail.received import summarise
from engine.sending import sender_checks
from engine.sending.domains import records
from engine.sending.sender_requirements import OneClick, RequirementName, SenderFacts, checked
from tests.harness.accounts import TestAccount
from tests.harness.api import Api

MIME = (
    b"From: Shop <a@shop.test>\r\nTo: ann@people.test\r\nSubject: Hi\r\nDate: Fri, 20 Nov 2026 10:00:00 +0000\r\n"
    b"Message-ID: <1@shop.test>\r\n\r\nHello\r\n"
)
GOOD = SenderFacts(
    domain="shop.test", is_verified=True, return_path="bounce.shop.test", has_spf=True, has_dmarc=True,
    settled=1_000, complained=2,
)  # fmt: skip
ONE_CLICK = OneClick(has_list_unsubscribe=True, has_post=True, needed=True)


def providers(sender: SenderFacts = GOOD, one_click: OneClick = ONE_CLICK) -> dict[str, tuple[int, int, list[str]]]:
    found = checked(sender, one_click, summarise(MIME))
    return {one.provider: (one.met, one.required, [name.value for name in one.missing]) for one in found.providers}


def test_a_good_sender_meets_all_requirements() -> None:
    assert providers() == {"gmail": (7, 7, []), "yahoo": (6, 6, []), "microsoft": (4, 4, [])}


def test_gmail_and_yahoo_miss_one_click_on_streams_that_are_not_transactional() -> None:
    none = OneClick(has_list_unsubscribe=False, has_post=False, needed=True)

    assert providers(one_click=none) == {
        "gmail": (6, 7, ["one_click_unsubscribe"]), "yahoo": (5, 6, ["one_click_unsubscribe"]),
        "microsoft": (4, 4, []),
    }  # fmt: skip
    assert providers(one_click=structs.replace(none, needed=False))["gmail"] == (6, 6, [])


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"has_spf": False}, ["spf"]),
        ({"has_dmarc": False}, ["dmarc"]),
        ({"is_verified": False}, ["dkim", "alignment"]),
        ({"complained": 3}, ["complaint_rate"]),
    ],
)
def test_each_fact_decides_its_requirement(changes: dict[str, Any], missing: list[str]) -> None:
    assert providers(structs.replace(GOOD, **changes))["gmail"][2] == missing


def test_records_that_were_never_looked_up_are_not_counted() -> None:
    found = checked(structs.replace(GOOD, has_spf=None, has_dmarc=None), ONE_CLICK, summarise(MIME))

    assert [(one.met, one.required) for one in found.providers] == [(5, 5), (4, 4), (2, 2)]
    assert (found.spam.score, found.spam.reasons) == (0.0, [])


def test_a_rate_of_few_recipients_is_not_counted() -> None:
    assert providers(structs.replace(GOOD, settled=49, complained=49))["gmail"] == (6, 6, [])


def test_the_spam_rules_of_received_mail_score_the_message() -> None:
    forged = MIME.replace(b"Shop <", b'"service@bank.test" <')
    good = checked(GOOD, ONE_CLICK, summarise(MIME)).spam
    bad = checked(structs.replace(GOOD, is_verified=False, has_spf=False), ONE_CLICK, summarise(forged)).spam

    assert (good.score, good.threshold, [one.rule for one in good.reasons]) == (0.0, 6.0, ["dmarc_pass"])
    assert {one.rule: one.points for one in bad.reasons} == {
        "spf_none": 0.5, "dkim_none": 0.5, "dmarc_fail": 1.5, "misleading_name": 2.0
    }  # fmt: skip
    assert bad.score == 4.5


async def test_a_dry_run_shows_the_checks(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await pool.execute(
        "INSERT INTO outcome_days VALUES ($1, $2, 500, 0, 5), ($1, $3, 500, 0, 500)",
        account.id, clock.now().date(), (clock.now() - timedelta(days=31)).date(),
    )  # fmt: skip
    answer = await api.post("/v1/emails", account.token, account.email(dryRun=True))

    assert answer.status == 200
    shown = answer.json["checks"]
    by_name = {one["name"]: (one["met"], one["detail"]) for one in shown["requirements"]}
    assert list(by_name) == [name.value for name in RequirementName]
    assert by_name["dkim"] == (True, f"Emails are signed with the key of {account.domain}.")
    assert by_name["one_click_unsubscribe"] == (None, "Not needed for transactional email.")
    assert by_name["complaint_rate"] == (False, "1.00% of recipients complained in 30 days; it must stay below 0.3%.")
    assert [one["provider"] for one in shown["providers"]] == ["gmail", "yahoo", "microsoft"]
    assert "complaint_rate" in shown["providers"][0]["missing"]


async def test_one_click_is_read_from_the_header(api: Api, account: TestAccount) -> None:
    link = {"listUnsubscribe": "<https://shop.test/out>", "dryRun": True}
    answer = await api.post("/v1/emails", account.token, account.email(**link))
    found = {one["name"]: one["met"] for one in answer.json["checks"]["requirements"]}

    assert found["one_click_unsubscribe"] is True


async def test_spf_and_dmarc_are_those_of_the_last_check(
    settings: Settings, pool: asyncpg.Pool, account: TestAccount
) -> None:
    bounces = records.bounce_domain(settings.mail_host)
    today = clock.now().date()
    async with pool.acquire() as connection:
        before = await sender_checks.sender_facts(connection, settings, account.id, account.domain, today)
        found = {
            f"TXT {host}": {"status": "ok", "found": [value]}
            for host, value in (
                (f"_dmarc.{account.domain}", "v=DMARC1; p=none"), (bounces, f"v=spf1 a:{settings.mail_host} -all"),
            )
        }  # fmt: skip
        await connection.execute(
            "UPDATE domains SET findings = $2::jsonb, return_path = 'verified' WHERE account_id = $1",
            account.id, orjson.dumps(found).decode(),
        )  # fmt: skip
        after = await sender_checks.sender_facts(connection, settings, account.id, account.domain, today)
        other = await sender_checks.sender_facts(connection, settings, account.id, "other.test", today)

    assert (before.has_spf, before.has_dmarc, before.return_path) == (None, None, bounces)
    assert (after.has_spf, after.has_dmarc, after.return_path) == (True, True, f"bounce.{account.domain}")
    assert (other.is_verified, other.has_dmarc) == (False, None)
