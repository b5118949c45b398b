"""Buying, changing and ending plans over the API, with the built-in payment provider."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from engine.accounts.billing import end_periods as billing_periods
from engine.accounts.billing.configuration import Billing, configured, payprov_secrets
from engine.accounts.billing.providers import signatures
from engine.base import clock, ids
from engine.base.settings import Settings
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Answer, Api
from tests.harness.payments import pay, report
from tests.harness.people import TestPerson, make_person

PROFILE = {"legalName": "Müller Söhne GmbH", "country": "DE", "taxId": "DE 123 456 789", "address": "Allee 1\nBerlin"}


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool, plan="free")


@pytest.fixture(scope="module")
def billing(settings: Settings) -> Billing:
    return configured(settings)


class Provider:
    """The payment provider: sends signed events."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings

    async def send(self, kind: str, data: dict[str, Any], **more: Any) -> Answer:
        return await report(self._api, self._settings, kind, data, **more)

    async def pay(self, checkout: dict[str, Any], **more: Any) -> Answer:
        return await pay(self._api, self._settings, checkout, **more)


@pytest.fixture
def provider(api: Api, settings: Settings) -> Provider:
    return Provider(api, settings)


async def checkout(api: Api, person: TestPerson, plan: str = "starter", **fields: object) -> Answer:
    return await api.post("/v1/billing/checkout", None, {"plan": plan, "profile": PROFILE} | fields, person=person)


async def state(api: Api, person: TestPerson) -> dict[str, Any]:
    answer = await api.get("/v1/billing", person=person)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


async def bought(api: Api, person: TestPerson, provider: Provider, plan: str = "starter", **fields: object) -> None:
    opened = await checkout(api, person, plan, **fields)
    assert opened.status == 201, opened
    assert (await provider.pay(opened.json)).status == 200


async def invoices(api: Api, person: TestPerson) -> list[dict[str, Any]]:
    answer = await api.get("/v1/billing/invoices", person=person)
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["data"]
    return found


async def history(api: Api, person: TestPerson) -> list[str]:
    page = (await api.get("/v1/billing/history", person=person)).json
    assert page["chain"] == {"valid": True, "brokenAt": None, "reason": None}
    return [event["type"] for event in page["data"]]


async def effects(pool: asyncpg.Pool, account: UUID) -> list[str]:
    rows = await pool.fetch(
        "SELECT effect FROM provider_events WHERE account_id = $1 ORDER BY received_at, event_id", account
    )
    return [row["effect"] for row in rows]


async def move_back(pool: asyncpg.Pool, account: UUID, by: timedelta) -> None:
    """Let the subscription begin earlier, as if time had passed."""
    await pool.execute(
        "UPDATE subscriptions "
        "SET anchor = anchor - $2::interval, paid_at = paid_at - $2, look_at = look_at - $2 WHERE account_id = $1",
        account, by,
    )  # fmt: skip


async def test_a_plan_holds_from_its_payment_with_an_invoice(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider
) -> None:
    opened = (await checkout(api, admin)).json
    assert opened["amount"] == 1_900
    assert opened["url"].startswith("http")
    assert (await state(api, admin))["plan"] == "free"

    assert (await provider.pay(opened)).status == 200

    found = await state(api, admin)
    assert (found["plan"], found["status"], found["checkout"]) == ("starter", "active", None)
    assert found["profile"]["taxId"] == "DE123456789"
    [invoice] = await invoices(api, admin)
    assert (invoice["total"], invoice["status"], invoice["kind"]) == (1_900, "paid", "invoice")
    assert await history(api, admin) == [
        "profile.changed", "checkout.started", "checkout.paid", "subscription.started", "invoice.issued",
    ]  # fmt: skip
    first = await api.get(f"/v1/billing/invoices/{invoice['id']}", person=admin)
    again = await api.get(f"/v1/billing/invoices/{invoice['id']}", person=admin)
    assert first.body.startswith(b"%PDF-1.")
    assert first.body == again.body
    shown = await api.get(f"/v1/billing/invoices/{invoice['id']}", person=admin, headers={"Accept": "application/json"})
    assert shown.json == invoice
    mails = await pool.fetch(
        "SELECT kind FROM system_mail WHERE detail ->> 'account_name' IS NOT NULL AND address = $1", admin.email
    )
    assert sorted(row["kind"] for row in mails) == ["invoice_issued", "plan_changed"]


