"""Rules of the erasure by recipient: nothing that names the address is left, and the log still verifies."""

import asyncio
from datetime import timedelta

import asyncpg
import orjson
import pytest

from engine.accounts.audit import store as audit
from engine.base import clock, ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.mail.address import parse_mailbox
from engine.receiving.receive import Receiver
from engine.retention import erase_address
from engine.retention.erasures import rules, service
from engine.sending.emails import submitted
from engine.sending.emails.submitted import Submitted
from engine.sending.preparation import Origin
from engine.sending.suppressions import service as suppressions
from engine.sending.suppressions.types import Reason
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.broadcasts import broadcasting, make_list, with_stream
from tests.harness.people import make_person, signed_in
from tests.harness.received_mail import ClaimedAddress, mail, receive
from tests.harness.sending import accept
from tests.harness.unsubscribing import store_link
from tests.retention.test_erase import tables


async def erased(pool: asyncpg.Pool, settings: Settings, account: TestAccount) -> None:
    """Work on the open erasures until those of the account are completed."""
    async with asyncio.timeout(60):
        while await pool.fetchval(
            "SELECT count(*) FROM erasures WHERE account_id = $1 AND state <> 'completed'", account.id
        ):
            await erase_address.erase_requested(pool, settings, hold_known_s=0.01)


CONTENT = {"message_bodies": "message_id", "inbound_bytes": "id"}  # those of all tests before take minutes to read


async def naming(pool: asyncpg.Pool, account: TestAccount, address: str) -> dict[str, int]:
    """Return how many rows of which tables name the address, in text or octets; of content since the account exists."""
    wanted = [f"%{address}%", f"%{address.encode().hex()}%", f"%{address.replace('@', '%40')}%".replace("%40", "\\%40")]
    found = {}
    for table in await tables(pool):
        since = f"{CONTENT[table]} >= $2" if table in CONTENT else "$2::uuid IS NOT NULL"
        count = await pool.fetchval(
            f"SELECT count(*) FROM {table} AS t WHERE {since} AND lower(t::text) LIKE ANY ($1::text[])",
            wanted, account.id,
        )  # fmt: skip
        if count:
            found[table] = count
    return found


async def send(api: Api, account: TestAccount, **fields: object) -> str:
    answer = await api.post("/v1/emails", account.token, account.email(**fields))
    assert answer.status == 202, answer.body
    return str(answer.json["id"])


async def fill(api: Api, pool: asyncpg.Pool, settings: Settings, account: TestAccount, address: str) -> dict[str, str]:
    """Bring the address into the account by all ways that lead there; return ids."""
    other = f"other-{ids.encode(account.id)}@people.test"
    things = {
        "only": await send(api, account, to=[address], subject=f"For {address}", metadata={"to": address}),
        "both": await send(api, account, to=[f"Ann <{address}>", other], subject="For both"),
        "later": await send(api, account, to=[address], scheduledAt=clock.iso(clock.now() + timedelta(hours=2))),
        "named": await send(api, account, to=[other], replyTo=address, subject="A question"),
        "stays": await send(api, account, to=[other], subject=f"About x{address}"),
        "idempotent": await send(api, account, to=[other], idempotencyKey=f"welcome-{address}"),
    }
    made = await api.post("/v1/lists", account.token, {"name": "News"})
    person = {"email": address, "name": address, "consent": "customer", "lists": [made.json["id"]]}
    assert (await api.post("/v1/contacts", account.token, person)).status == 201
    await with_stream(pool, account)
    draft = {"name": "News", "from": account.sender, "list": made.json["id"], "text": "Hi"}
    broadcast = await api.post("/v1/broadcasts", account.token, draft)
    await pool.execute(
        "INSERT INTO broadcast_recipients VALUES ($1, $2, $3)",
        ids.parse_id(ids.Kind.BROADCAST, broadcast.json["id"]), ids.uuid7(), address,
    )  # fmt: skip
    code = await api.post("/v1/verifications", account.token, {"to": address, "from": account.sender})
    assert code.status in (200, 201, 202), code.body
    asking = await add_key(pool, account.id, scopes=["emails:send"], approval="required")
    asked = await api.post("/v1/agent-sends", asking, {"email": account.email(to=[address])})
    assert asked.status == 202, asked.body
    await store_link(pool, account, address)
    things["hook"] = (await api.post("/v1/webhooks", account.token, {"url": "http://127.0.0.1:9/hook"})).json["id"]
    mailbox = {"address": f"support@{account.domain}"}
    claimed = await api.post("/v1/inbound/addresses", account.token, mailbox)
    where = ClaimedAddress(ids.parse_id(ids.Kind.INBOUND_ADDRESS, claimed.json["id"]), account.id, mailbox["address"])
    raw = mail("Hello", To=mailbox["address"], From=address)
    await receive(Receiver(pool, settings), where.recipient(), raw=raw)
    await api.get(f"/v1/suppressions/{address}", account.token)
    await pool.execute(
        "INSERT INTO api_requests (id, account_id, method, path, status, microseconds, request_id)"
        " VALUES ($1, $2, 'GET', $3, 200, 1, 'req_x')",
        ids.uuid7(), account.id, f"/v1/suppressions/{address}",
    )  # fmt: skip
    await suppressions.suppress(pool, account.id, [(address, Reason.COMPLAINT)])
    return things


