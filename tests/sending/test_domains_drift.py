"""Background checks of domains: due checks, leases, key rotation, and removal."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.receiving.remove_domain import remove_domain
from engine.sending.domains import jobs, rules
from engine.sending.domains.types import DomainRow
from engine.store.postgres import open_pool
from ops.local.dns import DnsBehaviour, Responder
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount
from tests.harness.domains import Place, new_name


@pytest.fixture
async def place(settings: Settings, new_database: NewDatabase) -> AsyncIterator[Place]:
    """A database to itself: the job looks after every domain that it finds."""
    pool = await open_pool(await new_database(), name="tests", largest=8)
    async with Responder() as zone:
        yield Place(pool, settings, zone)
    await pool.close()


async def now_due(place: Place, *domains: DomainRow) -> None:
    """Only these are due."""
    await place.pool.execute("UPDATE domains SET check_at = now() + interval '1 hour'")
    await place.pool.execute(
        "UPDATE domains SET check_at = now() - interval '1 second' WHERE id = ANY($1::uuid[])",
        [domain.id for domain in domains],
    )


async def wait_s(place: Place, domain: DomainRow) -> float | None:
    """Seconds to the domain's next check."""
    wait: float | None = await place.pool.fetchval(
        "SELECT extract(epoch FROM check_at - now())::float8 FROM domains WHERE id = $1", domain.id
    )
    return wait


async def round_of(place: Place, *domains: DomainRow) -> int:
    await now_due(place, *domains)
    return await jobs.check_due(place.pool, place.settings)


