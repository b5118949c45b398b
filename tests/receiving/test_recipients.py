"""What the MX answers to a recipient: claimed addresses, report addresses, and each refusal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from engine.base import clock, ids
from engine.base.settings import Settings
from engine.receiving.inbound_addresses import service
from engine.receiving.inbound_addresses import store as addresses
from engine.receiving.inbound_addresses.rules import managed_domain
from engine.receiving.recipients import STATE_S, RecipientLookup
from engine.receiving.types import InboundRecipient, RecipientPurpose, RecipientRefusal
from engine.sending.domains import store as domains
from engine.store.caches import Stamps
from engine.store.postgres import open_pool
from tests.harness.accounts import TestAccount, add_domain, make_account, set_status


async def claim(pool: asyncpg.Pool, account: TestAccount, address: str, **more: Any) -> UUID:
    row = await service.claim(pool, account.id, address, label=None, mail_host="mail.waybill.test", **more)
    return row.id


async def label_of(pool: asyncpg.Pool, account: TestAccount) -> str:
    found = await addresses.LABEL_OF.first(pool, account.id)
    assert found is not None
    return found.label


async def domain_id(pool: asyncpg.Pool, account: TestAccount, name: str | None = None) -> UUID:
    row = await domains.READ.first(pool, account.id, name or account.domain)
    assert row is not None
    return row.id


async def mark(pool: asyncpg.Pool, account: TestAccount, name: str, status: str) -> None:
    await domains.MARK.execute(pool, await domain_id(pool, account, name), status)


@pytest.fixture
def lookup(pool: asyncpg.Pool, settings: Settings) -> RecipientLookup:
    return RecipientLookup(pool, settings)


async def reached(lookup: RecipientLookup, address: str) -> InboundRecipient:
    found = await lookup.find(address)
    assert isinstance(found, InboundRecipient), (address, found)
    return found


async def test_a_claimed_address_is_found_in_any_case_and_idn_form(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    name = f"bücher-{ids.encode(account.id)}.test"
    from engine.mail.address import domain_name

    await add_domain(pool, account.id, domain_name(name))
    address = await claim(pool, account, f"Support@{name}")

    for given in (f"support@{name}", f"SUPPORT@{domain_name(name).upper()}", f'"support"@{domain_name(name)}'):
        found = await reached(lookup, given)
        assert (found.purpose, found.account_id, found.address_id) == (RecipientPurpose.ADDRESS, account.id, address)
        assert (found.given, found.tag) == (given, None)
        assert (found.address, found.domain) == (f"Support@{domain_name(name)}", domain_name(name))


async def test_a_plus_tag_reaches_the_address_without_it_unless_it_is_claimed_itself(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    plain = await claim(pool, account, f"support@{account.domain}")
    tagged = await claim(pool, account, f"support+vip@{account.domain}")

    found = await reached(lookup, f"Support+Case42+b@{account.domain}")
    own = await reached(lookup, f"support+VIP@{account.domain}")

    assert (found.address_id, found.tag) == (plain, "Case42+b")
    assert (own.address_id, own.tag) == (tagged, None)
    assert await lookup.find(f"+x@{account.domain}") is RecipientRefusal.UNKNOWN


async def test_the_catch_all_gets_what_nobody_claimed_also_not_what_is_disabled(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    everything = await claim(pool, account, f"*@{account.domain}")
    sales = await claim(pool, account, f"sales@{account.domain}")

    assert (await reached(lookup, f"anyone+1@{account.domain}")).address_id == everything
    assert (await reached(lookup, f"anyone+1@{account.domain}")).tag == "1"
    assert (await reached(lookup, f"sales@{account.domain}")).address_id == sales
    await service.change(pool, account.id, sales, enabled=False)
    assert await lookup.find(f"sales@{account.domain}") is RecipientRefusal.DISABLED


async def test_unknown_disabled_and_foreign_addresses_are_refused_differently(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    sales = await claim(pool, account, f"sales@{account.domain}")
    await service.change(pool, account.id, sales, enabled=False)

    assert await lookup.find(f"nobody@{account.domain}") is RecipientRefusal.UNKNOWN
    assert await lookup.find(f"sales@{account.domain}") is RecipientRefusal.DISABLED
    assert await lookup.find("anyone@elsewhere.test") is RecipientRefusal.NOT_OURS
    for broken in (
        "",
        "nobody",
        "@",
        f"@{account.domain}",
        "x" * 65 + f"@{account.domain}",
        "x@" + "y" * 254,
        f"a\0@{account.domain}",
        f"\udcff@{account.domain}",
    ):
        assert await lookup.find(broken) is RecipientRefusal.UNKNOWN, broken
    for foreign in ("a@[192.0.2.1]", "x@a.b.in.mail.waybill.test", "a@-", "a@b..c", "a@xn--\udcff.test"):
        assert await lookup.find(foreign) is RecipientRefusal.NOT_OURS, foreign


async def test_a_domain_that_was_never_verified_receives_nothing(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    name = f"new-{account.domain}"
    await add_domain(pool, account.id, name, verified=False)

    assert await lookup.find(f"x@{name}") is RecipientRefusal.NOT_OURS


async def test_a_domain_receives_until_it_is_removed_or_another_account_verifies_its_name(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    name, other = account.domain, await make_account(pool)
    mine = await claim(pool, account, f"support@{name}")
    await add_domain(pool, other.id, name, verified=False)

    async def holder() -> UUID | RecipientRefusal | None:
        found = await RecipientLookup(pool, settings).find(f"support@{name}")
        return found.address_id if isinstance(found, InboundRecipient) else found

    await mark(pool, account, name, "failed")
    assert await holder() == mine
    await mark(pool, other, name, "verified")
    assert await holder() is RecipientRefusal.UNKNOWN
    theirs = await claim(pool, other, f"support@{name}")
    assert await holder() == theirs
    await mark(pool, other, name, "failed")
    assert await holder() == theirs
    await domains.REMOVE.execute(pool, other.id, await domain_id(pool, other, name), clock.now())
    assert await holder() is RecipientRefusal.NOT_OURS
    await mark(pool, account, name, "verified")
    assert await holder() == mine


@pytest.mark.parametrize(
    ("address", "purpose", "local"),
    [
        ("b+0123456789abcdefghjkmnpqrstvwxyz01234567@bounces.mail.waybill.test", "bounce", None),
        ("B+Forged@Bounces.Mail.Waybill.Test", "bounce", "b+forged"),
        ("fbl@mail.waybill.test", "feedback", "fbl"),
        ("dmarc+token@mail.waybill.test", "dmarc", "dmarc+token"),
        ("TLS+TOKEN@mail.waybill.test", "tls", "tls+token"),
    ],
)
async def test_report_addresses_are_accepted_whether_or_not_their_token_is_genuine(
    lookup: RecipientLookup, address: str, purpose: str, local: str | None
) -> None:
    found = await reached(lookup, address)

    assert found.purpose == purpose
    assert local is None or found.local == local
    assert found.host == address.partition("@")[2].lower()
    assert (found.account_id, found.address_id, found.given) == (None, None, address)


async def test_reports_are_taken_at_the_return_path_host_of_a_customers_domain(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    host = f"bounce.{account.domain}"
    await claim(pool, account, f"fbl@{account.domain}")

    for local, purpose in (("b+any", RecipientPurpose.BOUNCE), ("FBL", RecipientPurpose.FEEDBACK)):
        found = await reached(lookup, f"{local}@{host}")
        assert (found.purpose, found.local, found.host) == (purpose, local.lower(), host)
        assert (found.account_id, found.address_id) == (None, None)
    assert await lookup.find(f"other@{host}") is RecipientRefusal.UNKNOWN
    assert await lookup.find(f"b+any@elsewhere.{account.domain}") is RecipientRefusal.NOT_OURS
    assert (await reached(lookup, f"fbl@{account.domain}")).purpose is RecipientPurpose.ADDRESS


@pytest.mark.parametrize(
    "address",
    [
        "b+x@mail.waybill.test", "b@bounces.mail.waybill.test", "dmarc+x@bounces.mail.waybill.test",
        "dmarc@mail.waybill.test", "fbl+x@mail.waybill.test", "hello@mail.waybill.test", "x@in.mail.waybill.test",
        "x@unknown.in.mail.waybill.test", "u+x@bounces.mail.waybill.test",
    ],
)  # fmt: skip
async def test_other_addresses_at_our_own_hosts_are_unknown(lookup: RecipientLookup, address: str) -> None:
    assert await lookup.find(address) is RecipientRefusal.UNKNOWN


async def test_suspended_accounts_receive_and_closing_ones_do_not(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    await claim(pool, account, f"support@{account.domain}")

    await set_status(pool, account.id, "suspended")
    await reached(RecipientLookup(pool, settings), f"support@{account.domain}")
    await set_status(pool, account.id, "closing")
    found = await RecipientLookup(pool, settings).find(f"support@{account.domain}")
    assert found is RecipientRefusal.DISABLED


async def test_a_closing_account_claims_nothing_for_its_managed_domain(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    host = managed_domain(await label_of(pool, account), "mail.waybill.test")
    await set_status(pool, account.id, "closing")

    assert await lookup.find(f"x@{host}") is RecipientRefusal.UNKNOWN
    assert await addresses.FIND.fetch(pool, account.id, [f"*@{host}"]) == []


async def test_a_month_that_is_used_up_refuses_for_now_also_for_sub_accounts(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    child = await make_account(pool)
    await pool.execute("UPDATE accounts SET parent_id = $2 WHERE id = $1", child.id, account.id)
    for one in (account, child):
        await claim(pool, one, f"support@{one.domain}")
    month = clock.first_of_month(clock.now().date())
    await pool.execute("INSERT INTO plan_usage VALUES ($1, 'received_messages', $2, 199999)", account.id, month)
    lookup = RecipientLookup(pool, settings)
    for one in (account, child):
        await reached(lookup, f"support@{one.domain}")

    await pool.execute("UPDATE plan_usage SET used = 200000 WHERE account_id = $1", account.id)

    await asyncio.sleep(STATE_S)
    for one in (account, child):
        assert await lookup.find(f"support@{one.domain}") is RecipientRefusal.MONTH_USED


async def test_a_change_elsewhere_is_seen_with_its_stamp(
    pool: asyncpg.Pool, lookup: RecipientLookup, account: TestAccount
) -> None:
    stamps = Stamps(pool, lookup.caches)
    await stamps.check()
    assert await lookup.find(f"support@{account.domain}") is RecipientRefusal.UNKNOWN
    await pool.execute("UPDATE domains SET receives_since = NULL WHERE account_id = $1", account.id)
    await pool.execute("UPDATE stamps SET version = version + 1 WHERE kind = 'domains'")
    assert await lookup.find(f"support@{account.domain}") is RecipientRefusal.UNKNOWN

    await stamps.check()

    assert await lookup.find(f"support@{account.domain}") is RecipientRefusal.NOT_OURS


# -- the managed receiving domain -------------------------------------------------------------------


async def test_the_managed_domain_receives_at_any_address_without_a_claim_or_dns(
    pool: asyncpg.Pool, lookup: RecipientLookup
) -> None:
    account = await make_account(pool, verified=False)
    host = managed_domain(await label_of(pool, account), "mail.waybill.test")

    found = await reached(lookup, f"anything+7@{host.upper()}")

    assert (found.account_id, found.domain, found.address, found.tag) == (account.id, host, f"*@{host}", "7")
    assert (await reached(lookup, f"other@{host}")).address_id == found.address_id
    assert len(await addresses.LIST.fetch(pool, account.id, None, None, 10)) == 1
    own = await claim(pool, account, f"own@{host}")
    assert (await reached(lookup, f"own@{host}")).address_id == own


async def test_parallel_first_mails_claim_the_managed_domain_once(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    host = managed_domain(await label_of(pool, account), "mail.waybill.test")

    found = await asyncio.gather(*(reached(RecipientLookup(pool, settings), f"a{n}@{host}") for n in range(8)))

    assert len({one.address_id for one in found}) == 1


async def test_the_managed_domain_is_unknown_without_room_in_the_plan_and_once_deleted(
    pool: asyncpg.Pool, settings: Settings, lookup: RecipientLookup, account: TestAccount
) -> None:
    free = await make_account(pool, plan="free")
    nothing = managed_domain(await label_of(pool, free), "mail.waybill.test")
    host = managed_domain(await label_of(pool, account), "mail.waybill.test")

    assert await lookup.find(f"x@{nothing}") is RecipientRefusal.UNKNOWN
    found = await reached(lookup, f"x@{host}")
    assert found.address_id is not None
    await service.delete(pool, account.id, found.address_id)
    assert await lookup.find(f"x@{host}") is RecipientRefusal.UNKNOWN
    assert await RecipientLookup(pool, settings).find(f"x@{host}") is RecipientRefusal.UNKNOWN
    again = await claim(pool, account, f"*@{host}")
    assert (await reached(lookup, f"x@{host}")).address_id == again


# -- the platform account ---------------------------------------------------------------------------


@pytest.fixture
async def own_pool(own_database: str) -> AsyncIterator[asyncpg.Pool]:
    opened = await open_pool(own_database, name="tests", largest=2)
    yield opened
    await opened.close()


async def test_postmaster_and_abuse_of_our_own_hosts_reach_the_platform_account(
    own_pool: asyncpg.Pool, settings: Settings
) -> None:
    for address in ("postmaster", "Abuse+x@bounces.mail.waybill.test"):  # kept with the reports until there is one
        found = await reached(RecipientLookup(own_pool, settings), address)
        assert (found.purpose, found.local) == (RecipientPurpose.OPERATOR, address.lower().partition("+")[0])
    platform = await make_account(own_pool, plan="free")
    await own_pool.execute("INSERT INTO platform (account_id) VALUES ($1)", platform.id)
    lookup = RecipientLookup(own_pool, settings)

    for host in ("mail.waybill.test", "bounces.mail.waybill.test", "in.mail.waybill.test"):
        for local in ("Postmaster", "abuse"):
            found = await reached(lookup, f"{local}@{host}")
            assert (found.purpose, found.account_id) == (RecipientPurpose.PLATFORM, platform.id)
            assert (found.address, found.domain) == (f"{local.lower()}@{host}", host)
            assert await reached(lookup, f"{local}@{host}") == found
    assert (await reached(lookup, "postmaster")).address == "postmaster@mail.waybill.test"
    assert (await reached(lookup, "PostMaster")).given == "PostMaster"


async def test_postmaster_of_a_customers_domain_is_always_accepted_outside_the_plan(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    await pool.execute("UPDATE accounts SET plan = 'free' WHERE id = $1", account.id)  # no inbound addresses
    lookup = RecipientLookup(pool, settings)

    for given in (f"postmaster@{account.domain}", f"PostMaster+x@{account.domain}"):
        found = await reached(lookup, given)
        assert (found.purpose, found.account_id) == (RecipientPurpose.POSTMASTER, account.id)
        assert (found.address, found.given) == (f"postmaster@{account.domain}", given)
    assert await lookup.find(f"abuse@{account.domain}") is RecipientRefusal.UNKNOWN
    async with pool.acquire() as connection:
        assert await addresses.count(connection, account.id) == 0

    host = f"bounce.{account.domain}"  # its MX is ours
    assert (await reached(lookup, f"postmaster@{host}")).purpose in (
        RecipientPurpose.OPERATOR, RecipientPurpose.PLATFORM,
    )  # fmt: skip


async def test_a_claimed_postmaster_is_an_address_like_any_other(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    claimed = await claim(pool, account, f"postmaster@{account.domain}")
    found = await reached(RecipientLookup(pool, settings), f"postmaster@{account.domain}")

    assert (found.purpose, found.address_id) == (RecipientPurpose.ADDRESS, claimed)


async def test_postmaster_is_accepted_when_the_month_is_used_up_and_not_for_a_closing_account(
    pool: asyncpg.Pool, settings: Settings, account: TestAccount
) -> None:
    await pool.execute("UPDATE accounts SET plan = 'free' WHERE id = $1", account.id)
    await pool.execute(
        "INSERT INTO plan_usage (account_id, resource, month, used) VALUES ($1, 'received_messages', $2, 1000000000)",
        account.id, clock.first_of_month(clock.now().date()),
    )  # fmt: skip
    postmaster = f"postmaster@{account.domain}"
    assert (await reached(RecipientLookup(pool, settings), postmaster)).purpose is RecipientPurpose.POSTMASTER

    await set_status(pool, account.id, "closing")
    assert await RecipientLookup(pool, settings).find(postmaster) is RecipientRefusal.DISABLED