async def test_nothing_names_the_address_after_its_erasure_and_the_log_verifies(
    pool: asyncpg.Pool, api: Api, settings: Settings
) -> None:
    account = await make_account(pool)
    owner = await make_person(pool, account.id, "owner")
    await signed_in(pool, owner.id, account.id, owner.email)
    address = f"ann-{ids.encode(account.id)}@people.test"
    things = await fill(api, pool, settings, account, address)
    assert len(await naming(pool, account, address)) >= 10

    asked = await api.post("/v1/erasures", None, {"address": address.upper()}, person=owner)
    assert asked.status == 202, asked.body
    assert asked.json["id"].startswith("ers_")
    again = await api.post("/v1/erasures", None, {"address": address}, person=owner)
    assert again.json["id"] == asked.json["id"]
    await erased(pool, settings, account)

    left = await naming(pool, account, address)
    stays = await pool.fetchval(
        "SELECT subject FROM messages WHERE id = $1", ids.parse_id(ids.Kind.MESSAGE, things["stays"])
    )
    assert stays == f"About x{address}"  # another address, which ends like this one
    assert set(left) <= {"messages", "message_bodies", "events"}, left
    assert left["messages"] == 1
    shown = (await api.get(f"/v1/erasures/{asked.json['id']}", person=owner)).json
    assert shown["state"] == "completed"
    assert (await api.get("/v1/erasures", person=owner)).json["data"] == [shown]
    counts = shown["counts"]
    assert counts["messages"] >= 4
    assert counts["suppressions"] == 1
    assert counts["contacts"] == 1
    assert counts["receivedMessages"] == 1
    verified = await api.get("/v1/audit/verify", account.token)
    assert verified.json["intact"] is True, verified.body
    assert verified.json["erasedEntries"] == counts["logEntries"] > 0
    assert (await api.get("/v1/account/verify", account.token)).json["intact"] is True
    waybill = await api.get(f"/v1/messages/{things['both']}", account.token)
    assert waybill.status == 200
    assert waybill.json["recipients"][0]["address"] == "erased@erased.invalid"
    listed = await api.get("/v1/audit/events", account.token)
    assert any(one["payload"] is None for one in listed.json["data"])
    assert (await api.get("/v1/audit/export", account.token)).status == 200


async def test_mail_to_an_erased_address_that_was_suppressed_is_still_refused(
    pool: asyncpg.Pool, api: Api, settings: Settings
) -> None:
    account = await make_account(pool)
    address = f"bob-{ids.encode(account.id)}@people.test"
    await suppressions.suppress(pool, account.id, [(address, Reason.BOUNCE)])
    await service.request(pool, account.id, address, actor="service")
    await erased(pool, settings, account)

    assert await naming(pool, account, address) == {}
    for _ in range(2):  # by the statement without locks, and by the one with them
        refused = await api.post("/v1/emails", account.token, account.email(to=[address]))
        assert refused.error["type"] == "suppressed", refused.body
    assert (await api.delete(f"/v1/suppressions/{address}", account.token)).status == 204
    assert (await api.post("/v1/emails", account.token, account.email(to=[address]))).status == 202


