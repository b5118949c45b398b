"""Scanning of received mail: clamd and rspamd, each answering, down, hung, or answering garbage."""

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import orjson
import pytest

from engine.authentication.results import AuthenticationVerdict, AuthenticationVerdicts
from engine.authentication.spam_rules import spam_score
from engine.base.errors import Refusal
from engine.base.settings import Settings
from engine.mail.received import summarise
from engine.receiving.inbound_messages.rules import check_raw
from engine.receiving.types import AttachmentScan, InboundRecipient, ReceivedEnvelope, RecipientPurpose, ScanVerdict
from loadtests.kit.scanners import EICAR, ClamdPeer, RspamdPeer, ScannerMode
from mta.inbound.scanning.breaker import FAILURES, PAUSE_S, CircuitBreaker, ScannerUnavailable
from mta.inbound.scanning.clamd import scan_stream
from mta.inbound.scanning.scan import MessageScanner, ScannerRequired, marked
from tests.harness.accounts import TestAccount
from tests.harness.inbound import deliver, mail, receiving

CLEAN = ScanVerdict(AttachmentScan.CLEAN)
FAILED = ScanVerdict(AttachmentScan.FAILED)
UNSCANNED = ScanVerdict(AttachmentScan.UNSCANNED)
EICAR_FOUND = ScanVerdict(AttachmentScan.INFECTED, "Eicar-Test-Signature")
ENVELOPE = ReceivedEnvelope(
    sender="ann@sender.test",
    recipients=tuple(
        InboundRecipient(given=given, purpose=RecipientPurpose.ADDRESS) for given in ("a@ours.test", "b@ours.test")
    ),
    remote_ip="192.0.2.1",
    helo="mail.sender.test",
)


def with_attachments(*contents: bytes) -> bytes:
    parts = [
        b"--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=a\r\n"
        b"Content-Transfer-Encoding: base64\r\n\r\n" + b64encode(content) + b"\r\n"
        for content in contents
    ]
    head = b"From: <ann@sender.test>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
    return head + b"--b\r\nContent-Type: text/plain\r\n\r\nHello\r\n" + b"".join(parts) + b"--b--\r\n"


def scanner(settings: Settings, **changes: Any) -> MessageScanner:
    return MessageScanner(msgspec.structs.replace(settings, **changes))


async def test_the_raw_message_and_every_decoded_attachment_are_scanned(settings: Settings, tmp_path: Path) -> None:
    raw = with_attachments(b"good", EICAR, b"")
    async with ClamdPeer(path=tmp_path / "clamd.sock") as peer:
        found = await scanner(settings, clamd=peer.address).viruses(raw, 3)

    assert peer.scanned == [raw, b"good", EICAR, b""]
    assert (found.raw, found.attachments) == (CLEAN, (CLEAN, EICAR_FOUND, CLEAN))


def test_a_virus_in_the_raw_message_alone_marks_all_attachments() -> None:
    assert marked(EICAR_FOUND, [CLEAN, FAILED]) == (EICAR_FOUND, EICAR_FOUND)
    assert marked(EICAR_FOUND, [CLEAN, EICAR_FOUND]) == (CLEAN, EICAR_FOUND)
    assert marked(CLEAN, [CLEAN, FAILED]) == (CLEAN, FAILED)


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 1024 * 1024])
async def test_a_stream_is_scanned_whatever_its_size(size: int) -> None:
    async with ClamdPeer() as peer:
        assert await scan_stream(peer.address, b"x" * size) == CLEAN
    assert [len(octets) for octets in peer.scanned] == [size]


async def test_a_stream_beyond_the_limit_of_clamd_is_failed_even_for_a_required_scanner(settings: Settings) -> None:
    async with ClamdPeer() as peer:
        peer.max_bytes = 1_000
        found = await scanner(settings, clamd=peer.address, clamd_required=True).viruses(b"x" * 5_000_000, 0)
    assert found.raw == FAILED


