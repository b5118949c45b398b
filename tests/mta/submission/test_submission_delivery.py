"""From an SMTP client to the recipient's server: signed, with its envelope, without Bcc."""

from base64 import b64encode
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from engine.base import ids
from engine.sending.domains import store as domains
from tests.harness.outbound import World
from tests.harness.submission import TestRelay, message, relaying


@pytest.fixture
async def relay(here: World, tmp_path: Path) -> AsyncIterator[TestRelay]:
    async with relaying(here.settings, tmp_path) as running:
        yield running


async def test_a_clients_message_is_signed_and_delivered_to_its_envelope(here: World, relay: TestRelay) -> None:
    await here.mta()
    client = await relay.logged_in(here.account)
    kept = message(here.account, to="ann@peer.test", head="X-Own:  two  blanks\r\n", body=".\r\nHello\r\n")
    sent = b"Bcc: eve@peer.test\r\n" + kept.replace(b"\r\n.\r\n", b"\r\n..\r\n")
    reply = await client.send(here.account, sent, "ann@peer.test", "eve@peer.test")
    found = ids.parse_id(ids.Kind.MESSAGE, reply.split()[-1])
    await here.until_idle()
    assert await here.statuses(found) == {"ann@peer.test": "delivered", "eve@peer.test": "delivered"}
    assert (await here.steps(found))[:2] == ["accepted", "attempted"]
    (mail,) = here.sink.messages
    assert mail.content.endswith(kept)
    assert b"eve@" not in mail.content
    parsed = message_from_bytes(mail.content, policy=policy.default)
    assert len(parsed.get_all("From", [])) == len(parsed.get_all("Message-ID", [])) == 1
    record = await _record(here)
    assert dkim.DKIM(mail.content).verify(dnsfunc=lambda _name, timeout=5: record)


async def test_8_bit_content_reaches_a_server_without_8bitmime_with_a_valid_signature(
    here: World, relay: TestRelay
) -> None:
    old = await here.server("127.0.0.3", extensions=("PIPELINING",))
    here.domain("old.test", "127.0.0.3")
    await here.mta()
    client = await relay.logged_in(here.account)
    sent = message(here.account, to="ann@old.test", body="Grüße\r\n")
    reply = await client.send(here.account, sent, "ann@old.test")
    await here.until_idle()
    assert await here.statuses(ids.parse_id(ids.Kind.MESSAGE, reply.split()[-1])) == {"ann@old.test": "delivered"}
    (mail,) = old.messages
    assert mail.content.isascii()
    record = await _record(here)
    assert dkim.DKIM(mail.content).verify(dnsfunc=lambda _name, timeout=5: record)


async def test_a_clients_own_signature_is_kept(here: World, relay: TestRelay) -> None:
    await here.mta()
    client = await relay.logged_in(here.account)
    own = f"DKIM-Signature: v=1; a=rsa-sha256; d={here.account.domain}; s=x; h=from; bh=AA==; b=AA==\r\n"
    own += own.replace(here.account.domain, "other.test")
    await client.send(here.account, own.encode() + message(here.account, to="ann@peer.test"), "ann@peer.test")
    await here.until_idle()
    (mail,) = here.sink.messages
    signatures = message_from_bytes(mail.content).get_all("DKIM-Signature", [])
    assert len(signatures) == 2
    record = await _record(here)
    assert dkim.DKIM(mail.content).verify(idx=0, dnsfunc=lambda _name, timeout=5: record)


async def test_smtputf8_reaches_the_recipients_server(here: World, relay: TestRelay) -> None:
    await here.mta()
    client = await relay.logged_in(here.account)
    await client.say(f"MAIL FROM:<{here.account.sender}> SMTPUTF8")
    await client.say("RCPT TO:<jörg@peer.test>")
    await client.say("DATA")
    await client.write(message(here.account, to="jörg@peer.test", head="X-Note: grün\r\n") + b".\r\n")
    assert (await client.reply()).startswith("250 ")
    await here.until_idle()
    (mail,) = here.sink.messages
    assert "X-Note: grün" in mail.content.decode()
    assert any(line.startswith("MAIL ") and line.endswith(" SMTPUTF8") for line in here.sink.commands)


async def _record(here: World) -> bytes:
    """What the domain's DNS would say of its RSA key."""
    async with here.pool.acquire() as connection:
        keys = await domains.signing_keys(connection, here.account.id, here.account.domain, pepper=here.settings.pepper)
    public = keys[0].private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b"v=DKIM1; k=rsa; p=" + b64encode(public)
