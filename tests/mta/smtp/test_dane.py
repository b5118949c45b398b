"""DANE for SMTP: records, matches, and what signed DNS demands of a host (RFC 7672, 7671, 6698)."""

import hashlib
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from engine.base.settings import HostPort
from engine.delivery.mx_routes import Router
from engine.delivery.routes import Route
from engine.mail.replies import Break, BreakKind, Phase
from engine.store.resolver import Records, Resolver, Tlsa
from mta.outbound.tls import policy
from mta.outbound.tls.policy import WITHOUT, MinTls, TlsDemand, TlsPolicies, TlsPolicy
from mta.smtp.client.certificates import CertificateAuthorities, PeerCertificates
from mta.smtp.client.connection import ConnectFailed, SmtpConnection, SmtpTimeouts, TlsMode
from mta.smtp.client.dane import DanePolicy, match, usable
from mta.smtp.client.tls import CertificateVerifier
from mta.smtp.client.tls_failures import TlsFailure, TlsFailureType
from ops.local.dns import DnsBehaviour
from ops.local.sink import Sink
from tests.harness.patience import PATIENCE_S
from tests.harness.transport import Certified, SignedDns, authority, self_signed

MX, DOMAIN = "mx.peer.test", "peer.test"
NOW = datetime.now(UTC)
DIGEST = b"x" * 32


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sha512(data: bytes) -> bytes:
    return hashlib.sha512(data).digest()


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "good"),
    [
        (Tlsa(3, 1, 1, DIGEST), True),
        (Tlsa(3, 0, 1, DIGEST), True),
        (Tlsa(2, 0, 1, DIGEST), True),
        (Tlsa(2, 1, 2, DIGEST * 2), True),
        (Tlsa(3, 1, 0, b"key"), True),
        (Tlsa(0, 1, 1, DIGEST), False),  # RFC 7672 3.1.3: the web's usages
        (Tlsa(1, 1, 1, DIGEST), False),
        (Tlsa(4, 1, 1, DIGEST), False),
        (Tlsa(3, 2, 1, DIGEST), False),
        (Tlsa(3, 1, 3, DIGEST), False),
        (Tlsa(3, 1, 1, DIGEST[:-1]), False),
        (Tlsa(3, 1, 2, DIGEST), False),
        (Tlsa(3, 1, 0, b""), False),
        (Tlsa(255, 255, 255, b""), False),
    ],
)
def test_only_records_of_usage_2_and_3_that_are_whole_can_be_used(record: Tlsa, good: bool) -> None:
    assert bool(usable([record])) is good


def test_the_stronger_digest_of_the_same_thing_stands_alone() -> None:
    weak, strong, other = Tlsa(3, 1, 1, DIGEST), Tlsa(3, 1, 2, DIGEST * 2), Tlsa(2, 1, 1, DIGEST)
    whole = Tlsa(3, 1, 0, b"key")
    assert usable([weak, strong, other, whole]) == (strong, other, whole)


# -- matches ---------------------------------------------------------------------------------------


def found(certified: Certified, *records: Tlsa, others: tuple[Certified, ...] = (), at: datetime = NOW) -> object:
    shown = PeerCertificates(certified.certificate, tuple(one.certificate for one in others))
    result = match(DanePolicy(MX, (MX, DOMAIN), records), shown, at)
    return result.kind if isinstance(result, TlsFailure) else result


@pytest.mark.parametrize("matching", [0, 1, 2])
@pytest.mark.parametrize("selector", [0, 1])
def test_an_end_entity_matches_by_certificate_or_key_whole_or_digested(selector: int, matching: int) -> None:
    server = self_signed("mx.quite.other.test")
    thing = server.public_key if selector else server.der
    data = (thing, sha256(thing), sha512(thing))[matching]
    assert found(server, Tlsa(3, selector, matching, data)) == "dane-ee"
    assert found(self_signed(MX), Tlsa(3, selector, matching, data)) is TlsFailureType.VALIDATION_FAILURE


def test_an_end_entity_needs_neither_name_nor_date() -> None:
    old = authority().leaf("other.test", at=NOW - timedelta(days=400))
    assert found(old, Tlsa(3, 1, 1, sha256(old.public_key))) == "dane-ee"


def test_an_unusual_key_is_compared_octet_by_octet() -> None:
    """The encoder would write an RSA key in its own way; what counts is what the certificate holds."""
    key = rsa.generate_private_key(65_537, 2_048)
    name = x509.Name([])
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(2**150).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    held = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert match(DanePolicy(MX, (MX,), (Tlsa(3, 1, 0, held),)), PeerCertificates(certificate, ()), NOW) == "dane-ee"