@pytest.mark.parametrize(("choice", "plan"), [("pay", "starter"), ("decline", "free")])
async def test_the_simulated_page_shows_the_order_and_reports_the_choice(
    api: Api, admin: TestPerson, choice: str, plan: str
) -> None:
    path = (await checkout(api, admin)).json["url"].partition("/payprov")[2]

    shown = await api.get(f"/payprov{path}")
    forged = await api.get(f"/payprov{path.replace('amount=1900', 'amount=1')}")
    chosen = await api.request("POST", f"/payprov{path}", body=f"choice={choice}".encode())

    assert (shown.status, forged.status, chosen.status) == (200, 404, 200)
    assert "EUR 19.00" in shown.body.decode()
    assert (await state(api, admin))["plan"] == plan


async def test_the_simulated_provider_pays_and_refuses_renewals(
    api: Api,
    pool: asyncpg.Pool,
    account: TestAccount,
    admin: TestPerson,
    settings: Settings,
    billing: Billing,
) -> None:
    opened = (await checkout(api, admin)).json
    path = opened["url"].partition("/payprov")[2]
    await api.request("POST", f"/payprov{path}", body=b"choice=pay-once")
    await move_back(pool, account.id, timedelta(days=32))
    await billing_periods.end_period(pool, account.id, clock.now(), billing)
    charge = await pool.fetchrow("SELECT * FROM renewal_charges WHERE account_id = $1", account.id)
    assert charge is not None

    for reference, status in (("card-that-refuses-renewals", "past_due"), ("card", "active")):
        order = {
            "account": account.public_id, "periodStart": clock.iso(charge["period_start"]), "amount": 1_900,
            "currency": "EUR", "reference": reference,
        }  # fmt: skip
        body = orjson.dumps(order)
        header = {"Payprov-Signature": signatures.sign(payprov_secrets(settings)[0], body, clock.now())}
        assert (await api.post("/payprov/charges", body=body, headers=header)).status == 202
        assert (await state(api, admin))["status"] == status
    assert (await api.post("/payprov/charges", body=b"{}")).status == 401


async def test_the_same_checkout_twice_is_one_and_another_replaces_it(
    api: Api, admin: TestPerson, provider: Provider
) -> None:
    answers = await asyncio.gather(*[checkout(api, admin) for _ in range(5)])
    other = (await checkout(api, admin, "growth")).json

    assert len({answer.json["id"] for answer in answers}) == 1
    assert other["id"] != answers[0].json["id"]
    assert (await provider.pay(answers[0].json)).status == 200  # the replaced one is paid all the same
    assert (await state(api, admin))["plan"] == "starter"


async def test_parallel_copies_of_an_event_have_one_effect(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider
) -> None:
    opened = (await checkout(api, admin)).json

    answers = await asyncio.gather(*[provider.pay(opened, event=opened["id"]) for _ in range(50)])

    assert {answer.status for answer in answers} == {200}
    assert len(await invoices(api, admin)) == 1
    assert await effects(pool, account.id) == ["applied"]


