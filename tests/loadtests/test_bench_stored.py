"""`ops bench --stored`: the stored messages have the rows that the service writes."""

import asyncpg

from loadtests.bench import stored


async def test_each_stored_message_has_body_recipient_and_events(own_pool: asyncpg.Pool) -> None:
    await stored.store(own_pool, 300, lambda _: None)

    counts = await own_pool.fetchrow(
        """SELECT (SELECT count(*) FROM messages m JOIN message_bodies b ON b.message_id = m.id
                   JOIN recipients r ON r.message_id = m.id AND r.account_id = m.account_id
                   WHERE m.status = r.status AND m.status IN ('delivered', 'bounced')) AS whole,
                  (SELECT count(DISTINCT message_id) FROM events WHERE type IN ('delivered', 'bounced')) AS settled,
                  (SELECT count(*) FROM events) AS events,
                  (SELECT count(DISTINCT tableoid) FROM messages) AS weeks,
                  (SELECT count(*) FROM queue) AS queued"""
    )
    assert counts is not None
    assert (counts["whole"], counts["settled"], counts["events"], counts["queued"]) == (300, 300, 900, 0)
    assert counts["weeks"] >= stored.WEEKS
