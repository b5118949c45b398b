"""Mail to `u+<token>@`, over a real session: the same reply whatever the token, and one opt-out for a genuine one."""

import asyncpg

from engine.base import ids
from engine.mail import unsubscribe_token
from engine.receiving.reports import read_reports
from tests.harness.accounts import TestAccount
from tests.harness.inbound import TestMx, deliver, mail
from tests.harness.report_mails import stored
from tests.harness.unsubscribing import KEY, audience_events, store_link, suppressions

ANN = "ann@people.test"


async def test_mail_to_a_genuine_address_unsubscribes_and_any_other_gets_the_same_reply(
    mx: TestMx, account: TestAccount, pool: asyncpg.Pool
) -> None:
    genuine = f"u+{await store_link(pool, account)}"
    erased = f"u+{unsubscribe_token.token(KEY, ids.uuid7())}"
    forged = genuine[:-1] + ("0" if genuine[-1] != "0" else "1")
    client = await mx.greeted()

    replies = {
        await deliver(client, mail(local, body=""), f"{local.upper()}@{mx.settings.mail_host}", sender="")
        for local in (genuine, erased, forged)
    }
    await read_reports.read_due(pool, mx.settings)

    assert replies == {"250 2.0.0 Stored"}
    results = {local: (await stored(pool, local))[0] for local in (genuine, erased, forged)}
    assert [(results[one]["state"], results[one]["result"]) for one in (genuine, erased, forged)] == [
        ("applied", "opted_out"), ("ignored", "no_link"), ("ignored", "no_token"),
    ]  # fmt: skip
    assert {row["raw"] for row in results.values()} == {None}
    assert await suppressions(pool, account) == {ANN: "unsubscribe"}
    assert [detail["source"] for _, detail in await audience_events(pool, account)] == ["unsubscribe_mail"] * 2


async def test_a_repeated_mail_counts_once_and_another_one_later_counts_again(
    mx: TestMx, account: TestAccount, pool: asyncpg.Pool
) -> None:
    local = f"u+{await store_link(pool, account)}"
    client = await mx.greeted()
    for subject in ("unsubscribe", "unsubscribe", "once more"):
        await deliver(client, mail(local, subject=subject, body=""), f"{local}@{mx.settings.mail_host}")
        await read_reports.read_due(pool, mx.settings)
        await pool.execute("DELETE FROM suppressions WHERE account_id = $1", account.id)

    assert len(await stored(pool, local)) == 2
    assert [kind for kind, _ in await audience_events(pool, account)].count("suppression.added") == 2


async def test_repeated_mail_leaves_no_rows_once_the_person_has_unsubscribed(
    mx: TestMx, account: TestAccount, pool: asyncpg.Pool
) -> None:
    local = f"u+{await store_link(pool, account)}"
    client = await mx.greeted()
    for number in range(4):
        await deliver(client, mail(local, subject=f"{number}", body=""), f"{local}@{mx.settings.mail_host}")
        await read_reports.read_due(pool, mx.settings)

    assert [row["result"] for row in await stored(pool, local)] == ["opted_out"]
    assert [kind for kind, _ in await audience_events(pool, account)].count("suppression.added") == 1