async def test_only_a_fresh_signature_by_a_known_secret_is_accepted(
    api: Api, admin: TestPerson, provider: Provider
) -> None:
    opened = (await checkout(api, admin)).json
    at = clock.now()

    refused = [
        await provider.pay(opened, secret="another secret"),
        await provider.pay(opened, signed_at=at - timedelta(seconds=330)),
        await provider.pay(opened, signed_at=at + timedelta(seconds=330)),
        await api.request("POST", "/v1/billing/payprov/webhook", body=b"{}", headers={"Content-Type": "text/plain"}),
        await api.request("POST", "/v1/webhooks/payprov/success", body=b"{}", headers={"Payprov-Signature": "t=1"}),
    ]

    assert [answer.status for answer in refused] == [401] * 5
    assert (await state(api, admin))["plan"] == "free"
    unknown = await api.request("POST", "/v1/billing/other/webhook", body=b"{}", headers={})
    assert unknown.status == 404
    assert (await provider.pay(opened, signed_at=at - timedelta(seconds=200))).status == 200
    assert (await state(api, admin))["plan"] == "starter"


async def test_another_amount_or_currency_changes_nothing(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider
) -> None:
    opened = (await checkout(api, admin)).json

    await provider.pay(opened | {"amount": 1})
    await provider.pay(opened | {"currency": "USD"})

    assert (await state(api, admin))["plan"] == "free"
    assert await effects(pool, account.id) == [
        "expected EUR 19.00, got EUR 0.01", "expected EUR 19.00, got USD 19.00",
    ]  # fmt: skip


async def test_the_path_of_an_alias_does_not_decide_the_outcome(
    api: Api, admin: TestPerson, provider: Provider
) -> None:
    opened = (await checkout(api, admin)).json

    unsigned = await api.post("/v1/webhooks/payprov/failed", body=b"{}")
    assert unsigned.status == 401
    assert (await provider.pay(opened, path="/v1/webhooks/payprov/failed")).status == 200

    assert (await state(api, admin))["plan"] == "starter"


async def test_a_failure_after_the_success_changes_nothing(api: Api, admin: TestPerson, provider: Provider) -> None:
    opened = (await checkout(api, admin)).json
    await provider.pay(opened)

    assert (await provider.send("checkout.failed", {"checkout": opened["id"]})).status == 200

    assert (await state(api, admin))["plan"] == "starter"


async def test_an_unsigned_refund_notice_is_recorded_ten_times_a_day_and_moves_nothing(
    api: Api, admin: TestPerson, provider: Provider
) -> None:
    await bought(api, admin, provider)
    [invoice] = await invoices(api, admin)
    body = orjson.dumps(
        {"id": "n", "type": "refund.succeeded", "createdAt": "2026-01-01T00:00:00Z", "data": {"invoice": invoice["id"]}}
    )

    for _ in range(12):
        answer = await api.request("POST", "/v1/webhooks/payprov/refund", body=body, headers={})
        assert answer.status == 200

    assert (await history(api, admin)).count("notice.recorded") == 10
    assert (await invoices(api, admin))[0]["status"] == "paid"


async def test_a_refund_notice_about_nothing_known_leaves_a_record_ten_times_a_day(
    api: Api, pool: asyncpg.Pool, admin: TestPerson, provider: Provider
) -> None:
    await pool.execute("DELETE FROM refund_notices WHERE subject = $1", UUID(int=0))
    recorded = "SELECT effect, received_at FROM provider_events WHERE account_id IS NULL AND event_id LIKE 'unsigned-%'"
    before = await pool.fetchval(f"SELECT count(*) FROM ({recorded}) AS r")
    unknown = ids.format_id(ids.Kind.INVOICE, ids.uuid7())
    facts = {"id": "evt_1", "type": "refund.succeeded", "createdAt": "2026-01-01T00:00:00Z"}
    named = orjson.dumps(facts | {"data": {"invoice": unknown, "amount": 5}})
    for body in (named, b"", b"[", b'{"id":"a"}', b"\xff", *[named] * 8):
        assert (await api.request("POST", "/v1/webhooks/payprov/refund", body=body, headers={})).status == 200

    effects = [row["effect"] for row in await pool.fetch(f"{recorded} ORDER BY received_at")]
    assert len(effects) == before + 10
    assert effects[before] == 'unsigned, about nothing known: {"amount":5,"currency":null,"notice":"evt_1"}'
    assert effects[before + 1] == 'unsigned, about nothing known: {"unreadable":0}'
    # A forged notice must not hide the provider's own event with the id that it claims.
    await bought(api, admin, provider)
    [invoice] = await invoices(api, admin)
    data = {"invoice": invoice["id"], "currency": "EUR", "amount": 900}
    assert (await provider.send("refund.succeeded", data, event="evt_1")).status == 200
    assert len(await invoices(api, admin)) == 2


