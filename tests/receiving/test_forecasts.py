"""Accounts see how receivers treat mail, and get a forecast with a send; never the figures of one or two others."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec import structs

from engine.base import clock
from engine.base.settings import HostPort, Settings
from engine.receiving.analytics.mailbox_providers import MailboxProvider
from engine.receiving.receivers import rules, store, wording
from engine.receiving.receivers.service import STALE_S, ReceiverBoard
from engine.receiving.receivers.time_classes import CLASSES, class_of
from engine.receiving.receivers.types import Cohort, ReceiverKey, ReceiverRow, ReceiverState
from engine.store.resolver import Resolver
from tests.conftest import ServeApi
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.transport import SignedDns

GMAIL = ReceiverKey(MailboxProvider.GOOGLE)
OUTLOOK = ReceiverKey(MailboxProvider.MICROSOFT)
PEER = ReceiverKey(MailboxProvider.OTHER, "mx.peer.test")


def curve(seconds: float, late: float = 0.0, late_s: float = 1e9) -> list[float]:
    """Return a survival curve: all mail takes `seconds`, but a share `late` takes `late_s`."""
    places = min(class_of(late_s), CLASSES - 1) if late else class_of(seconds)
    return [
        1.0 if place < class_of(seconds) else late if place < class_of(late_s) else 0.0 for place in range(places + 1)
    ]


def row(key: ReceiverKey, accounts: list[str], survival: list[float], **fields: Any) -> ReceiverRow:
    at = clock.now()
    made = ReceiverRow(
        provider=key.provider.value, site=key.site, state="normal", since=at, basis="recent", sample=400,
        first_share=0.98, survival=survival, accounts=accounts, updated_at=at,
    )  # fmt: skip
    return structs.replace(made, **fields)


def digests(settings: Settings, *accounts: UUID) -> list[str]:
    return [store.account_digest(settings.pepper, one, clock.now().date()) for one in accounts]


MANY = ["2026-01-01:a", "2026-01-01:b", "2026-01-01:c"]


@pytest.fixture
async def dns() -> AsyncIterator[SignedDns]:
    async with SignedDns() as made:
        made.set("peer.test", "MX", ["10 mx.peer.test."])
        made.set("company.test", "MX", ["10 aspmx.l.google.com."])
        yield made


@pytest.fixture
async def board(own_pool: asyncpg.Pool, settings: Settings, dns: SignedDns) -> AsyncIterator[ReceiverBoard]:
    own = structs.replace(settings, dns_servers=(HostPort(*dns.address),))
    resolver = Resolver.from_settings(own)
    yield ReceiverBoard(own_pool, resolver, own)
    await resolver.close()


async def test_before_any_judgement_all_providers_are_unknown(board: ReceiverBoard) -> None:
    found = await board.reports(None)

    assert [one.provider for one in found] == list(MailboxProvider)
    assert {(one.state, one.sample, one.p90_s, one.since) for one in found} == {
        (ReceiverState.UNKNOWN, None, None, None)
    }
    assert "Too little mail" in found[0].text


async def test_figures_of_one_or_two_others_are_hidden(
    board: ReceiverBoard, own_pool: asyncpg.Pool, settings: Settings
) -> None:
    mine, other = UUID(int=1), UUID(int=2)
    await store.write_receivers(
        own_pool,
        [
            row(GMAIL, digests(settings, mine), curve(2.0)),
            row(OUTLOOK, digests(settings, mine, other), curve(2.0)),
            row(PEER, digests(settings, other), curve(2.0)),
        ],
    )

    def shown(found: list[Any]) -> set[str]:
        return {one.name for one in found if one.sample is not None}

    assert shown(await board.reports(mine)) == {"Gmail"}
    assert shown(await board.reports(other)) == {PEER.site}
    assert shown(await board.reports(None)) == set()
    assert PEER.site not in {one.name for one in await board.reports(mine)}  # not even that somebody sends there


async def test_figures_of_three_accounts_are_for_everybody(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    await store.write_receivers(own_pool, [row(GMAIL, MANY, curve(2.0)), row(PEER, MANY, curve(30.0))])
    found = {one.name: one for one in await board.reports(UUID(int=9))}

    assert (found["Gmail"].sample, found["Gmail"].first_attempt_share, found["Gmail"].state) == (400, 0.98, "normal")
    assert 1.5 < (found["Gmail"].p90_s or 0) < 2.6
    assert (found["mx.peer.test"].provider, found["mx.peer.test"].site) == ("other", "mx.peer.test")


async def test_a_receiver_that_refuses_everything_is_shown(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    at = clock.now()
    refused = Cohort(
        bucket=at - timedelta(minutes=7), provider="google", site="", entered=50, ended=50, first_delivered=0,
        first_deferred=0, first_refused=50, times=[], accounts=MANY,
    )  # fmt: skip
    await store.write_receivers(own_pool, [rules.judged(GMAIL, [refused], None, None, at)])
    found = await board.report(None, "gmail.com")

    assert (found.state, found.sample, found.p90_s) == (ReceiverState.REFUSING, 50, None)
    assert found.text == f"Mail to Gmail has been refused since {at:%H:%M} UTC; 0% of first attempts are accepted."


async def test_old_judgements_say_nothing_of_the_present(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    old = clock.now() - timedelta(seconds=STALE_S + 5)
    await store.write_receivers(own_pool, [row(GMAIL, MANY, curve(2.0), updated_at=old)])

    assert (await board.report(None, "gmail.com")).state is ReceiverState.UNKNOWN


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        ("gmail.com", "Gmail"),
        ("company.test", "Gmail"),
        ("peer.test", "mx.peer.test"),
        ("nowhere.test", "nowhere.test"),
    ],
)
async def test_the_mail_servers_tell_the_receiver_of_a_domain(board: ReceiverBoard, domain: str, name: str) -> None:
    assert (await board.report(None, domain)).name == name


async def test_a_look_up_that_hangs_leaves_the_receiver_unknown(
    own_pool: asyncpg.Pool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.receiving.receivers.service.LOOKUP_S", 0.1)
    nobody = structs.replace(settings, dns_servers=(HostPort("127.0.0.1", 1),))
    resolver = Resolver.from_settings(nobody)
    await store.write_receivers(own_pool, [row(GMAIL, MANY, curve(2.0))])
    found = await ReceiverBoard(own_pool, resolver, nobody).forecast(None, {"peer.test", "gmail.com"}, deliver_by=None)
    await resolver.close()

    assert found is not None
    assert {one.domain: one.sample for one in found.receivers} == {"gmail.com": 400, "peer.test": None}
    assert found.p90_s == next(one.p90_s for one in found.receivers if one.domain == "gmail.com")


async def test_the_slowest_receiver_speaks_for_the_message(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    at = clock.now()
    slow = row(OUTLOOK, MANY, curve(2.0, late=0.5, late_s=1300.0), state="deferring", since=at)
    await store.write_receivers(own_pool, [row(GMAIL, MANY, curve(2.0)), slow])
    found = await board.forecast(None, {"gmail.com", "outlook.com"}, deliver_by=None)

    assert found is not None
    begin = f"Mail to Microsoft has been deferred since {at:%H:%M} UTC; 90% of emails arrive within 2"
    assert found.text.startswith(begin)
    assert found.text.endswith(" min.")
    assert found.p90_s is not None
    assert 1000 < found.p90_s < 1600
    assert found.warning is None


async def test_mail_that_waits_without_an_end_in_sight_has_no_percentile(
    board: ReceiverBoard, own_pool: asyncpg.Pool
) -> None:
    waits = row(OUTLOOK, MANY, [0.4] * class_of(600.0), state="deferring")
    await store.write_receivers(own_pool, [waits])
    found = await board.forecast(None, {"outlook.com"}, deliver_by=None)

    assert found is not None
    assert (found.p90_s, found.receivers[0].p50_s is None) == (None, False)
    assert "more than 10% of emails wait" in found.text


async def test_a_deliver_by_that_will_be_missed_is_warned_of(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    await store.write_receivers(own_pool, [row(OUTLOOK, MANY, curve(2.0, late=0.6, late_s=1300.0))])

    async def warning(after_s: float, waited_s: float = 0.0) -> str | None:
        by = clock.now() + timedelta(seconds=after_s)
        found = await board.forecast(None, {"outlook.com"}, deliver_by=by, waited_s=waited_s)
        assert found is not None
        return found.warning

    assert await warning(300) == "`deliverBy` leaves 5 min; at present 40% of emails to Microsoft arrive in that time."
    assert await warning(3600) is None
    assert await warning(300, waited_s=60.0) == (
        "`deliverBy` leaves 5 min; at present 0% of emails to Microsoft arrive in that time."
    )


async def test_a_waiting_message_is_told_what_is_left(board: ReceiverBoard, own_pool: asyncpg.Pool) -> None:
    await store.write_receivers(own_pool, [row(OUTLOOK, MANY, curve(2.0, late=0.05, late_s=1300.0))])
    found = await board.forecast(None, {"outlook.com"}, deliver_by=None, waited_s=600.0)

    assert found is not None
    assert found.p90_s is not None
    assert found.p90_s > 1000
    assert "emails that waited as long arrive within" in found.text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.02, "0.1 s"), (1.24, "1.2 s"), (40.4, "40 s"), (1320, "22 min"), (11_000, "3 h")]
)
def test_times_are_rounded_to_what_matters(seconds: float, text: str) -> None:
    assert wording.span(seconds) == text


# -- over HTTP ---------------------------------------------------------------------------------------


@pytest.fixture
def own_api(settings: Settings, own_database: str, serve: ServeApi) -> Api:
    return serve(structs.replace(settings, database_url=own_database))


@pytest.fixture
async def judged(own_pool: asyncpg.Pool) -> TestAccount:
    """An account of an installation that has judged Gmail."""
    await store.write_receivers(own_pool, [row(GMAIL, MANY, curve(2.0, late=0.3, late_s=500.0), state="deferring")])
    return await make_account(own_pool)


async def test_sends_return_a_forecast_where_asked(own_api: Api, judged: TestAccount) -> None:
    plain = await own_api.post("/v1/emails", judged.token, judged.email(to="ann@gmail.com"))
    assert "forecast" not in plain.json
    by = clock.iso(clock.now() + timedelta(minutes=2))
    asked = judged.email(to="ann@gmail.com", deliverBy=by) | {"forecast": True}
    sent = await own_api.post("/v1/emails", judged.token, asked)
    assert sent.status == 202, sent
    forecast = sent.json["forecast"]
    assert forecast["text"].startswith("Mail to Gmail has been deferred since ")
    assert "70% of emails to Gmail" in forecast["warning"]
    (one,) = forecast["receivers"]
    assert (one["domain"], one["provider"], one["state"], one["sample"]) == ("gmail.com", "google", "deferring", 400)
    assert one["p50S"] < one["p90S"] == forecast["p90S"]

    dry = await own_api.post("/v1/emails", judged.token, judged.email(to="ann@gmail.com") | {"dryRun": True})
    assert dry.json["forecast"]["p90S"] == forecast["p90S"]
    batch = {"messages": [judged.email(to="ann@gmail.com"), judged.email(to="nobody")], "forecast": True}
    items = (await own_api.post("/v1/emails/batch", judged.token, batch)).json["data"]
    assert items[0]["forecast"]["p90S"] == forecast["p90S"]
    assert "forecast" not in items[1]
    read = (await own_api.get(f"/v1/messages/{sent.json['id']}", judged.token)).json
    assert (read["status"], read["forecast"]["receivers"][0]["domain"]) == ("queued", "gmail.com")


async def test_a_forecast_is_no_part_of_the_message(own_api: Api, judged: TestAccount) -> None:
    mail = judged.email(to="ann@gmail.com", idempotencyKey="k")
    await own_api.post("/v1/emails", judged.token, mail | {"forecast": True})
    again = await own_api.post("/v1/emails", judged.token, mail)
    assert (again.json["status"], again.json.get("bodyDiffers")) == ("duplicate", None)
    asked = await own_api.post("/v1/emails", judged.token, mail | {"forecast": True})
    assert (asked.json["status"], asked.json["forecast"]) == ("duplicate", None)


async def test_scheduled_messages_have_no_forecast(own_api: Api, judged: TestAccount) -> None:
    later = clock.iso(clock.now() + timedelta(hours=5))
    asked = judged.email(to="ann@gmail.com", scheduledAt=later) | {"forecast": True}
    sent = (await own_api.post("/v1/emails", judged.token, asked)).json
    assert (sent["status"], sent["forecast"]) == ("scheduled", None)
    assert (await own_api.get(f"/v1/messages/{sent['id']}", judged.token)).json["forecast"] is None


async def test_receivers_are_listed_and_looked_up_by_domain(
    own_api: Api, judged: TestAccount, own_pool: asyncpg.Pool
) -> None:
    found = (await own_api.get("/v1/receivers", judged.token)).json["data"]
    assert [one["provider"] for one in found] == ["google", "microsoft", "yahoo", "apple", "other"]
    assert (found[0]["state"], found[1]["state"]) == ("deferring", "unknown")
    one = (await own_api.get("/v1/receivers?domain=GMAIL.com", judged.token)).json["data"]
    assert one == [found[0]]
    wrong = await own_api.get("/v1/receivers?domain=a..b", judged.token)
    assert (wrong.status, wrong.error["field"]) == (400, "domain")
    token = await add_key(own_pool, judged.id, scopes=["emails:send"])
    assert (await own_api.get("/v1/receivers", token)).status == 403


async def test_a_limited_key_sees_no_figures_of_its_account(
    own_api: Api, own_pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await make_account(own_pool)
    await store.write_receivers(own_pool, [row(GMAIL, digests(settings, account.id), curve(2.0))])
    limited = await add_key(own_pool, account.id, scopes=["analytics:read"], streams=["transactional"])
    for token, sample in ((account.token, 400), (limited, None)):
        found = (await own_api.get("/v1/receivers", token)).json["data"][0]
        assert found["sample"] == sample


def test_the_limit_of_accounts_is_that_of_the_digests() -> None:
    assert rules.account_count(MANY) == rules.MIN_ACCOUNTS
    assert datetime.fromisoformat(MANY[0][:10])