async def test_smtp_and_broadcasts_leave_out_an_erased_address_that_was_suppressed(
    pool: asyncpg.Pool, settings: Settings
) -> None:
    account = await with_stream(pool, await make_account(pool))
    address = f"zoe-{ids.encode(account.id)}@people.test"
    await suppressions.suppress(pool, account.id, [(address, Reason.COMPLAINT)])
    await service.request(pool, account.id, address, actor="service")
    await erased(pool, settings, account)

    async with broadcasting(settings) as here:
        octets = f"From: {account.sender}\r\nTo: {address}\r\nSubject: Hi\r\n\r\nHi\r\n".encode()
        written = submitted.read(octets, [parse_mailbox(address)], smtputf8=False, host="mail.waybill.test")
        assert isinstance(written, Submitted)
        with pytest.raises(Refusal, match="suppress"):
            await accept(here.process.acceptor, written, Origin(account.id, "smtp"))
        broadcast = await here.sent(account, await make_list(pool, account, [address, "ann@people.test"]))
        await here.runner.run_due()
        counts = await here.counts(broadcast)
    assert (counts.accepted, counts.suppressed) == (1, 1)


async def test_an_entry_without_payload_that_no_erasure_names_is_a_break(pool: asyncpg.Pool) -> None:
    account = await make_account(pool)
    address = f"eve-{ids.encode(account.id)}@people.test"
    await suppressions.suppress(pool, account.id, [(address, Reason.MANUAL)])
    seq = await pool.fetchval("SELECT max(seq) FROM events WHERE account_id = $1", account.id)
    await pool.execute("UPDATE events SET payload = NULL WHERE account_id = $1 AND seq = $2", account.id, seq)

    verdict = await audit.verify(pool, account.id)

    assert verdict.broken is not None
    assert verdict.broken.at == seq
    assert "erasure.completed" in verdict.broken.problem


async def test_an_erasure_that_is_killed_at_any_batch_counts_each_thing_once(
    pool: asyncpg.Pool, api: Api, settings: Settings
) -> None:
    account = await make_account(pool)
    address = f"kim-{ids.encode(account.id)}@people.test"
    for _ in range(3):
        await send(api, account, to=[address], scheduledAt=clock.iso(clock.now() + timedelta(hours=1)))
    row = await service.request(pool, account.id, address, actor="service")
    for _ in range(5):  # a budget that is used up ends the call after a batch
        await erase_address.erase_requested(pool, settings, budget_s=0.0, hold_known_s=0.01)
    await erased(pool, settings, account)

    found = await pool.fetchrow("SELECT counts, address FROM erasures WHERE id = $1", row.id)
    assert found is not None
    assert orjson.loads(found["counts"])["messages"] == 3
    assert found["address"] is None
    completed = await pool.fetch(
        "SELECT payload FROM events WHERE account_id = $1 AND type = 'erasure.completed'", account.id
    )
    assert len(completed) == 1
    assert (await audit.verify(pool, account.id)).broken is None
    assert await pool.fetchval("SELECT scheduled FROM account_heads WHERE account_id = $1", account.id) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"to":"ann@x.test"}', True), ('{"said":"550\\nann@x.test unknown"}', True), ("sent to ann@x.test.", True),
        ("/v1/suppressions/ann%40x.test", True), ("joann@x.test", False), ("ann@x.test.au", False),
        ("ann@x.tests", False),
    ],
)  # fmt: skip
async def test_an_address_is_found_whole(pool: asyncpg.Pool, text: str, expected: bool) -> None:
    terms = rules.terms_of("ann@x.test")
    query = "SELECT $1::text LIKE ANY ($2::text[]) AND $1::text ~ ANY ($3::text[])"
    assert await pool.fetchval(query, text, terms.patterns, terms.expressions) is expected
