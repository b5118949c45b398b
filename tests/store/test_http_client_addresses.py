"""The HTTP client connects to no internal address in any notation, and only over valid TLS."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.base.netaddr import is_public
from engine.base.settings import HostPort, Settings
from engine.store.http_client import HttpClient, HttpReply, resolver_for
from engine.store.resolver import Resolver
from ops.local.dns import Responder
from tests.harness.receiver import Receiver, client_of, failed, post, request_of
from tests.harness.tcp import listening
from tests.harness.transport import authority_usage

HEAD = b"HTTP/1.1 200 OK\r\n"
OK = HEAD + b"Content-Length: 2\r\n\r\nok"


def second_of_loopback(address: str) -> bool:
    """127.0.0.2 stands for a public host here; everything else of loopback is ours."""
    return address == "127.0.0.2" or is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.1.2.3", "169.254.169.254", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "192.88.99.1", "198.18.0.1", "[::1]", "[::]", "[fe80::1]", "[fec0::1]", "[fc00::1]",
        "[ff02::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
    ],
)  # fmt: skip
async def test_an_address_that_is_not_public_is_not_dialled(host: str) -> None:
    async with client_of(may_dial=is_public) as client:
        found = failed(await post(client, f"http://{host}:8080/"))

    assert found.kind == "refused_address"
    assert "not a public address" in found.text


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0", "①②⑦.⓪.⓪.①", "127.0.0.1.", "0x7f000001"]
)
async def test_another_way_to_write_loopback_leads_nowhere(host: str) -> None:
    async with Receiver() as canary, client_of(may_dial=is_public) as client:
        found = failed(await post(client, f"http://{host}:{canary.port}/"))

    assert canary.got == []
    assert found.kind in {"refused_address", "dns", "url"}


async def test_localhost_is_loopback_without_dns() -> None:
    async with Receiver() as receiver, client_of() as open_client, client_of(may_dial=is_public) as strict:
        assert isinstance(await post(open_client, f"http://localhost:{receiver.port}/"), HttpReply)
        assert isinstance(await post(open_client, f"http://app.localhost:{receiver.port}/"), HttpReply)
        assert failed(await post(strict, f"http://localhost:{receiver.port}/")).kind == "refused_address"

    assert len(receiver.got) == 2


@pytest.mark.parametrize(
    ("kind", "address"),
    [("A", "127.0.0.1"), ("A", "169.254.169.254"), ("AAAA", "::1"), ("AAAA", "64:ff9b::a9fe:a9fe"),
     ("AAAA", "::ffff:127.0.0.1")],
)  # fmt: skip
async def test_a_name_that_leads_inside_is_refused(zone: Responder, kind: str, address: str) -> None:
    zone.set("inside.test", kind, [address])
    async with Receiver() as canary, client_of(zone, may_dial=is_public) as client:
        found = failed(await post(client, f"http://inside.test:{canary.port}/"))

    assert found.kind == "refused_address"
    assert found.text == "inside.test does not resolve to a public address"
    assert canary.got == []


@asynccontextmanager
async def everywhere() -> AsyncIterator[tuple[int, list[str]]]:
    """A server on every address of loopback: its port, and the addresses that were dialled."""
    dialled: list[str] = []

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        dialled.append(writer.get_extra_info("sockname")[0])
        writer.write(HEAD + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with listening(meet, "0.0.0.0") as (_, port):
        yield port, dialled


async def test_of_mixed_addresses_only_public_ones_are_dialled(zone: Responder) -> None:
    zone.set("mixed.test", "A", ["127.0.0.1", "127.0.0.2"])
    zone.set("mixed.test", "AAAA", ["::1"])
    async with everywhere() as (port, dialled), client_of(zone, may_dial=second_of_loopback) as client:
        for _ in range(3):
            assert isinstance(await post(client, f"http://mixed.test:{port}/"), HttpReply)

    assert dialled == ["127.0.0.2"] * 3


async def test_a_name_that_turns_inside_is_refused_on_the_next_dialling(zone: Responder) -> None:
    zone.set("turns.test", "A", ["127.0.0.2"], ttl=0)
    clock = [0.0]
    resolver = Resolver((HostPort(*zone.address),), clock=lambda: clock[0])
    client = HttpClient(resolver, may_dial=second_of_loopback)
    try:
        async with everywhere() as (port, dialled):
            assert isinstance(await post(client, f"http://turns.test:{port}/"), HttpReply)
            zone.set("turns.test", "A", ["127.0.0.1"], ttl=0)
            clock[0] += 60
            found = failed(await post(client, f"http://turns.test:{port}/"))
    finally:
        await client.close()
        await resolver.close()

    assert found.kind == "refused_address"
    assert dialled == ["127.0.0.2"]


async def test_flipping_names_never_lead_inside(zone: Responder) -> None:
    """Public and private in turn at every look-up: what was judged is what is dialled."""
    clock = [0.0]
    resolver = Resolver((HostPort(*zone.address),), clock=lambda: clock[0])
    client = HttpClient(resolver, may_dial=second_of_loopback)
    try:
        async with everywhere() as (port, dialled):
            for turn in range(40):
                zone.set("flips.test", "A", ["127.0.0.1" if turn % 2 else "127.0.0.2"], ttl=0)
                clock[0] += 30
                await post(client, f"http://flips.test:{port}/")
    finally:
        await client.close()
        await resolver.close()

    assert dialled == ["127.0.0.2"] * 20


async def test_a_name_that_does_not_exist_is_told(zone: Responder) -> None:
    async with client_of(zone) as client:
        found = failed(await post(client, "http://nowhere.example/"))

    assert (found.kind, found.text) == ("dns", "nowhere.example has no address")


def test_private_receivers_are_for_local_mode_unless_set() -> None:
    settings = Settings()

    def may_dial(**changes: object) -> bool:
        changed = msgspec.structs.replace(settings, **changes)
        return HttpClient.from_settings(changed, Resolver((HostPort("127.0.0.1", 9),)))._may_dial("127.0.0.1")

    assert may_dial(delivery="local", allow_private_webhooks=None)
    assert not may_dial(delivery="live", allow_private_webhooks=None)
    assert may_dial(delivery="live", allow_private_webhooks=True)
    assert not may_dial(delivery="local", allow_private_webhooks=False)
    assert may_dial(delivery="local", api_host="::1")
    assert not may_dial(delivery="local", api_host="0.0.0.0")
    assert not may_dial(delivery="local", api_host="192.168.1.5")
    assert may_dial(delivery="local", api_host="0.0.0.0", allow_private_webhooks=True)


def test_the_configured_name_servers_are_asked_but_not_local_modes_own() -> None:
    settings = Settings()
    other, own = HostPort("127.0.0.53", 53), HostPort("127.0.0.1", settings.dns_port)
    given = msgspec.structs.replace(settings, dns_servers=(other,))
    local = msgspec.structs.replace(settings, dns_servers=(own,))
    live = msgspec.structs.replace(settings, dns_servers=(own,), delivery="live")

    assert resolver_for(given)._servers == (other,)
    assert resolver_for(local)._servers != (own,)
    assert resolver_for(live)._servers == (own,)


# -- TLS ------------------------------------------------------------------------------------------


class Authority:
    """A certificate authority of this test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        self._certificate = self._made(self._name, self._key.public_key(), None, timedelta(days=30))

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._certificate.public_bytes(serialization.Encoding.PEM).decode())

    def server(self, host: str, *, life: timedelta = timedelta(days=30)) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._made(name, key.public_key(), host, life)
        file = self._folder / f"{host}-{life.days}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _made(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, host: str | None, life: timedelta
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        else:
            builder = builder.add_extension(authority_usage(), critical=True)
        return builder.sign(self._key, hashes.SHA256())


