"""Messages that the MX takes: 250 after the commit, the octets as they came, and the refusals after the final dot."""

from tests.harness.accounts import TestAccount
from tests.harness.inbound import TestMx, deliver, mail


async def test_a_message_is_stored_as_it_came_before_its_250(mx: TestMx, account: TestAccount) -> None:
    address = await mx.claim(account)
    client = await mx.greeted(tls=True)
    content = mail(address, body="..dots\r\nHello!\r\n")

    assert await deliver(client, content, address) == "250 2.0.0 Stored"

    [row] = await mx.stored(account)
    assert row["bytes"] == content.replace(b"\r\n..", b"\r\n.")
    assert (row["recipient"], row["envelope_from"], row["helo"]) == (address, "ann@sender.test", "client.test")
    assert (str(row["remote_ip"]), row["tls"]) == ("127.0.0.1", "TLSv1.3")
