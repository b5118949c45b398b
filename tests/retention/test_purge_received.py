"""Expired received mail goes with its bytes and its counts; digests of copies go after a day."""

from datetime import timedelta

import asyncpg

from engine.base import clock
from engine.base.settings import Settings
from engine.receiving.receive import Receiver
from engine.retention import purge_received
from tests.harness.accounts import make_account
from tests.harness.received_mail import claim, counts_of, messages_of, receive


async def test_expired_messages_go_with_their_bytes_unless_another_account_keeps_them(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    short, long = await make_account(pool), await make_account(pool)
    addresses = await claim(pool, short), await claim(pool, long)
    receiver = Receiver(pool, settings)
    await receive(receiver, addresses[0].recipient())
    await receive(receiver, addresses[0].recipient(), addresses[1].recipient())
    await receive(receiver, addresses[0].recipient())
    alone, shared, young = await messages_of(pool, short.id)

    async with pool.acquire() as connection:
        gone = await purge_received.delete_received(connection, short.id, young["id"], late=lambda: False)

    assert gone == 2
    assert [row["id"] for row in await messages_of(pool, short.id)] == [young["id"]]
    assert await counts_of(pool, short.id) == {(True, False, False): 1}
    raws = [one["raw_id"] for one in (alone, shared, young)]
    kept = await pool.fetch("SELECT id FROM inbound_bytes WHERE id = ANY ($1) ORDER BY id", raws)
    assert [row["id"] for row in kept] == raws[1:]


async def test_digests_of_copies_are_forgotten_after_a_day(pool: asyncpg.Pool, settings: Settings) -> None:
    account = await make_account(pool)
    address = await claim(pool, account)
    await receive(Receiver(pool, settings), address.recipient())
    held = "SELECT count(*) FROM inbound_recent WHERE account_id = $1"

    async with pool.acquire() as connection:
        await purge_received.forget_copies(connection, clock.now() + timedelta(hours=23), late=lambda: False)
        assert await pool.fetchval(held, account.id) == 1
        await purge_received.forget_copies(connection, clock.now() + timedelta(hours=25), late=lambda: False)
    assert await pool.fetchval(held, account.id) == 0