@pytest.mark.parametrize("mode", [ScannerMode.HANGING, ScannerMode.GARBAGE, ScannerMode.CLOSING])
@pytest.mark.parametrize("required", [True, False])
async def test_a_virus_scanner_without_an_answer(mode: ScannerMode, required: bool, settings: Settings) -> None:
    async with ClamdPeer() as peer:
        peer.mode = mode
        ours = scanner(settings, clamd=peer.address, clamd_required=required, clamd_timeout_s=0.3)
        if required:
            with pytest.raises(ScannerRequired):
                await ours.viruses(with_attachments(b"good"), 1)
        else:
            found = await ours.viruses(with_attachments(b"good"), 1)
            assert (found.raw, found.attachments) == (FAILED, (FAILED,))


async def test_a_hung_optional_scanner_costs_its_time_limit_only_a_few_times(settings: Settings) -> None:
    async with ClamdPeer() as peer:
        peer.mode = ScannerMode.HANGING
        ours = scanner(settings, clamd=peer.address, clamd_timeout_s=0.1)
        for _ in range(FAILURES + 20):
            assert (await ours.viruses(b"x", 0)).raw == FAILED
    assert peer.connections == FAILURES


def test_a_scanner_that_is_left_alone_is_tried_again_by_one_message_at_a_time() -> None:
    now = 0.0
    breaker = CircuitBreaker("clamd", lambda: now)
    for _ in range(FAILURES):
        breaker.check()
        breaker.failed()
    with pytest.raises(ScannerUnavailable):
        breaker.check()
    now += PAUSE_S
    breaker.check()
    with pytest.raises(ScannerUnavailable):
        breaker.check()
    breaker.succeeded()
    breaker.check()


async def test_rspamd_is_given_the_envelope_and_its_score_counts(settings: Settings) -> None:
    async with RspamdPeer() as peer:
        peer.reply = {"score": 7.25, "required_score": 15, "action": "greylist", "symbols": {"R_SPF_FAIL": {}}}
        ours = scanner(settings, rspamd_url=peer.url)
        assert await ours.spam_score(b"From: <ann@sender.test>\r\n\r\n", ENVELOPE) == 7.25
        await ours.close()
    [request] = peer.asked
    assert request.lines[0] == "POST /checkv2 HTTP/1.1"
    assert {"IP: 192.0.2.1", "Helo: mail.sender.test", "From: ann@sender.test"} <= set(request.lines)
    assert [line for line in request.lines if line.startswith("Rcpt")] == ["Rcpt: a@ours.test", "Rcpt: b@ours.test"]
    assert request.body == b"From: <ann@sender.test>\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"no json", b"[1]", b'{"score": "high"}', b'{"score": NaN}', b'{"action": "reject"}', b"{" * 2_000_000],
    ids=["hangs", "empty", "no-json", "list", "text-score", "nan", "no-score", "endless"],
)
@pytest.mark.parametrize("required", [True, False])
async def test_rspamd_without_a_score(answer: bytes | None, required: bool, settings: Settings) -> None:
    async with RspamdPeer() as peer:
        if answer is None:
            peer.mode = ScannerMode.HANGING
        else:
            peer.reply = answer
        ours = scanner(settings, rspamd_url=peer.url, rspamd_required=required, rspamd_timeout_s=0.3)
        if required:
            with pytest.raises(ScannerRequired):
                await ours.spam_score(b"x", ENVELOPE)
        else:
            assert await ours.spam_score(b"x", ENVELOPE) is None
        await ours.close()


async def test_rspamd_that_answers_an_error_has_no_score(settings: Settings) -> None:
    async with RspamdPeer() as peer:
        peer.status = 500
        ours = scanner(settings, rspamd_url=peer.url)
        assert await ours.spam_score(b"x", ENVELOPE) is None
        await ours.close()