def test_a_trust_anchor_vouches_for_a_chain_a_name_and_its_dates() -> None:
    root = authority()
    middle = root.authority("middle")
    server = middle.leaf(MX)
    by_root, by_middle = Tlsa(2, 0, 1, sha256(root.der)), Tlsa(2, 1, 1, sha256(middle.public_key))
    assert found(server, by_root, others=(middle, root)) == "dane-ta"
    assert found(server, by_middle, others=(middle,)) == "dane-ta"
    assert found(middle.leaf(DOMAIN), by_middle, others=(middle,)) == "dane-ta"  # RFC 7672 3.2.2: the next hop
    assert found(middle.leaf("*.peer.test"), by_middle, others=(middle,)) == "dane-ta"
    assert found(server, by_root, others=(middle,)) is TlsFailureType.VALIDATION_FAILURE  # the anchor was not sent
    assert found(server, Tlsa(2, 0, 0, root.der), others=(middle,)) == "dane-ta"  # but DNS may hold it whole
    assert found(middle.leaf("mx.other.test"), by_middle, others=(middle,)) is TlsFailureType.HOST_MISMATCH
    assert found(middle.leaf(MX, at=NOW - timedelta(days=1)), by_middle, others=(middle,)) is TlsFailureType.EXPIRED
    assert found(server, by_root, others=(root,)) is TlsFailureType.NOT_TRUSTED  # the link between is missing
    stranger = authority("middle")
    assert found(server, Tlsa(2, 0, 1, sha256(stranger.der)), others=(middle, stranger)) is TlsFailureType.NOT_TRUSTED


def test_a_trust_anchor_record_for_the_servers_own_certificate_is_no_match() -> None:
    server = self_signed(MX)
    assert found(server, Tlsa(2, 0, 1, sha256(server.der))) is TlsFailureType.VALIDATION_FAILURE


def test_one_match_among_several_records_is_enough() -> None:
    server = self_signed(MX)
    records = (Tlsa(3, 1, 1, DIGEST), Tlsa(2, 0, 1, DIGEST), Tlsa(3, 1, 1, sha256(server.public_key)))
    assert found(server, *records) == "dane-ee"


def test_a_server_that_shows_nothing_matches_nothing() -> None:
    assert isinstance(match(DanePolicy(MX, (MX,), (Tlsa(3, 1, 1, DIGEST),)), None, NOW), TlsFailure)


# -- what a host must hold --------------------------------------------------------------------------


@pytest.fixture
async def zone() -> AsyncIterator[SignedDns]:
    async with SignedDns() as responder:
        responder.set(DOMAIN, "MX", [f"10 {MX}."])
        responder.set(MX, "A", ["192.0.2.1"])
        responder.signed.add(DOMAIN)
        yield responder


@asynccontextmanager
async def asking(zone: SignedDns, *, trusted: bool = True) -> AsyncIterator[tuple[Router, TlsPolicies]]:
    resolver = Resolver([HostPort(*zone.address)], query_timeout_s=1.0, budget_s=PATIENCE_S)
    router = Router(resolver, port=25, allow_private=True)
    policies = TlsPolicies(resolver, None, dnssec_trusted=trusted)
    try:
        yield router, policies
    finally:
        await policies.close()
        await router.close()
        await resolver.close()


async def policy_of(
    zone: SignedDns, domain: str = DOMAIN, *, trusted: bool = True, min_tls: MinTls = MinTls.OPPORTUNISTIC
) -> TlsPolicy:
    async with asking(zone, trusted=trusted) as (router, policies):
        route = await router.route(domain)
        assert isinstance(route, Route), route
        return await policies.of(domain, route, min_tls)


async def demand_of(zone: SignedDns, host: str = MX, domain: str = DOMAIN, *, trusted: bool = True) -> TlsDemand:
    return (await policy_of(zone, domain, trusted=trusted)).of(host)


async def test_signed_records_demand_the_certificate_they_name(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST), (1, 1, 1, DIGEST))
    policy = await policy_of(zone)
    demand = policy.of(MX)
    assert (demand.mode, demand.counted, policy.key) == (TlsMode.DANE, "tlsa", "+dane")
    assert demand.dane == DanePolicy(MX, (MX, DOMAIN), (Tlsa(3, 1, 1, DIGEST),))


