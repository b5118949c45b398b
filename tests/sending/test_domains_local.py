"""Local mode: its DNS answers as if every owner had published what they were asked to."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import asyncpg
import msgspec
import pytest

from engine.base.settings import HostPort, Settings
from engine.receiving.remove_domain import remove_domain
from engine.sending.domains.service import identity
from ops import admin
from ops.local.dns import Lookup, Responder, local_world
from ops.local.published_records import Published, RecordsUnavailable
from tests.harness.domains import Place, new_name


@pytest.fixture
async def place(pool: asyncpg.Pool, settings: Settings) -> AsyncIterator[Place]:
    published = Published(settings.database_url, identity(settings))
    async with local_world(cast("Lookup", published)) as world:
        yield Place(pool, settings, world)
    await published.close()


async def test_locally_every_record_of_a_setup_is_found(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    checked = await place.verify(account, domain)

    assert checked.domain.status == "verified"
    assert {one.finding.status for one in checked.records} == {"ok"}
    assert len(checked.records) == 12


async def test_locally_one_account_at_a_time_holds_a_name(place: Place) -> None:
    first, second = await place.account(), await place.account()
    held = await place.add(first, new_name())
    await place.verify(first, held)
    wanted = await place.add(second, held.name)

    assert (await place.verify(second, wanted)).domain.status == "pending"
    assert (await place.verify(first, held)).domain.status == "verified"


async def test_locally_a_removed_domains_keys_are_answered_while_mail_may_need_them(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    key = (await place.keys(domain))["wb1"].public_txt
    await remove_domain(place.pool, account.id, domain.id)
    published = Published(place.settings.database_url, identity(place.settings))

    assert await published(f"wb1._domainkey.{domain.name}", "TXT") == [key]
    assert await published(f"x._domainkey.{domain.name}", "TXT") == []
    await published.close()


async def test_lookups_that_wait_for_a_failed_one_open_no_sessions(settings: Settings) -> None:
    opened: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(lambda _, writer: opened.append(writer), "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        published = Published(f"postgresql://nobody@127.0.0.1:{port}/none?sslmode=disable", identity(settings))
        lookups = []
        for number in range(20):  # one after the other: each has some time left when the first gives up
            lookups.append(asyncio.create_task(published(f"d{number}.test", "TXT")))
            await asyncio.sleep(0.03)
        found = await asyncio.gather(*lookups, return_exceptions=True)
        for writer in opened:
            writer.close()

    assert [type(one) for one in found] == [RecordsUnavailable] * 20
    assert len(opened) <= 3  # on a machine that stops for seconds, a later look-up may try again


async def test_lookups_of_one_name_at_once_read_it_once(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    published = Published(place.settings.database_url, identity(place.settings))
    found = await asyncio.gather(*[published(f"wb1._domainkey.{domain.name}", "TXT") for _ in range(20)])
    await published.close()

    assert all(one is found[0] for one in found)


async def test_the_operators_commands_work_with_any_form_of_the_name(place: Place) -> None:
    account = await place.account()
    plain = new_name()
    made = await admin.add_domain(
        place.pool, place.settings, account=account.public_id, name=f"BÜCHER.{plain}.", verified=False
    )
    found = await admin.check_domain(place.pool, place.settings, account=account.public_id, name=f"bücher.{plain}")
    none = await admin.check_domain(place.pool, place.settings, account=account.public_id, name=f"no.{plain}")

    assert made["status"] == "pending"
    assert set(made["records"][0]) == {"type", "host", "value", "required"}
    assert found is not None
    assert (found["name"], found["status"]) == (f"xn--bcher-kva.{plain}", "verified")
    assert {record["status"] for record in found["records"]} == {"ok"}
    assert none is None


async def test_reports_about_any_domain_are_welcome_at_the_mail_host(place: Place) -> None:
    """Receivers ask whether reports about one domain may go to another (RFC 7489 7.1)."""
    published = Published(place.settings.database_url, identity(place.settings))
    host = place.settings.mail_host

    assert await published(f"shop.test._report._dmarc.{host}", "TXT") == ["v=DMARC1"]
    assert await published(f"bounces.{host}", "MX") == [f"10 {host}."]
    await published.close()


async def test_the_local_responder_serves_the_settings_mail_host(place: Place) -> None:
    settings = msgspec.structs.replace(place.settings, mail_host="mx.other.test")
    published = Published(settings.database_url, identity(settings))
    async with Responder(fallback=published) as zone:
        other = Place(place.pool, msgspec.structs.replace(settings, dns_servers=(HostPort(*zone.address),)), zone)
        account = await other.account()
        checked = await other.verify(account, await other.add(account, new_name()))
    await published.close()

    assert {one.finding.status for one in checked.records} == {"ok"}


async def test_locally_the_return_path_host_is_an_alias_of_the_bounce_domain(place: Place) -> None:
    account = await place.account()
    domain = await place.add(account, new_name())
    checked = (await place.verify(account, domain)).domain
    published = Published(place.settings.database_url, identity(place.settings))

    assert checked.return_path == "verified"
    assert await published(checked.return_path_host, "TXT") == [f"v=spf1 a:{place.settings.mail_host} -all"]
    assert await published(f"other.{domain.name}", "TXT") == []
    await published.close()
