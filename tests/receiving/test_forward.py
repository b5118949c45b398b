"""Forwarding from an SMTP session with the MX to the mail server of the address, and what is kept instead."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import dkim as dkimpy
import msgspec
import orjson
import pytest
from msgspec import structs

from engine.authentication import arc_seal
from engine.authentication import dkim_signing as own_dkim
from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts, results_text
from engine.base import ids
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.mail.received import summarise
from engine.mail.received_warnings import infected
from engine.receiving.inbound_routes import forward_rules
from engine.receiving.inbound_routes.forward import Forwarder
from engine.receiving.inbound_routes.replay import replay
from engine.receiving.receive import Receiver
from engine.receiving.reports import read_reports
from engine.receiving.types import AttachmentScan
from engine.sending.messages import rules as message_rules
from tests.authentication import signing
from tests.conftest import NewDatabase
from tests.harness import received_mail, report_mails
from tests.harness.account_log import details_logged
from tests.harness.inbound import TestMx, deliver, mail, receiving
from tests.harness.outbound import World, world
from tests.harness.received_mail import ClaimedAddress, claim, messages_of, receive, route, scanned
from tests.receiving.test_late_bounce import token

WITH_FILE = (
    b"From: Ann <ann@people.test>\r\nSubject: Orders\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nSee the file.\r\n"
    b'--b\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename="orders.csv"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\nb3JkZXIsc3VtDQo=\r\n--b--\r\n"
)
MANY_RECEIVED = "Received: from a.test by b.test; Sun, 22 Nov 2026 12:00:00 +0000\r\n" * 40
NONE = AuthenticationVerdict("none")
VERDICTS = AuthenticationVerdicts(NONE, NONE, NONE, NONE)


@pytest.fixture
async def here(settings: Settings, new_database: NewDatabase) -> AsyncIterator[World]:
    """A world whose account's domain has a mail server: the sink."""
    async with world(settings, await new_database()) as made:
        made.domain(made.account.domain)
        yield made


@pytest.fixture
async def forwarder(here: World) -> AsyncIterator[Forwarder]:
    made = Forwarder(here.pool, here.settings)
    yield made
    await made.close()


@pytest.fixture
async def mx(here: World, tmp_path: Path) -> AsyncIterator[TestMx]:
    """An MX on the world's database that knows the keys of the senders."""
    async with receiving(here.settings, tmp_path) as running:
        for name, record in signing.RECORDS.items():
            running.zone.set(name, "TXT", [f'"{part}"' for part in [quoted(record.decode())]])
        yield running


def quoted(text: str) -> str:
    """A TXT value divided into strings of at most 255 octets."""
    return '" "'.join(text[at : at + 250] for at in range(0, len(text), 250))


async def forwarded_to(here: World, local: str = "boss") -> tuple[ClaimedAddress, str]:
    """A claimed address whose mail is forwarded, and to which address."""
    address, target = await claim(here.pool, here.account), f"{local}@{here.account.domain}"
    await route(here.pool, address, "forward", forward_to=target)
    return address, target


async def only(here: World) -> asyncpg.Record:
    [row] = await messages_of(here.pool, here.account.id)
    return row


async def waiting(here: World) -> list[asyncpg.Record]:
    return list(await here.pool.fetch("SELECT * FROM inbound_forwards"))


async def key_records(here: World) -> dict[str, bytes]:
    """The key records of the senders and of the account."""
    found = await here.pool.fetch(
        "SELECT d.name, k.selector, k.public_txt FROM domain_keys k JOIN domains d ON d.id = k.domain_id"
    )
    return signing.RECORDS | {
        f"{row['selector']}._domainkey.{row['name']}": row["public_txt"].encode() for row in found
    }


def sealed_once(content: bytes) -> bytes:
    """The message as a relay passed it on: with one ARC set."""
    results = results_text("relay.test", VERDICTS, null_sender=False)
    return arc_seal.seal(content, signing.RELAY, results=results, chain="none", at=int(time.time())) + content