async def test_refunds_are_credit_notes_up_to_what_was_paid(api: Api, admin: TestPerson, provider: Provider) -> None:
    await bought(api, admin, provider)
    [invoice] = await invoices(api, admin)
    data = {"invoice": invoice["id"], "currency": "EUR"}

    await provider.send("refund.succeeded", data | {"amount": 900})
    await provider.send("refund.succeeded", data | {"amount": 1_001})  # more than is left
    await provider.send("refund.succeeded", data | {"amount": 1_000}, path="/v1/webhooks/payprov/refund")

    notes = await invoices(api, admin)
    assert [(one["kind"], one["total"], one["corrects"]) for one in notes] == [
        ("credit_note", -1_000, invoice["number"]),
        ("credit_note", -900, invoice["number"]),
        ("invoice", 1_900, None),
    ]
    assert notes[-1]["status"] == "refunded"


async def test_a_renewal_is_asked_for_and_its_payment_begins_the_next_period(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider, billing: Billing
) -> None:
    await bought(api, admin, provider)
    await move_back(pool, account.id, timedelta(days=32))
    before = await state(api, admin)

    await billing_periods.end_period(pool, account.id, clock.now(), billing)
    charge = await pool.fetchrow("SELECT * FROM renewal_charges WHERE account_id = $1", account.id)
    assert charge is not None
    data = {
        "account": account.public_id,
        "periodStart": clock.iso(charge["period_start"]),
        "amount": 1_900,
        "currency": "EUR",
    }
    await provider.send("payment.failed", data)
    assert (await state(api, admin))["status"] == "past_due"
    await asyncio.gather(*[provider.send("payment.succeeded", data) for _ in range(5)])  # different events, one period

    after = await state(api, admin)
    assert after["status"] == "active"
    assert after["currentPeriodStart"] == before["currentPeriodEnd"]
    both = await invoices(api, admin)
    assert len(both) == 2
    pages = [await api.get("/v1/billing/invoices?limit=1", person=admin)]
    while cursor := pages[-1].json["nextCursor"]:
        pages.append(await api.get(f"/v1/billing/invoices?limit=1&before={cursor}", person=admin))
    assert [one for page in pages for one in page.json["data"]] == both


async def test_a_payment_that_crosses_a_cancellation_gives_one_period_without_a_renewal(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider, billing: Billing
) -> None:
    await bought(api, admin, provider)
    await move_back(pool, account.id, timedelta(days=32))
    await billing_periods.end_period(pool, account.id, clock.now(), billing)
    start = await pool.fetchval("SELECT period_start FROM renewal_charges WHERE account_id = $1", account.id)
    assert (await api.post("/v1/billing/cancel", person=admin)).json["status"] == "free"

    data = {"account": account.public_id, "periodStart": clock.iso(start), "amount": 1_900, "currency": "EUR"}
    await provider.send("payment.succeeded", data)

    found = await state(api, admin)
    assert (found["plan"], found["status"], found["cancelAtPeriodEnd"]) == ("starter", "active", True)
    assert len(await invoices(api, admin)) == 2


async def test_a_plan_that_is_not_paid_ends_after_seven_days(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider, billing: Billing
) -> None:
    await bought(api, admin, provider)
    await move_back(pool, account.id, timedelta(days=39))

    await billing_periods.end_period(pool, account.id, clock.now(), billing)

    found = await state(api, admin)
    assert (found["plan"], found["status"]) == ("free", "free")
    kept = await pool.fetchrow("SELECT days, until FROM kept_retentions WHERE account_id = $1", account.id)
    assert kept is not None
    assert kept["days"] == 90
    assert kept["until"] > datetime.now(UTC) + timedelta(days=29)


