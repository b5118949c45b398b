"""Certificate verification, session resumption and TLS modes, over real handshakes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from engine.base.settings import BadSetting, load
from engine.mail.replies import Break, BreakKind, Phase, Reply
from mta.smtp.client.certificates import CertificateAuthorities, PeerCertificates, chain_failure, covers
from mta.smtp.client.connection import ConnectFailed, Envelope, SmtpConnection, SmtpTimeouts, TlsMode
from mta.smtp.client.tls import MAX_SESSIONS, CertificateVerifier, ResumingTlsContext, client_context
from mta.smtp.client.tls_failures import TlsFailureType
from ops.local.sink import Sink
from tests.harness.patience import PATIENCE_S
from tests.harness.transport import Certified, authority, forget_sessions, self_signed

TIMEOUTS = SmtpTimeouts(connect_s=PATIENCE_S, tls_s=PATIENCE_S, reply_s=PATIENCE_S, quit_s=0.2)
MX = "mx.peer.test"
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def judge(root: Certified) -> CertificateVerifier:
    return CertificateVerifier(CertificateAuthorities([root.certificate]))


async def connect(
    sink: Sink, judge: CertificateVerifier, mode: TlsMode = TlsMode.OPPORTUNISTIC, name: str = MX
) -> SmtpConnection:
    return await SmtpConnection.open(
        sink.address, server_name=name, helo="client.test", tls=mode, certificates=judge, timeouts=TIMEOUTS
    )


async def refusal(
    sink: Sink, judge: CertificateVerifier, mode: TlsMode = TlsMode.VERIFIED, name: str = MX
) -> ConnectFailed:
    with pytest.raises(ConnectFailed) as failed:
        await connect(sink, judge, mode, name)
    return failed.value


@asynccontextmanager
async def showing(certified: Certified, folder: Path, **how: ssl.TLSVersion | bool) -> AsyncIterator[Sink]:
    async with Sink(tls=certified.server(folder, **how)) as sink:  # type: ignore[arg-type]
        yield sink


# -- certificates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name", "good"),
    [
        ("mx.peer.test", "mx.peer.test", True),
        ("MX.Peer.test", "mx.peer.test", True),
        ("mx.peer.test", "mx1.peer.test", False),
        ("*.peer.test", "mx.peer.test", True),
        ("*.peer.test", "peer.test", False),
        ("*.peer.test", "a.mx.peer.test", False),
        ("m*.peer.test", "mx.peer.test", False),
        ("mx.*.test", "mx.peer.test", False),
    ],
)
def test_a_wildcard_stands_for_the_whole_leftmost_label(root: Certified, pattern: str, name: str, good: bool) -> None:
    assert covers(root.leaf(pattern).certificate, (name,)) is good


def judged(
    certified: Certified, root: Certified, *others: Certified, name: str = MX, at: datetime = NOW
) -> TlsFailureType | None:
    shown = PeerCertificates(certified.certificate, tuple(one.certificate for one in others))
    fault = chain_failure(shown, name, CertificateAuthorities([root.certificate]), at)
    return None if fault is None else fault.kind


def test_a_certificate_is_judged_by_names_dates_and_the_chain_to_an_authority(root: Certified) -> None:
    middle = root.authority("middle")
    stranger = authority("stranger")
    below_a_leaf = root.leaf(MX).leaf(MX)
    assert judged(root.leaf(MX), root) is None
    assert judged(middle.leaf("*.peer.test"), root, middle) is None
    assert judged(middle.leaf(MX), root) is TlsFailureType.NOT_TRUSTED  # what lies between was not sent
    assert judged(stranger.leaf(MX), root, stranger) is TlsFailureType.NOT_TRUSTED
    assert judged(self_signed(MX), root) is TlsFailureType.NOT_TRUSTED
    assert judged(root.leaf("mx.other.test"), root) is TlsFailureType.HOST_MISMATCH
    assert judged(root.leaf(MX, at=NOW - timedelta(days=1)), root) is TlsFailureType.EXPIRED
    assert judged(root.leaf(MX), root, at=NOW + timedelta(days=40)) is TlsFailureType.EXPIRED
    assert judged(root.leaf(MX), root, at=NOW - timedelta(days=40)) is TlsFailureType.EXPIRED
    assert judged(root.leaf(MX), root, name="under_score.peer.test") is TlsFailureType.HOST_MISMATCH
    issuer = Certified(root.key, root.leaf(MX).certificate, ())
    assert judged(below_a_leaf, root, issuer) is TlsFailureType.NOT_TRUSTED


def test_a_server_without_a_readable_certificate_is_not_trusted(root: Certified) -> None:
    authorities = CertificateAuthorities([root.certificate])
    for shown in (PeerCertificates.parsed([]), PeerCertificates.parsed([b"nonsense"])):
        fault = chain_failure(shown, MX, authorities, NOW)
        assert fault is not None
        assert fault.kind is TlsFailureType.NOT_TRUSTED


def test_without_authorities_nobody_is_trusted(root: Certified, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("# nothing\n")
    shown = PeerCertificates(root.leaf(MX).certificate, ())
    fault = chain_failure(shown, MX, CertificateAuthorities.of_file(empty), NOW)
    assert fault is not None
    assert "no authorities" in fault.reason
    with pytest.raises(OSError, match="missing"):
        CertificateAuthorities.of_file(tmp_path / "missing.pem")


def test_a_file_of_authorities_that_is_not_there_is_refused_with_the_settings(root: Certified, tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="WAYBILL_TLS_AUTHORITIES"):
        load({"WAYBILL_TLS_AUTHORITIES": str(tmp_path / "missing.pem")})
    found = load({"WAYBILL_TLS_AUTHORITIES": str(root.pem(tmp_path)), "WAYBILL_DNSSEC_TRUSTED": "true"}).settings
    assert (found.tls_authorities, found.dnssec_trusted) == (tmp_path / "authority.pem", True)


def test_an_unreadable_certificate_in_a_bundle_costs_only_itself(root: Certified, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(broken + root.pem(tmp_path).read_bytes())
    assert CertificateAuthorities.of_file(bundle).count == 1


def test_the_authorities_of_this_machine_can_be_read() -> None:
    if not Path("/etc/ssl/certs/ca-certificates.crt").exists():
        pytest.skip("this machine has no bundle of authorities where Debian keeps it")
    assert CertificateAuthorities.of_file().count > 50


# -- what connections demand ------------------------------------------------------------------------


async def test_a_verdict_on_the_certificate_stands_beside_version_and_cipher(
    root: Certified, judge: CertificateVerifier, tmp_path: Path
) -> None:
    middle = root.authority("middle")
    for certified, name, verdict in (
        (middle.leaf(MX), MX, "verified"),
        (middle.leaf(MX), "mx.odd.test", "unverified: for another name"),
        (authority("nobody").leaf(MX), "mx.peer.test", "unverified: issued by nobody we trust"),
        (self_signed(MX), "mx.self.test", "unverified: self-signed"),
    ):
        forget_sessions()
        async with showing(certified, tmp_path) as sink:
            connection = await connect(sink, judge, name=name)
            assert connection.tls is not None
            assert (connection.tls.version, connection.tls.certificate) == ("TLSv1.3", verdict)
            assert connection.tls.cipher.startswith("TLS_")
            await connection.close()


async def test_a_verified_connection_takes_mail_from_the_server_that_proves_its_name(
    root: Certified, judge: CertificateVerifier, tmp_path: Path
) -> None:
    async with showing(root.authority("middle").leaf(MX), tmp_path) as sink:
        connection = await connect(sink, judge, TlsMode.VERIFIED)
        transaction = await connection.send(Envelope("a@b.test", ("c@peer.test",), b"Subject: x\r\n\r\nx\r\n"))
        assert isinstance(transaction.answers[0].outcome, Reply)
        assert sink.messages[0].tls == "TLSv1.3"
        await connection.close()


async def test_a_verified_connection_ends_before_the_envelope_where_the_certificate_fails(
    root: Certified, judge: CertificateVerifier, tmp_path: Path
) -> None:
    for certified, kind in (
        (self_signed(MX), TlsFailureType.NOT_TRUSTED),
        (authority().leaf(MX), TlsFailureType.NOT_TRUSTED),
        (root.leaf("mx.other.test"), TlsFailureType.HOST_MISMATCH),
        (root.leaf(MX, at=datetime.now(UTC) - timedelta(hours=1)), TlsFailureType.EXPIRED),
    ):
        async with showing(certified, tmp_path) as sink:
            failed = await refusal(sink, judge)
            assert failed.fault is not None
            assert (failed.phase, failed.fault.kind) == (Phase.TLS, kind)
            assert isinstance(failed.outcome, Break)
            assert failed.outcome.kind is BreakKind.TLS
            assert failed.transcript[-1]["step"] == "tls"
            assert list(sink.commands) == ["EHLO client.test", "STARTTLS"]


async def test_a_server_without_starttls_gets_no_mail_that_needs_tls(judge: CertificateVerifier) -> None:
    async with Sink() as sink:
        for mode in (TlsMode.ENCRYPTED, TlsMode.VERIFIED, TlsMode.DANE):
            failed = await refusal(sink, judge, mode)
            assert failed.fault is not None
            assert failed.fault.kind is TlsFailureType.STARTTLS_NOT_SUPPORTED
            assert isinstance(failed.outcome, Break)
            assert (failed.phase, failed.outcome.kind) == (Phase.STARTTLS, BreakKind.TLS)
        assert not [line for line in sink.commands if line.startswith("MAIL")]


async def test_an_encrypted_connection_takes_any_certificate(judge: CertificateVerifier, tmp_path: Path) -> None:
    async with showing(self_signed(MX), tmp_path) as sink:
        connection = await connect(sink, judge, TlsMode.ENCRYPTED)
        assert connection.usable
        assert connection.certificate_failure is not None
        await connection.close()


async def test_a_server_that_breaks_right_behind_the_handshake_is_blamed_for_its_tls(
    judge: CertificateVerifier, tmp_path: Path
) -> None:
    """As TLS 1.3 servers do that want a certificate of ours: the handshake is over for us when they find out."""
    context = self_signed(MX).server(tmp_path)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority().pem(tmp_path))
    async with Sink(tls=context) as sink:
        failed = await refusal(sink, judge, TlsMode.OPPORTUNISTIC)
    assert failed.fault is not None
    assert failed.fault.kind is TlsFailureType.VALIDATION_FAILURE


async def test_why_there_is_no_tls_is_known(judge: CertificateVerifier, tmp_path: Path) -> None:
    async with Sink() as sink:
        connection = await connect(sink, judge)
        assert (connection.tls, connection.plaintext_reason) == (None, "the server does not offer STARTTLS")
        await connection.close()
    async with showing(self_signed(MX), tmp_path) as sink:
        sink.script("STARTTLS", "454 4.7.0 not now")
        connection = await connect(sink, judge)
        assert connection.plaintext_reason == "the server refuses STARTTLS: 454 4.7.0 not now"
        await connection.close()


# -- sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_is_taken_up_again_and_its_certificates_are_judged_again(
    root: Certified, judge: CertificateVerifier, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    async with showing(root.authority("middle").leaf(MX), tmp_path, most=version) as sink:
        for resumed in (False, True, True):
            connection = await connect(sink, judge, TlsMode.VERIFIED)
            assert connection.tls is not None
            assert (connection.tls.resumed, connection.tls.certificate) == (resumed, "verified")
            assert connection.transcript[3].get("resumed", False) is resumed
            await connection.close()


async def test_a_session_made_without_demands_opens_no_door_that_wants_a_certificate(
    judge: CertificateVerifier, tmp_path: Path
) -> None:
    async with showing(self_signed(MX), tmp_path) as sink:
        await (await connect(sink, judge)).close()
        failed = await refusal(sink, judge)
        assert not failed.resumed
        assert failed.fault is not None
        assert failed.fault.kind is TlsFailureType.NOT_TRUSTED


async def test_a_session_of_another_server_with_the_same_name_does_no_harm(
    judge: CertificateVerifier, tmp_path: Path
) -> None:
    async with showing(self_signed(MX), tmp_path) as first, showing(self_signed(MX), tmp_path) as second:
        for sink, resumed in ((first, False), (second, False), (second, True)):
            connection = await connect(sink, judge)
            assert connection.tls is not None
            assert connection.tls.resumed is resumed
            await connection.close()


def test_nobody_can_renegotiate_and_policies_demand_tls_1_2() -> None:
    for mode in TlsMode:
        context = client_context(mode)
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_SSLv3
        demanding = mode is not TlsMode.OPPORTUNISTIC
        assert (context.minimum_version is ssl.TLSVersion.TLSv1_2) is demanding


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_an_old_server_gets_the_tls_it_has_unless_more_is_demanded(
    root: Certified, judge: CertificateVerifier, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    async with showing(root.leaf(MX), tmp_path, most=version) as sink:
        connection = await connect(sink, judge)
        assert connection.tls is not None
        assert connection.tls.version == version.name.replace("_", ".")
        await connection.close()
        for mode in (TlsMode.VERIFIED, TlsMode.ENCRYPTED):
            assert (await refusal(sink, judge, mode)).fault is not None


async def test_a_failed_handshake_forgets_the_session(judge: CertificateVerifier, tmp_path: Path) -> None:
    async with showing(self_signed(MX), tmp_path) as sink:
        await (await connect(sink, judge)).close()
        assert client_context(TlsMode.OPPORTUNISTIC).has_session(MX)
        sink.script("STARTTLS", raw=b"220 go\r\n", times=1)  # and then no TLS
        failed = await refusal(sink, judge, TlsMode.OPPORTUNISTIC)
        assert failed.fault is not None
        assert not client_context(TlsMode.OPPORTUNISTIC).has_session(MX)


async def test_kept_sessions_are_bounded_and_end(
    judge: CertificateVerifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with showing(self_signed(MX), tmp_path) as sink:
        await (await connect(sink, judge)).close()
        _, session, shown = client_context(TlsMode.OPPORTUNISTIC)._kept[MX]
    kept = ResumingTlsContext.create()
    for number in range(MAX_SESSIONS + 10):
        kept.keep(f"mx{number}.test", session, shown)
    assert len(kept._kept) == MAX_SESSIONS
    assert kept.has_session(f"mx{MAX_SESSIONS + 9}.test")
    assert not kept.has_session("mx0.test")
    later = asyncio.get_running_loop().time() + 10_000
    monkeypatch.setattr("mta.smtp.client.tls.time.monotonic", lambda: later)
    assert not kept.has_session(f"mx{MAX_SESSIONS + 9}.test")


def test_sans_that_cannot_be_read_name_nobody(root: Certified) -> None:
    assert not covers(root.certificate, (MX,))
    assert isinstance(root.certificate, x509.Certificate)


async def test_certificates_kept_of_another_session_are_not_taken_for_this_ones(
    root: Certified, judge: CertificateVerifier, tmp_path: Path
) -> None:
    """A session may be replaced between the look at its certificates and the handshake that resumes it."""
    stranger = self_signed(MX)
    async with showing(stranger, tmp_path) as sink:
        await (await connect(sink, judge)).close()
        connection = await connect(sink, judge)
        assert connection._transport is not None
        session = connection._transport.get_extra_info("ssl_object")
        assert session.session_reused
        handshake = judge.verify(session, MX, kept=(root.leaf(MX).der,))
        assert handshake.certificate_failure is not None
        assert handshake.certificates == (stranger.der,)
        await connection.close()