async def received(here: World, address: ClaimedAddress, **how: Any) -> None:
    await receive(Receiver(here.pool, here.settings), address.recipient(), **how)


@pytest.mark.parametrize("hops", [0, 1])
async def test_forwarded_mail_keeps_its_signature_and_gets_a_valid_arc_set(
    hops: int, here: World, mx: TestMx, forwarder: Forwarder
) -> None:
    address, target = await forwarded_to(here)
    host = here.settings.mail_host
    plain = mail(
        address.address, head=f"{MANY_RECEIVED}Authentication-Results: {host}; dmarc=pass\r\n", body="Größe\r\n"
    )
    plain = plain.replace(b"ann@sender.test", b"ann@shop.test")
    signed = own_dkim.sign(plain, [signing.RSA], at=int(time.time())) + plain
    content = sealed_once(signed) if hops else signed
    await here.mta()

    assert (await deliver(await mx.greeted(tls=True), content, address.address)).startswith("250 ")
    assert await forwarder.forward_due() == 1
    await here.sink.until(1)

    [found] = here.sink.messages
    assert found.recipients == (target,)
    assert found.sender.startswith("b+")
    assert found.sender.endswith(f"@bounces.{host}")
    records = await key_records(here)

    def look_up(name: bytes, timeout: float = 5) -> bytes:
        return records.get(name.decode().rstrip("."), b"")

    head, _, body = found.content.partition(b"\r\n\r\n")
    assert body == content.partition(b"\r\n\r\n")[2]
    chain, results, why = await asyncio.to_thread(dkimpy.arc_verify, found.content, dnsfunc=look_up)
    assert chain == b"pass", why
    assert [one["instance"] for one in results] == list(range(hops + 1, 0, -1))
    assert dkimpy.DKIM(found.content).verify(idx=0, dnsfunc=look_up)
    assert head.count(b"DKIM-Signature:") == 1  # none of ours: a forged From of the account would pass DMARC by it
    assert b"arc=pass" in head if hops else b"arc=none" in head
    assert b"dmarc=pass\r\n" not in head  # the forged claim to be ours
    assert f"Delivered-To: {address.address}\r\n".encode() in head + b"\r\n"
    row = await only(here)
    sent = ids.format_id(ids.Kind.MESSAGE, row["forwarded_as"])
    assert (row["action"], row["fallback"], row["in_mailbox"]) == ("forward", False, False)
    assert [
        one["message_id"] for one in await details_logged(here.pool, here.account.id, "inbound_message.forwarded")
    ] == [sent]
    await here.until_step(row["forwarded_as"], "delivered")
    assert (await here.waybill(row["forwarded_as"]))[0][1]["source"] == "forward"
    await here.pool.execute("UPDATE inbound_forwards SET due_at = now()")
    await forwarder.forward_due()
    assert await waiting(here) == []


async def test_a_worker_that_dies_after_acceptance_leaves_one_message(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address)
    await forwarder.forward_due()
    [row] = await waiting(here)
    first = (await only(here))["forwarded_as"]

    await here.pool.execute("UPDATE inbound_forwards SET sent_as = NULL, due_at = now()")
    await asyncio.gather(*[forwarder.forward_due() for _ in range(3)])

    assert await here.pool.fetchval("SELECT count(*) FROM messages WHERE source = 'forward'") == 1
    assert ((await only(here))["forwarded_as"], (await waiting(here))[0]["key"]) == (first, row["key"])