async def test_a_smaller_plan_waits_for_the_end_of_the_period(api: Api, admin: TestPerson, provider: Provider) -> None:
    await bought(api, admin, provider, "growth")

    smaller = (await checkout(api, admin, "starter")).json

    found = await state(api, admin)
    assert (smaller["url"], smaller["effectiveAt"]) == (None, found["currentPeriodEnd"])
    assert found["plan"] == "growth"
    assert found["pendingPlan"]["plan"] == "starter"
    assert (await checkout(api, admin, "growth")).status == 201  # withdraws the change
    assert (await state(api, admin))["pendingPlan"] is None
    assert (await checkout(api, admin, "growth")).error["type"] == "invalid_state"


async def test_an_upgrade_pays_the_difference(api: Api, admin: TestPerson, provider: Provider) -> None:
    await bought(api, admin, provider, "starter")

    upgrade = (await checkout(api, admin, "growth")).json
    await provider.pay(upgrade)

    assert 6_000 <= upgrade["amount"] <= 6_001  # EUR 79 less nearly all of EUR 19
    found = await state(api, admin)
    assert (found["plan"], found["credit"]) == ("growth", 0)


async def test_a_cancellation_can_be_repeated_and_withdrawn(api: Api, admin: TestPerson, provider: Provider) -> None:
    assert (await api.post("/v1/billing/cancel", person=admin)).error["type"] == "invalid_state"
    await bought(api, admin, provider)

    for _ in range(2):
        assert (await api.post("/v1/billing/cancel", person=admin)).json["cancelAtPeriodEnd"] is True
    assert (await api.post("/v1/billing/resume", person=admin)).json["cancelAtPeriodEnd"] is False


async def test_a_pause_can_be_repeated_and_withdrawn(api: Api, admin: TestPerson, provider: Provider) -> None:
    assert (await api.post("/v1/billing/pause", person=admin)).error["type"] == "invalid_state"
    await bought(api, admin, provider)

    for _ in range(2):
        assert (await api.post("/v1/billing/pause", person=admin)).json["pauseAtPeriodEnd"] is True
    assert (await api.post("/v1/billing/resume", person=admin)).json["pauseAtPeriodEnd"] is False


async def test_an_abandoned_checkout_that_is_paid_counts(api: Api, admin: TestPerson, provider: Provider) -> None:
    opened = (await checkout(api, admin)).json

    assert (await api.post("/v1/billing/checkout/abandon", person=admin)).status == 204
    assert (await api.post("/v1/billing/checkout/abandon", person=admin)).status == 204
    assert (await state(api, admin))["checkout"] is None
    await provider.pay(opened)

    assert (await state(api, admin))["plan"] == "starter"


async def test_a_change_of_the_profile_leaves_issued_invoices_alone(
    api: Api, admin: TestPerson, provider: Provider
) -> None:
    await bought(api, admin, provider)
    [before] = await invoices(api, admin)

    answer = await api.patch("/v1/billing/profile", None, {"legalName": "Other", "taxId": None}, person=admin)

    assert (answer.json["legalName"], answer.json["taxId"], answer.json["country"]) == ("Other", None, "DE")
    assert await invoices(api, admin) == [before]
    refused = await api.patch("/v1/billing/profile", None, {"country": "1"}, person=admin)
    assert refused.status == 400


