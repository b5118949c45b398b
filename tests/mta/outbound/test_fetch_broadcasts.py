"""Fetching the mail of broadcasts by due time, beside other mail."""

from collections import Counter
from uuid import UUID

import pytest

from tests.harness.outbound import World


async def broadcast_to(here: World, *domains: str, count: int) -> list[UUID]:
    """Queue so many messages for each domain as a broadcast's: of the last priority, due, without hints."""
    messages = []
    for domain in domains:
        messages += await here.send_many(count, lambda n, domain=domain: f"reader{n}@{domain}")  # type: ignore[misc]
    await here.flush_hints()
    await here.pool.execute("UPDATE queue SET priority = 3, due_at = now() WHERE message_id = ANY($1)", messages)
    return messages


@pytest.mark.exhaustive
async def test_every_due_row_of_a_broadcast_is_delivered_once(here: World) -> None:
    domains = [f"d{number}.test" for number in range(5)]
    for domain in domains:
        here.domain(domain)
    await broadcast_to(here, *domains, count=60)
    await here.mta(mta_active_limit=100)
    await here.until_idle()

    taken = Counter(one.recipients[0] for one in here.sink.messages)
    assert len(taken) == 300
    assert set(taken.values()) == {1}


async def test_a_server_that_keeps_a_broadcast_waiting_does_not_delay_its_mail_for_others(here: World) -> None:
    here.domain("slow.test", "127.0.0.2")
    slow = await here.server("127.0.0.2")
    slow.script("MAIL", delay_s=60.0)
    await broadcast_to(here, "slow.test", count=100)
    await broadcast_to(here, "peer.test", count=40)
    await here.mta(reply_timeout_s=120.0)

    await here.until(lambda: here.sink.count == 40)
    assert slow.count == 0


async def test_other_mail_passes_a_broadcast_that_fills_the_queue(here: World) -> None:
    here.sink.script(".", delay_s=0.02)
    broadcast = await broadcast_to(here, "peer.test", count=500)
    await here.mta(site_connections=2)
    await here.until(lambda: here.sink.count > 0)
    messages = [await here.send(f"ann{number}@peer.test") for number in range(3)]
    for message in messages:
        await here.until_step(message, "delivered")

    assert here.sink.count < len(broadcast)
    active = here.mtas[0].outbound.active
    held = sum(count for (_, _, priority), count in active.by_domain.items() if priority == 3)
    assert held < len(broadcast) / 2  # the others wait in Postgres, their keys at most in memory