async def test_a_resolver_that_is_not_trusted_is_not_asked(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    assert (await demand_of(zone, trusted=False)).mode is TlsMode.OPPORTUNISTIC
    assert "TLSA" not in {question.rdtype for question in zone.questions}


async def test_without_records_or_without_signatures_nothing_is_demanded(zone: SignedDns) -> None:
    assert (await demand_of(zone)).mode is TlsMode.OPPORTUNISTIC
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    for signed in ({MX}, {DOMAIN.upper()}, set()):  # the MX set, or everything, is unsigned
        zone.signed = signed
        assert (await demand_of(zone)).mode is TlsMode.OPPORTUNISTIC
    zone.set("unsigned.test", "A", ["192.0.2.1"])
    zone.set(DOMAIN, "MX", ["10 unsigned.test."])
    zone.behave("_25._tcp.unsigned.test", DnsBehaviour(rcode="SERVFAIL"))
    zone.signed = {DOMAIN}
    assert (await demand_of(zone, "unsigned.test")).mode is TlsMode.OPPORTUNISTIC


async def test_records_under_insecure_delegation_are_not_believed(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    zone._is_signed = lambda name: not name.startswith("_")  # type: ignore[method-assign]
    assert (await demand_of(zone)).mode is TlsMode.OPPORTUNISTIC


@pytest.mark.parametrize(
    "behaviour", [DnsBehaviour(rcode="SERVFAIL"), DnsBehaviour(drop=True), DnsBehaviour(rcode="REFUSED")]
)
async def test_a_failing_look_up_rules_the_host_out(zone: SignedDns, behaviour: DnsBehaviour) -> None:
    zone.behave(f"_25._tcp.{MX}", behaviour)
    policy = await policy_of(zone)
    refused = policy.of(MX).refused
    assert refused is not None
    assert refused.kind is TlsFailureType.DNSSEC_INVALID
    assert policy.until < math.inf


async def test_a_slow_look_up_does_not_hold_the_mail_for_long(zone: SignedDns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "LOOK_UP_S", 0.1)
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    zone.behave(f"_25._tcp.{MX}", DnsBehaviour(delay_s=0.3))
    refused = (await demand_of(zone)).refused
    assert refused is not None
    assert "no answer within 0.1 s" in refused.reason


async def test_records_that_cannot_be_used_demand_tls_with_any_certificate(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (0, 1, 1, DIGEST), (3, 1, 9, b"?"))
    demand = await demand_of(zone)
    assert (demand.mode, demand.refused) == (TlsMode.ENCRYPTED, None)
    assert demand.noted is not None
    assert demand.noted.kind is TlsFailureType.TLSA_INVALID


async def test_a_malformed_record_is_one_that_cannot_be_used(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 9, b"short"))
    zone.mangled[b"\x03\x01\x09short"] = b"\x03\x01\x01short"  # a SHA-256 of five octets
    resolver = Resolver([HostPort(*zone.address)], query_timeout_s=1.0, budget_s=PATIENCE_S)
    answer = await resolver.tlsa(f"_25._tcp.{MX}")
    await resolver.close()
    assert isinstance(answer, Records)
    assert answer.authentic
    assert usable(answer.values) == ()
    assert (await demand_of(zone)).mode is TlsMode.ENCRYPTED


async def test_an_alias_is_looked_at_first_under_the_name_behind_it(zone: SignedDns) -> None:
    zone.set(DOMAIN, "MX", [f"10 alias.{DOMAIN}."])
    zone.set(f"alias.{DOMAIN}", "CNAME", [f"{MX}."])
    zone.tlsa(f"alias.{DOMAIN}", 25, (3, 1, 1, DIGEST))
    first = (await demand_of(zone, f"alias.{DOMAIN}")).dane
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    second = (await demand_of(zone, f"alias.{DOMAIN}")).dane
    assert first is not None
    assert second is not None
    assert (first.base, second.base) == (f"alias.{DOMAIN}", MX)


async def test_a_domain_without_mx_is_its_own_host(zone: SignedDns) -> None:
    zone.set(DOMAIN, "MX", [])
    zone.set(DOMAIN, "A", ["192.0.2.1"])
    zone.tlsa(DOMAIN, 25, (3, 1, 1, DIGEST))
    demand = await demand_of(zone, DOMAIN)
    assert demand.dane == DanePolicy(DOMAIN, (DOMAIN,), (Tlsa(3, 1, 1, DIGEST),))


async def test_hosts_of_one_domain_each_have_their_own_demand(zone: SignedDns) -> None:
    zone.set(DOMAIN, "MX", [f"10 {MX}.", f"20 plain.{DOMAIN}."])
    zone.set(f"plain.{DOMAIN}", "A", ["192.0.2.2"])
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    policy = await policy_of(zone)
    assert [policy.of(host).mode for host in (MX, f"plain.{DOMAIN}")] == [TlsMode.DANE, TlsMode.OPPORTUNISTIC]
    assert policy.of("mx.never.seen").refused is not None
    assert policy.key not in ("", "+dane")


async def test_domains_on_the_same_hosts_share_connections_unless_a_certificate_may_be_for_one_of_them(
    zone: SignedDns,
) -> None:
    zone.set("other.test", "MX", [f"10 {MX}."])
    zone.signed.add("other.test")
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    assert (await policy_of(zone)).key == (await policy_of(zone, "other.test")).key
    zone.tlsa(MX, 25, (2, 1, 1, DIGEST))
    assert (await policy_of(zone)).key != (await policy_of(zone, "other.test")).key


async def test_a_message_may_ask_for_more_or_for_nothing(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    assert (await policy_of(zone, min_tls=MinTls.VERIFIED)).of(MX).mode is TlsMode.DANE
    assert await policy_of(zone, min_tls=MinTls.NONE) is WITHOUT
    zone.tlsa(MX, 25)
    asked = await policy_of(zone, min_tls=MinTls.VERIFIED)
    assert (asked.of(MX).mode, asked.of(MX).whose) == (TlsMode.VERIFIED, "minTls")
    assert asked.key == "+verified-asked"


async def test_a_policy_is_found_once_for_many_messages(zone: SignedDns) -> None:
    zone.tlsa(MX, 25, (3, 1, 1, DIGEST))
    async with asking(zone) as (router, policies):
        for _ in range(3):
            route = await router.route(DOMAIN)
            assert isinstance(route, Route)
            first = await policies.of(DOMAIN, route)
            assert await policies.of(DOMAIN, route) is first
    assert len([question for question in zone.questions if question.rdtype == "TLSA"]) == 1


# -- over real connections ---------------------------------------------------------------------------


async def connect(sink: Sink, *records: Tlsa, base: str = MX) -> SmtpConnection:
    return await SmtpConnection.open(
        sink.address,
        server_name=MX,
        helo="client.test",
        tls=TlsMode.DANE,
        dane=DanePolicy(base, (base, DOMAIN), records),
        certificates=CertificateVerifier(CertificateAuthorities([])),
        timeouts=SmtpTimeouts(connect_s=PATIENCE_S, tls_s=PATIENCE_S, reply_s=PATIENCE_S, quit_s=0.2),
    )


async def test_a_server_with_the_named_certificate_takes_mail_and_another_does_not(tmp_path: Path) -> None:
    server = self_signed("whatever.test")
    record = Tlsa(3, 1, 1, sha256(server.public_key))
    async with Sink(tls=server.server(tmp_path)) as sink:
        for resumed in (False, True):
            connection = await connect(sink, record)
            assert connection.tls is not None
            assert (connection.tls.certificate, connection.tls.resumed) == ("verified: dane-ee", resumed)
            await connection.close()
        with pytest.raises(ConnectFailed) as failed:
            await connect(sink, Tlsa(3, 1, 1, DIGEST))
    assert failed.value.phase is Phase.TLS
    assert isinstance(failed.value.outcome, Break)
    assert failed.value.outcome.kind is BreakKind.TLS
    assert failed.value.fault == TlsFailure(
        TlsFailureType.VALIDATION_FAILURE, "none of the certificates matches a TLSA record"
    )
    assert failed.value.resumed


async def test_the_handshake_asks_for_the_name_that_the_records_were_found_under(tmp_path: Path) -> None:
    root = authority()
    server = root.authority("middle").leaf(f"base.{DOMAIN}")
    context = server.server(tmp_path, whole=True)
    asked: list[str | None] = []
    context.sni_callback = lambda _session, name, _context: asked.append(name)
    async with Sink(tls=context) as sink:
        connection = await connect(sink, Tlsa(2, 0, 1, sha256(root.der)), base=f"base.{DOMAIN}")
        assert connection.tls is not None
        assert connection.tls.certificate == "verified: dane-ta"
        await connection.close()
    assert asked == [f"base.{DOMAIN}"]