@pytest.mark.parametrize(
    ("certified", "life", "trusts", "said"),
    [
        ("good.test", timedelta(days=30), True, None),
        ("good.test", timedelta(days=-1), True, "expired"),
        ("other.test", timedelta(days=30), True, "good.test"),
        ("good.test", timedelta(days=30), False, "issuer"),
    ],
    ids=["good", "expired", "another name", "unknown authority"],
)
async def test_a_certificate_must_be_valid(
    zone: Responder, tmp_path: Path, certified: str, life: timedelta, trusts: bool, said: str | None
) -> None:
    authority = Authority(tmp_path)
    zone.set("good.test", "A", ["127.0.0.1"])

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK)
        await writer.drain()

    tls = authority.trusted() if trusts else ssl.create_default_context()
    async with (
        listening(meet, tls=authority.server(certified, life=life)) as (_, port),
        client_of(zone, tls=tls) as client,
    ):
        found = await post(client, f"https://good.test:{port}/", timeout_s=5)

    if said is None:
        assert found == HttpReply(200, b"ok")
    else:
        assert failed(found).kind == "tls"
        assert said in failed(found).text


async def test_plain_http_where_tls_should_be_is_a_failure() -> None:
    async with Receiver() as receiver, client_of() as client:
        found = failed(await post(client, receiver.url.replace("http:", "https:"), timeout_s=5))

    assert found.kind == "tls"