async def test_a_new_domain_is_found_published_without_anybody_asking(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    assert 50 < (await wait_s(place, domain) or 0) <= 60
    await place.publish(domain)

    assert await round_of(place, domain) == 1
    assert (await place.row(account, domain.id)).status == "verified"
    assert await place.kinds(account) == ["domain.added", "domain.verified"]
    every_s = place.settings.domain_check_s
    assert every_s * 0.89 < (await wait_s(place, domain) or 0) < every_s * 1.11


async def test_drift_is_told_at_the_second_round_and_mended_at_the_next(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    await place.withdraw(domain, "wb1")
    await round_of(place, domain)
    once = (await place.row(account, domain.id)).status
    soon = await wait_s(place, domain)
    await round_of(place, domain)
    twice = (await place.row(account, domain.id)).status
    await place.publish(domain, "wb1")
    await round_of(place, domain)

    assert (once, twice) == ("verified", "failed")
    assert soon is not None
    assert soon < rules.SOON_S * 1.2
    assert await place.kinds(account) == ["domain.added", "domain.verified", "domain.failed", "domain.verified"]


async def test_dns_that_fails_for_days_costs_no_domain_its_standing(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    place.zone.behave_under(domain.name, DnsBehaviour(rcode="SERVFAIL"))
    for _ in range(5):
        await round_of(place, domain)

    assert (await place.row(account, domain.id)).status == "verified"
    assert await place.kinds(account) == ["domain.added", "domain.verified"]


async def test_an_old_domain_that_was_never_published_is_left_in_peace(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.pool.execute("UPDATE domains SET created_at = now() - interval '8 days' WHERE id = $1", domain.id)
    await round_of(place, domain)

    assert await wait_s(place, domain) is None
    assert await jobs.check_due(place.pool, place.settings) == 0


@pytest.mark.exhaustive
async def test_several_workers_share_the_due_domains_and_check_each_once(place: Place) -> None:
    account = await place.account()
    domains = [await _insert(place, account, f"n{number}.{new_name()}") for number in range(120)]
    await place.pool.execute("UPDATE domains SET check_at = now() + interval '1 hour'")
    await place.pool.execute(
        "UPDATE domains SET check_at = now() - interval '1 second' WHERE id = ANY($1::uuid[])", domains
    )
    done = await asyncio.gather(*[jobs.check_due(place.pool, place.settings) for _ in range(4)])
    names = {one.name for one in place.zone.questions if one.name.startswith("wb1._domainkey.")}
    asked = {one for one in names if one.count(".test") == 1}  # without those to which a DNS host may append the zone

    assert sum(done) == 120
    assert len(asked) == 120  # a question is sent again when its answer is late: the names count, not the questions


async def test_what_a_dead_worker_had_claimed_comes_round_again(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await now_due(place, domain)
    work = asyncio.create_task(jobs.check_due(place.pool, place.settings))
    place.zone.behave_under(domain.name, DnsBehaviour(drop=True))
    await asyncio.sleep(0.3)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    wait = await wait_s(place, domain)

    assert wait is not None
    assert 0 < wait <= jobs.CLAIMED_FOR.total_seconds()


async def test_a_domain_that_breaks_its_check_holds_up_no_other(place: Place) -> None:
    account = await place.account()
    broken, sound = await place.add(account, new_name()), await place.add(account, new_name())
    await place.pool.execute("UPDATE domain_keys SET public_txt = '' WHERE domain_id = $1", broken.id)
    place.zone.set(f"wb1._domainkey.{broken.name}", "TXT", ["v=DKIM1; p=AAAA"])
    await place.publish(sound)

    assert await round_of(place, broken, sound) == 2
    assert (await place.row(account, sound.id)).status == "verified"


async def test_a_waiting_key_is_found_in_the_background_and_takes_over(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    await place.withdraw(domain, "wb2")
    await place.pool.execute(
        "UPDATE domain_keys SET status = 'pending' WHERE domain_id = $1 AND selector = 'wb2'", domain.id
    )
    await round_of(place, domain)
    waiting = await wait_s(place, domain)
    await place.publish(domain, "wb2")
    await round_of(place, domain)

    assert waiting is not None
    assert waiting < rules.SOON_S * 1.2
    assert (await place.keys(domain))["wb2"].status == "active"
    assert "domain.key_rotated" in await place.kinds(account)


async def test_a_retired_key_makes_place_for_a_fresh_one_that_stands_by(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    before = await place.keys(domain)
    await place.pool.execute(
        "UPDATE domain_keys SET status = 'retiring', retire_at = now() + interval '1 minute' "
        "WHERE domain_id = $1 AND selector IN ('wb2', 'wb2e')",
        domain.id,
    )
    early = await jobs.retire_keys(place.pool, place.settings)
    await place.pool.execute("UPDATE domain_keys SET retire_at = now() - interval '1 second' WHERE status = 'retiring'")
    on_time = await asyncio.gather(*[jobs.retire_keys(place.pool, place.settings) for _ in range(2)])
    after = await place.keys(domain)

    assert early == 0
    assert max(on_time) == 2
    assert {after["wb2"].status, after["wb2e"].status} == {"standby"}
    assert after["wb2"].public_txt != before["wb2"].public_txt
    assert after["wb1"] == before["wb1"]
    assert await jobs.retire_keys(place.pool, place.settings) == 0


async def test_a_removed_domain_keeps_its_keys_until_no_mail_can_need_them(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    await place.pool.execute(
        "INSERT INTO queue (message_id, domain, shard, account_id, from_domain, recipients, total, due_at)"
        " VALUES ($1, 'people.test', 0, $2, $3, '[]', 1, now())",
        ids.uuid7(), account.id, domain.name,
    )  # fmt: skip
    await remove_domain(place.pool, account.id, domain.id)
    kept = [await _forget(place)]
    await place.pool.execute("UPDATE domains SET deleted_at = now() - interval '73 hours' WHERE id = $1", domain.id)
    kept.append(await _forget(place))
    await place.pool.execute("DELETE FROM queue")
    kept.append(await _forget(place))

    assert kept == [0, 0, 1]
    assert await place.pool.fetchval("SELECT count(*) FROM domain_keys WHERE domain_id = $1", domain.id) == 0


async def test_the_next_check_of_a_claimed_domain_is_written_over_the_claim(place: Place) -> None:
    account = await place.account()
    domain = await place.verified(account, new_name())
    await round_of(place, domain)

    assert (await place.row(account, domain.id)).checked_at is not None
    assert (await wait_s(place, domain) or 0) > timedelta(hours=5).total_seconds()
    assert clock.now() - ((await place.row(account, domain.id)).checked_at or clock.now()) < timedelta(seconds=10)


async def _forget(place: Place) -> int:
    return await jobs.forget_removed(place.pool, place.settings)


async def _insert(place: Place, account: TestAccount, domain: str) -> UUID:
    """A domain with keys that stand in for real ones: nothing signs here, and real ones take their time to make."""
    made = ids.uuid7()
    await place.pool.execute("INSERT INTO domains (id, account_id, name) VALUES ($1, $2, $3)", made, account.id, domain)
    await place.pool.execute(
        "INSERT INTO domain_keys (domain_id, selector, algorithm, sealed_key, public_txt, status)"
        " VALUES ($1, 'wb1', 'rsa-sha256', '', 'v=DKIM1; k=rsa; p=AAAA', 'active')",
        made,
    )
    return made