async def test_only_owners_and_admins_buy_and_only_for_the_account_above(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson
) -> None:
    member = await make_person(pool, account.id, "member")
    child = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $1 WHERE id = $2", account.id, child.id)
    below = await make_person(pool, child.id, "owner")

    assert (await checkout(api, member)).status == 403
    assert (await checkout(api, below)).error["type"] == "forbidden"
    assert (await api.post("/v1/billing/checkout", account.token, {"plan": "starter", "profile": PROFILE})).status in {
        401,
        403,
    }
    assert (await api.get("/v1/billing", account.token)).status == 200


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"plan": "enterprise"}, "plan"),
        ({"plan": "gold"}, "plan"),
        ({"profile": PROFILE | {"country": "1x"}}, "profile.country"),
        ({"profile": PROFILE | {"country": "UK"}}, "profile.country"),
        ({"profile": PROFILE | {"country": "ZZ"}}, "profile.country"),
        ({"profile": PROFILE | {"taxId": "DE12"}}, "profile.taxId"),
        ({"profile": PROFILE | {"legalName": " "}}, "profile.legalName"),
        ({"profile": PROFILE | {"legalName": "A\u0000B"}}, "profile.legalName"),
        ({"profile": PROFILE | {"email": "nobody"}}, "profile.email"),
    ],
)
async def test_a_wrong_field_is_named(api: Api, admin: TestPerson, fields: dict[str, Any], field: str) -> None:
    answer = await checkout(api, admin, **fields)

    assert answer.status == 400
    assert answer.error["field"] == field


def numbered(number: str) -> tuple[int, int]:
    """Return the year and the number within it of an invoice."""
    _, year, drawn = number.split("-")
    return int(year), int(drawn)


async def test_invoice_numbers_have_no_gap_under_parallel_payments(
    api: Api, pool: asyncpg.Pool, provider: Provider
) -> None:
    people = [await make_person(pool, (await make_account(pool, plan="free")).id, "owner") for _ in range(8)]
    before = await pool.fetch("SELECT year, latest FROM invoice_numbers")
    latest = {row["year"]: row["latest"] for row in before}  # tests of later years draw numbers too

    await asyncio.gather(*[bought(api, person, provider) for person in people])

    drawn = [numbered(one["number"]) for person in people for one in await invoices(api, person)]
    issued = [numbered(row["number"]) for row in await pool.fetch("SELECT number FROM invoices")]
    assert len(drawn) == 8
    for year, number in drawn:
        of_year = sorted(n for one, n in issued if one == year)
        assert number > latest.get(year, 0)
        assert of_year == list(range(1, len(of_year) + 1))


async def test_a_changed_event_breaks_the_verification(
    api: Api, pool: asyncpg.Pool, account: TestAccount, admin: TestPerson, provider: Provider
) -> None:
    await bought(api, admin, provider)
    await pool.execute(
        "UPDATE billing_events SET payload = replace(payload, '1900', '1') WHERE account_id = $1 AND seq = 3",
        account.id,
    )

    page = (await api.get("/v1/billing/history?limit=2", person=admin)).json

    assert page["chain"]["valid"] is False
    assert page["chain"]["brokenAt"] == 3
    assert page["nextCursor"] == "2"
    rest = (await api.get("/v1/billing/history?after=2", person=admin)).json
    assert [event["seq"] for event in rest["data"]] == [3, 4, 5]
    assert (await api.get(f"/v1/billing/history?after={account.public_id}", person=admin)).error["field"] == "after"


async def test_the_plans_are_listed_with_their_limits_and_prices(api: Api, admin: TestPerson) -> None:
    plans = (await api.get("/v1/billing/plans", person=admin)).json["data"]

    assert [one["plan"] for one in plans] == ["free", "starter", "growth", "scale", "enterprise"]
    assert [one["plan"] for one in plans if one["current"]] == ["free"]
    caps = [{cap["resource"]: cap["limit"] for cap in one["limits"]} for one in plans]
    assert [one["contacts"] for one in caps] == [500, 5_000, 50_000, 250_000, None]
    assert {one["monthlyLimit"] for one in plans[:2]} == {750, 100_000}
    assert plans[1]["prices"][0]["currency"] == "EUR"
    assert plans[0]["prices"] == []
