"""`minTls`: the least transport security a message asks for, from the request to the connection."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import msgspec
import pytest

from engine.base import ids
from engine.base.settings import Settings
from engine.delivery import queue
from engine.sending.emails.request_digest import request_digest
from engine.sending.emails.types import Accepted, SendRequest
from tests.conftest import NewDatabase
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.outbound import World, world
from tests.harness.schedules import comes_due, release, scheduled, within
from tests.harness.sending import message_id, process, request_of, rows_of
from tests.harness.transport import Certified, self_signed
from tests.sending.test_accept_batch import hand_in

LATER_S = (600.0,)
DOMAIN, MX, SERVER = "secure.test", "mx.secure.test", "127.0.0.3"


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world with a queue of its own and a domain that has no policy."""
    async with world(settings, await new_database()) as made:
        made.domain(DOMAIN, SERVER)
        yield made


async def test_verified_waits_for_a_server_that_proves_its_name(here: World, root: Certified, tmp_path: Path) -> None:
    sink = await here.server(SERVER, tls=self_signed(MX).server(tmp_path))
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    strict = await here.send(f"ann@{DOMAIN}", minTls="verified")
    usual = await here.send(f"bob@{DOMAIN}")
    await here.until_step(usual, "delivered")
    await here.until_step(strict, "deferred")

    deferred = dict(await here.waybill(strict))["deferred"]
    assert deferred["class"] == "tls"
    assert deferred["diagnostic"].startswith(f"{MX} does not meet minTls: ")
    assert sink.count == 1


async def test_verified_goes_over_tls_with_a_certificate_that_holds(
    here: World, root: Certified, tmp_path: Path
) -> None:
    await here.server(SERVER, tls=root.leaf(MX).server(tmp_path))
    await here.live(tls_authorities=root.pem(tmp_path))
    messages = [
        await here.send(f"ann@{DOMAIN}", minTls="verified"),
        await here.send(f"bob@{DOMAIN}"),
        await here.send(f"cat@{DOMAIN}", minTls="none"),
    ]
    for message in messages:
        await here.until_step(message, "delivered")

    tls = dict(await here.waybill(messages[0]))["attempted"]["tls"]
    assert (tls["certificate"], tls["policy"]) == ("verified", "minTls")


async def test_verified_never_goes_in_plaintext(here: World, root: Certified, tmp_path: Path) -> None:
    sink = await here.server(SERVER)
    await here.live(tls_authorities=root.pem(tmp_path), retry_ladder_s=LATER_S)
    message = await here.send(f"ann@{DOMAIN}", minTls="verified")
    await here.until_step(message, "deferred")

    assert not [line for line in sink.commands if line.startswith("MAIL")]


async def test_the_wish_is_kept_through_schedule_and_release(settings: Settings, new_database: NewDatabase) -> None:
    own = msgspec.structs.replace(settings, database_url=await new_database())
    async with process(own) as door:
        account = await make_account(door.pool)
        later = await scheduled(door, account, minTls="verified", scheduledAt=within(hours=1))
        await comes_due(door.pool, later)
        assert await release(door.pool, own) == 1
        assert [row.min_tls for row in await rows_of(door.pool, later)] == ["verified"]
        for asked, kept in (("none", "none"), ("verified", "verified"), ("opportunistic", None), (None, None)):
            sent = message_id(await door.send(account, to=["ann@a.test", "bob@b.test"], minTls=asked))
            assert {row.min_tls for row in await rows_of(door.pool, sent)} == {kept}
        relayed = await hand_in(door, account, "X-Waybill-Min-TLS: verified\r\n")
        assert isinstance(relayed, Accepted)
        assert {row.min_tls for row in await rows_of(door.pool, message_id(relayed))} == {"verified"}
        refused = await hand_in(door, account, "X-Waybill-Min-TLS: strong\r\n")
        assert "X-Waybill-Min-TLS" in str(refused)


def test_a_key_stored_before_there_was_minTls_still_fits_its_request() -> None:  # noqa: N802 - the field's own name
    account = TestAccount(ids.uuid7(), "", "b.test")
    plain = request_digest(request_of(account))
    assert request_digest(request_of(account, minTls="opportunistic")) == plain
    assert request_digest(request_of(account, minTls="verified")) != plain
    assert "min_tls" in SendRequest.__struct_fields__


@pytest.mark.parametrize("value", ["strict", "VERIFIED", "", 1, ["none"]])
async def test_any_other_word_is_refused_by_name(api: Api, pool: asyncpg.Pool, value: object) -> None:
    account = await make_account(pool)
    answer = await api.post("/v1/emails", account.token, account.email(minTls=value))
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert answer.error["field"] == "minTls"


async def test_the_api_takes_it(api: Api, pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    answer = await api.post("/v1/emails", account.token, account.email(minTls="verified"))
    assert answer.status == 202
    message = ids.parse_id(ids.Kind.MESSAGE, answer.json["id"])
    (row,) = await queue.load(pool, [(message, "people.test")])
    assert row.min_tls == "verified"