async def test_mail_waits_at_its_sender_while_a_required_scanner_is_away(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with ClamdPeer() as peer:
        changes = {"clamd": peer.address, "clamd_required": True, "clamd_timeout_s": 0.3}
        async with receiving(settings, tmp_path_factory.mktemp("mx"), **changes) as mx:
            address = await mx.claim(account)
            client = await mx.greeted()
            peer.mode = ScannerMode.HANGING
            assert (await deliver(client, mail(address), address)).startswith("451 4.3.0 ")
            assert await mx.stored(account) == []
            peer.mode = ScannerMode.WORKING
            assert await deliver(client, mail(address), address) == "250 2.0.0 Stored"


async def test_mailboxes_are_refused_at_rcpt_while_a_required_scanner_is_known_to_be_away(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with ClamdPeer() as peer:
        changes = {"clamd": peer.address, "clamd_required": True, "clamd_timeout_s": 0.1}
        async with receiving(settings, tmp_path_factory.mktemp("mx"), **changes) as mx:
            address, report = await mx.claim(account), f"b+nosuchtoken@bounces.{mx.settings.mail_host}"
            client = await mx.greeted()
            peer.mode = ScannerMode.HANGING
            for _ in range(FAILURES):
                await deliver(client, mail(address), address)
            await client.say("MAIL FROM:<>")
            assert (await client.say(f"RCPT TO:<{address}>")).startswith("451 4.3.0 ")
            assert (await client.say(f"RCPT TO:<{report}>")).startswith("250 ")  # reports are not scanned


async def test_a_virus_outside_attachments_is_a_warning_of_the_message(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount
) -> None:
    async with ClamdPeer() as peer, receiving(settings, tmp_path_factory.mktemp("mx"), clamd=peer.address) as mx:
        address = await mx.claim(account)
        await deliver(await mx.greeted(), mail(address, body=EICAR.decode() + "\r\n"), address)
        [row] = await mx.stored(account)
    with pytest.raises(Refusal, match="malicious code"):
        check_raw([], row["warnings"], scanner_required=False)


async def test_what_the_scanners_say_is_stored(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, account: TestAccount, pool: asyncpg.Pool
) -> None:
    async with ClamdPeer() as viruses, RspamdPeer() as spam:
        spam.reply = {"score": 8.5}
        changes = {"clamd": viruses.address, "rspamd_url": spam.url}
        async with receiving(settings, tmp_path_factory.mktemp("mx"), **changes) as mx:
            address = await mx.claim(account)
            reply = await deliver(await mx.greeted(), with_attachments(b"good", EICAR), address)
            assert reply == "250 2.0.0 Stored"
            [row] = await mx.stored(account)
    assert (row["spam_score"], row["is_spam"]) == (8.5, True)
    scans = [(one["scan"], one["signature"]) for one in orjson.loads(row["attachments"])]
    assert scans == [("clean", None), ("infected", "Eicar-Test-Signature")]


def verdicts(spf: str, dkim: str, dmarc: str, policy: Any = "") -> AuthenticationVerdicts:
    first, second, third, none = (AuthenticationVerdict(result) for result in (spf, dkim, dmarc, "none"))
    return AuthenticationVerdicts(first, second, third, none, policy)


@pytest.mark.parametrize(
    ("given", "is_spam"),
    [
        (("pass", "pass", "pass"), False),
        (("none", "none", "none"), False),
        (("fail", "pass", "pass"), False),  # forwarded
        (("fail", "none", "fail", "none"), False),  # forwarded without a signature; its domain asks for nothing
        (("fail", "none", "fail", "reject"), True),
        (("fail", "fail", "fail", "quarantine"), True),
        (("pass", "none", "fail", "reject"), True),  # SPF passed for the envelope domain, which is the forger's own
        (("pass", "pass", "fail", "quarantine"), True),  # and so did DKIM
        (("pass", "fail", "fail", "none"), False),  # a mailing list, and an author whose domain only watches
        (("fail", "none", "permerror"), True),  # its author can't be told
        (("pass", "pass", "permerror"), False),
        (("temperror", "temperror", "temperror"), False),
    ],
)
def test_the_built_in_score_marks_forged_senders_and_spares_forwarded_mail(
    given: tuple[str, ...], is_spam: bool
) -> None:
    score = spam_score(verdicts(*given), summarise(mail("ann@people.test")))
    assert (score >= 6) is is_spam


async def test_scanners_work_at_the_same_time(settings: Settings) -> None:
    async with asyncio.timeout(60), ClamdPeer() as peer:
        ours = scanner(settings, clamd=peer.address)
        found = await asyncio.gather(*[ours.viruses(b"x" * 100_000, 0) for _ in range(50)])
    assert {one.raw for one in found} == {CLEAN}