async def test_parallel_workers_forward_each_message_once(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    for _ in range(5):
        await received(here, address)
    other = Forwarder(here.pool, here.settings)
    try:
        await asyncio.gather(*[one.forward_due() for one in (forwarder, other) * 3])
    finally:
        await other.close()
    assert await here.pool.fetchval("SELECT count(*) FROM messages WHERE source = 'forward'") == 5


async def kept(here: World, forwarder: Forwarder) -> str:
    """Let the forwarder decide; why the message is in the mailbox instead."""
    await forwarder.forward_due()
    row = await only(here)
    assert (row["action"], row["fallback"], row["in_mailbox"]) == ("forward", True, True)
    assert await received_mail.counts_of(here.pool, here.account.id) == await received_mail.counted_anew(
        here.pool, here.account.id
    )
    [failed] = await details_logged(here.pool, here.account.id, "inbound_message.forward_failed")
    assert failed["reason"] == row["forward_error"]
    assert await waiting(here) == []
    return str(row["forward_error"])


async def test_mail_that_was_at_the_address_before_is_a_loop(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address, raw=received_mail.mail(Delivered_To=f"<{address.address.upper()}>"))
    assert await kept(here, forwarder) == "loop"


async def test_infected_mail_is_never_forwarded_not_even_by_a_replay(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    raw = received_mail.mail(files=[("a.txt", "text/plain", b"x")])
    await received(here, address, raw=raw, scan=scanned(1, scan=AttachmentScan.INFECTED))
    assert await kept(here, forwarder) == "infected"

    with pytest.raises(Exception, match="can't be forwarded"):
        await replay(here.pool, here.account.id, (await only(here))["id"])


async def test_mail_whose_scan_failed_is_forwarded_only_where_no_scan_is_required(here: World) -> None:
    address, _ = await forwarded_to(here)
    raw = received_mail.mail(files=[("a.txt", "text/plain", b"x")])
    await received(here, address, raw=raw, scan=scanned(1, scan=AttachmentScan.FAILED))
    strict = Forwarder(here.pool, structs.replace(here.settings, clamd_required=True))
    try:
        assert await kept(here, strict) == "unscanned"
    finally:
        await strict.close()

    message = (await only(here))["id"]
    with pytest.raises(Refusal, match="only forwards scanned attachments") as refused:
        await replay(here.pool, here.account.id, message, scanner_required=True)
    assert refused.value.fields == {"filename": "a.txt"}
    await replay(here.pool, here.account.id, message)


async def test_mail_infected_outside_any_attachment_is_not_forwarded(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address)
    warnings = msgspec.json.encode([infected("Eicar-Test-Signature")]).decode()
    await here.pool.execute(
        "UPDATE inbound_messages SET warnings = $2::jsonb WHERE account_id = $1", here.account.id, warnings
    )
    assert await kept(here, forwarder) == "infected"

    with pytest.raises(Exception, match="can't be forwarded"):
        await replay(here.pool, here.account.id, (await only(here))["id"])


async def test_spam_is_forwarded_only_when_a_person_asks(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address, scan=scanned(score=9.0))
    assert await kept(here, forwarder) == "spam"

    message = (await only(here))["id"]
    await replay(here.pool, here.account.id, message)
    await forwarder.forward_due()
    first = await only(here)
    assert (first["forward_error"], first["forwarded_as"] is None) == (None, False)
    await replay(here.pool, here.account.id, message)
    await forwarder.forward_due()
    assert (await only(here))["forwarded_as"] != first["forwarded_as"]
    assert await here.pool.fetchval("SELECT count(*) FROM messages WHERE source = 'forward'") == 2


@pytest.mark.parametrize(("author", "dmarc"), [("Support <help@{}>", "fail"), ("Ann <ann@evil.test>", "permerror")])
async def test_mail_that_may_be_in_the_services_name_needs_dmarc(
    here: World, forwarder: Forwarder, author: str, dmarc: str
) -> None:
    address, _ = await forwarded_to(here)
    raw = received_mail.mail(From=author.format(here.settings.mail_host))
    octets_verdicts = structs.replace(received_mail.PASSED, dmarc=AuthenticationVerdict(dmarc, here.settings.mail_host))
    await Receiver(here.pool, here.settings).receive(
        received_mail.envelope(address.recipient()), raw, summarise(raw), octets_verdicts, scanned()
    )
    assert await kept(here, forwarder) == "forged_sender"


async def test_the_worker_forwards_what_is_due(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address)
    await forwarder.job().run(here.pool, here.settings)
    assert (await only(here))["forwarded_as"] is not None


SUPPRESS = """
    INSERT INTO suppressions (account_id, address, reason) SELECT account_id, forward_to, 'bounce' FROM inbound_forwards
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE inbound_forwards SET forward_to = 'ann@stranger.test'", "address_not_allowed"),
        (SUPPRESS, "suppressed"),
        ("UPDATE accounts SET status = 'suspended'", "account_suspended"),
        (f"UPDATE inbound_forwards SET attempts = {forward_rules.MAX_ATTEMPTS}", "failed"),
    ],
)
async def test_mail_that_can_not_be_forwarded_stays_in_the_mailbox(
    here: World, forwarder: Forwarder, change: str, reason: str
) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address)
    await here.pool.execute(change)
    assert await kept(here, forwarder) == reason


async def test_a_bounce_brings_the_message_into_the_mailbox(here: World, forwarder: Forwarder) -> None:
    address, target = await forwarded_to(here)
    here.sink.script(f"RCPT TO:<{target}>", "550 5.7.1 We don't take this")
    await here.mta()
    await received(here, address, sender="")
    await forwarder.forward_due()
    sent = (await only(here))["forwarded_as"]
    await here.until_step(sent, "bounced")

    await here.pool.execute("UPDATE inbound_forwards SET due_at = now()")
    assert await kept(here, forwarder) == "bounced"
    assert (await only(here))["forwarded_as"] == sent
    assert here.sink.count == 0  # no bounce of ours to anybody


async def test_a_bounce_after_the_delivery_brings_the_message_into_the_mailbox(
    here: World, forwarder: Forwarder
) -> None:
    address, target = await forwarded_to(here)
    await here.mta()
    await received(here, address)
    await forwarder.forward_due()
    sent = (await only(here))["forwarded_as"]
    await here.until_step(sent, "delivered")
    await here.pool.execute("UPDATE inbound_forwards SET due_at = now()")
    await forwarder.forward_due()
    assert await waiting(here) == []

    await report_mails.add(here.pool, report_mails.mail(report_mails.failed(target), local=token(sent)))
    await read_reports.read_due(here.pool, here.settings)
    assert await kept(here, forwarder) == "bounced"
    assert (await only(here))["forwarded_as"] == sent


async def test_the_sent_record_names_the_attachments(here: World, forwarder: Forwarder) -> None:
    address, _ = await forwarded_to(here)
    await received(here, address, raw=WITH_FILE)
    await forwarder.forward_due()
    row = await only(here)
    [file] = orjson.loads(row["attachments"])
    [shown] = orjson.loads(
        await here.pool.fetchval("SELECT attachments FROM messages WHERE id = $1", row["forwarded_as"])
    )

    assert shown["id"] != file["id"]
    named = ("filename", "content_type", "size_bytes", "sha256")
    assert [shown[name] for name in named] == [file[name] for name in named]
    mime = await here.pool.fetchval("SELECT mime FROM message_bodies WHERE message_id = $1", row["forwarded_as"])
    [stored] = message_rules.files_of(orjson.dumps([shown]).decode())
    assert message_rules.content_of(mime, [stored], stored) == b"order,sum\r\n"


async def test_mail_to_a_managed_domain_is_forwarded_without_a_platform_account(
    here: World, forwarder: Forwarder
) -> None:
    address, target = await forwarded_to(here)
    await received(here, address)
    label = await here.pool.fetchval("SELECT label FROM receiving_labels WHERE account_id = $1", here.account.id)
    await here.pool.execute("UPDATE inbound_messages SET domain = $1", f"{label}.in.{here.settings.mail_host}")
    await here.mta()
    await forwarder.forward_due()
    await here.sink.until(1)

    [found] = here.sink.messages
    assert found.recipients == (target,)
    assert b"ARC-Seal" not in found.content
