"""Certificates about mail that really went out: the server, its certificate and its reply, and the mail as received."""

from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from api.sdk.runtime.certificates import VerifiedCertificate, verify_certificate
from engine.accounts.delivery_certificates import certificate_pdf, service, signing, store
from engine.accounts.delivery_certificates.types import SignedStatement
from engine.base.errors import Refusal
from tests.harness.outbound import World
from tests.harness.transport import Certified

DOMAIN, MX, SERVER = "secure.test", "mx.secure.test", "127.0.0.3"


async def issued(here: World, message: UUID) -> SignedStatement:
    return await service.issue(here.pool, here.settings, here.account.id, message)


async def verified(here: World, made: SignedStatement, **checks: object) -> VerifiedCertificate:
    """Verify the certificate as its receiver gets it."""
    keys = {"keys": [signing.public_jwk(row) for row in await store.ALL_KEYS.fetch(here.pool)]}
    return verify_certificate(msgspec.json.encode(made.certificate), keys, **checks)  # type: ignore[arg-type]


async def test_it_names_the_server_its_certificate_and_its_reply(here: World, root: Certified, tmp_path: Path) -> None:
    here.domain(DOMAIN, SERVER)
    sink = await here.server(SERVER, tls=root.leaf(MX).server(tmp_path))
    await here.live(tls_authorities=root.pem(tmp_path))
    message = await here.send(f"ann@{DOMAIN}", minTls="verified", subject="Grüße", text="Hello")
    await here.until_step(message, "delivered")
    made = await issued(here, message)
    found = await verified(here, made, message=sink.messages[0].content, recipient=f"ann@{DOMAIN}")
    recipient = found.statement["recipients"][0]

    assert found.message == "identical"
    assert found.recipient == recipient
    assert b"DKIM-Signature" in sink.messages[0].content
    server = recipient["server"]
    assert (server["host"], server["ip"]) == (MX, SERVER)
    assert (server["tls"]["version"], server["tls"]["certificate"]) == ("TLSv1.3", "verified")
    assert server["tls"]["policy"] == "minTls"
    assert (server["reply"][:3], server["smtpCode"]) == ("250", 250)
    assert [one["type"] for one in found.statement["events"]] == ["accepted", "attempted", "delivered"]
    pdf = certificate_pdf.render(made)
    assert pdf.startswith(b"%PDF-")


async def test_a_connection_in_plaintext_and_a_refusal_are_said_too(here: World) -> None:
    here.domain("plain.test")
    here.sink.script("RCPT TO:<bob@plain.test>", "550 5.1.1 <bob@plain.test>: bob is unknown")
    await here.mta()
    message = await here.send("ann@plain.test", "bob@plain.test")
    await here.until_idle()
    found = await verified(here, await issued(here, message), message=here.sink.messages[0].content)
    ann, bob = found.statement["recipients"]

    assert found.message == "identical"
    assert (ann["outcome"], ann["server"]["tls"], ann["server"]["ip"]) == ("delivered", None, "127.0.0.1")
    assert (bob["outcome"], bob["server"]["smtpCode"], bob["deliveredAt"]) == ("bounced", 550, None)
    assert "bob" not in bob["server"]["reply"]


async def test_a_second_message_over_the_same_connection_has_its_address_too(here: World) -> None:
    await here.mta()
    messages = await here.send_many(4, lambda number: f"reader{number}@peer.test")
    await here.until_idle()

    for message in messages:
        (recipient,) = (await verified(here, await issued(here, message))).statement["recipients"]
        assert recipient["server"]["ip"] == "127.0.0.1"


async def test_a_simulated_delivery_is_called_so(here: World) -> None:
    await here.mta()
    message = await here.send(f"delivered@simulator.{here.settings.mail_host}")
    await here.until_step(message, "delivered")
    made = await issued(here, message)

    assert made.statement.recipients[0].simulated
    assert made.statement.recipients[0].outcome == "delivered"


async def test_an_attempt_that_was_deferred_is_no_outcome(here: World) -> None:
    here.sink.script("RCPT TO:<ann@peer.test>", "451 4.7.1 later")
    await here.mta(retry_ladder_s=(600.0,))
    message = await here.send("ann@peer.test")
    await here.until_step(message, "deferred")

    with pytest.raises(Refusal, match="final"):
        await issued(here, message)
