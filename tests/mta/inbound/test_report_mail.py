"""Bounces and complaints over real sessions: which of them act, and which anybody could have written."""

from uuid import UUID

import pytest
from msgspec import structs

from engine.authentication import dkim_signing as dkim
from engine.base import ids
from engine.mail import feedback_headers, return_path
from engine.receiving.reports import read_reports, store
from engine.receiving.reports.types import ReportPurpose
from engine.sending.settle import Settler
from tests.harness.accounts import PEPPER, TestAccount
from tests.harness.inbound import TestMx, deliver
from tests.harness.report_mails import arf, dsn, failed, message_id_field
from tests.harness.sending import Process
from tests.harness.stored_messages import day_counts, events, status, statuses, suppressed
from tests.receiving.test_late_bounce import ANN, delivered

BOB, CLEO = "bob@far.test", "cleo@far.test"
DER = dkim.generate_rsa()
LISTED = ("fbl.provider.test", "staff@mailbox.test")


def signed(mx: TestMx, raw: bytes, domain: str) -> bytes:
    """The mail with a DKIM signature of a domain, whose key is in DNS."""
    mx.zone.set(f"s1._domainkey.{domain}", "TXT", [dkim.public_txt(DER)])
    return dkim.sign(raw, [dkim.load(domain, "s1", DER)], at=int(ids.milliseconds_of(ids.uuid7()) / 1000)) + raw


async def mailed(
    mx: TestMx, raw: bytes, to: str, *, sender: str = "", name: str = "client.test"
) -> tuple[str, str | None]:
    """Mail a report to the MX and let it be read; return its state and result."""
    assert await deliver(await mx.greeted(name=name), raw, to, sender=sender) == "250 2.0.0 Stored"
    pool = mx.services.pool
    await read_reports.read_due(pool, structs.replace(mx.settings, complaint_reporters=LISTED))
    digest, local = store.digest(raw, ReportPurpose.FEEDBACK), to.partition("@")[0]
    row = await pool.fetchrow("SELECT state, result FROM report_mails WHERE digest = $1 AND local = $2", digest, local)
    assert row is not None
    return row["state"], row["result"]


def fbl(mx: TestMx) -> str:
    return f"fbl@{mx.settings.mail_host}"


def bounce_address(mx: TestMx, token: str) -> str:
    return f"b+{token}@bounces.{mx.settings.mail_host}"


def cfbl_token(message: UUID) -> str:
    return feedback_headers.cfbl_feedback_id(feedback_headers.cfbl_key(PEPPER), message)


@pytest.mark.parametrize(
    ("author", "signer"),
    [
        ("fbl@provider.test", None),
        ("feedback@fbl.provider.test", None),  # a listed reporter, forged
        ("feedback@fbl.provider.test", "evil.test"),
        ("feedback@fbl.provider.test", "x.fbl.provider.test"),  # below the author's domain: anybody may have that
        ("abuse@evil.test", "evil.test"),
        ("feedback@provider.test", "provider.test"),  # above the listed domain
        ("eve@mailbox.test", "mailbox.test"),  # only staff@ reports there
    ],
)
@pytest.mark.parametrize("kind", ["abuse", "opt-out"])
async def test_a_complaint_that_anybody_could_write_is_stored_without_effect(
    mx: TestMx, door: Process, settler: Settler, author: str, signer: str | None, kind: str
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN)
    raw = arf(kind, author=author, headers=message_id_field(account, message))
    raw = raw if signer is None else signed(mx, raw, signer)
    before = await events(door.pool, message)

    assert await mailed(mx, raw, fbl(mx), sender=author) == ("ignored", "recorded")

    assert await statuses(door.pool, message) == {ANN: "delivered"}
    assert await events(door.pool, message) == before
    assert await suppressed(door.pool, account) == []
    assert await day_counts(door.pool, account) == {"delivered": 1}
    row = await door.pool.fetchrow("SELECT raw, account_id FROM report_mails WHERE message_id = $1", message)
    assert row is not None
    assert (row["raw"], row["account_id"]) == (raw, account.id)


@pytest.mark.parametrize(
    ("author", "signer"),
    [
        ("feedback@fbl.provider.test", "fbl.provider.test"),
        ("feedback@fbl.provider.test", "provider.test"),
        ("Staff@Mailbox.test", "mailbox.test"),
    ],
)
async def test_a_complaint_signed_by_a_listed_reporter_counts_by_its_message_id(
    mx: TestMx, door: Process, settler: Settler, author: str, signer: str
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN)
    raw = signed(mx, arf(author=author, headers=message_id_field(account, message)), signer)

    assert await mailed(mx, raw, fbl(mx)) == ("applied", "recorded")

    assert await status(door.pool, message) == "complained"
    assert await suppressed(door.pool, account) == [ANN]
    detail = (await events(door.pool, message))[-1][1]
    assert detail["reporter"] == author.lower().partition("@")[2]


async def test_a_complaint_that_goes_to_a_mailbox_too_is_judged_once_for_both(
    mx: TestMx, door: Process, settler: Settler, account: TestAccount
) -> None:
    sender, message = await delivered(door, settler, door.pool, ANN)
    mailbox = await mx.claim(account)
    raw = arf(author="feedback@fbl.provider.test", headers=message_id_field(sender, message))
    raw = signed(mx, raw, "fbl.provider.test")

    assert await deliver(await mx.greeted(), raw, mailbox, fbl(mx)) == "250 2.0.0 Stored"
    await read_reports.read_due(door.pool, structs.replace(mx.settings, complaint_reporters=LISTED))

    assert await status(door.pool, message) == "complained"
    assert len(await mx.stored(account)) == 1


async def test_a_complaint_at_the_return_path_of_one_recipient_counts_whoever_sends_it(
    mx: TestMx, door: Process, settler: Settler
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN)
    path = return_path.token(return_path.key_of(PEPPER), message, 0)

    assert await mailed(mx, arf(), bounce_address(mx, path)) == ("applied", "recorded")

    assert await suppressed(door.pool, account) == [ANN]
    assert "reporter" not in (await events(door.pool, message))[-1][1]


async def test_a_complaint_token_from_a_forwarded_header_does_not_count_without_a_signature(
    mx: TestMx, door: Process, settler: Settler
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN)
    quoted = arf(author="fbl@people.test", headers=f"CFBL-Feedback-ID: {cfbl_token(message)}\r\n")

    assert await mailed(mx, quoted, fbl(mx)) == ("ignored", "recorded")
    assert await suppressed(door.pool, account) == []
    again = signed(mx, quoted.replace(b"This is a", b"Here is a"), "people.test")
    assert await mailed(mx, again, fbl(mx)) == ("applied", "recorded")
    assert await suppressed(door.pool, account) == [ANN]


async def test_the_author_of_a_complaint_at_a_return_path_is_known_by_spf_or_dkim(
    mx: TestMx, door: Process, settler: Settler
) -> None:
    mx.zone.set("spf.test", "TXT", ["v=spf1 ip4:127.0.0.0/8 -all"])
    for sender, signer, wanted in (
        ("fbl@spf.test", None, ("fbl@spf.test", None)),
        ("", "signs.test", ("fbl@signs.test", "signs.test")),
        ("eve@evil.test", None, (None, None)),
    ):
        _, message = await delivered(door, settler, door.pool, ANN)
        path = return_path.token(return_path.key_of(PEPPER), message, 0)
        raw = arf(author=f"fbl@{signer or 'spf.test'}")
        raw = raw if signer is None else signed(mx, raw, signer)
        assert await mailed(mx, raw, bounce_address(mx, path), sender=sender) == ("applied", "recorded")
        row = await door.pool.fetchrow(
            "SELECT reporter_address, signed_by FROM report_mails WHERE message_id = $1", message
        )
        assert row is not None
        assert tuple(row) == wanted


async def test_a_bounce_without_a_token_of_a_return_path_has_no_effect(
    mx: TestMx, door: Process, settler: Settler
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN)
    genuine = return_path.token(return_path.key_of(PEPPER), message, 0)
    forged = genuine[:-1] + ("0" if genuine[-1] != "0" else "1")
    whole = return_path.token(return_path.key_of(PEPPER), message, return_path.WHOLE_MESSAGE)
    raw = failed(ANN) + message_id_field(account, message).encode()

    assert await mailed(mx, raw, bounce_address(mx, forged)) == ("ignored", "no_token")
    assert await mailed(mx, raw, bounce_address(mx, cfbl_token(message))) == ("ignored", "no_token")
    assert await mailed(mx, raw, bounce_address(mx, whole)) == ("ignored", "unknown_recipient")
    assert await mailed(mx, raw, fbl(mx)) == ("unreadable", "no_complaint")

    assert await statuses(door.pool, message) == {ANN: "delivered"}
    assert await suppressed(door.pool, account) == []


async def test_a_recipient_cannot_bounce_or_report_those_of_another_domain(
    mx: TestMx, door: Process, settler: Settler
) -> None:
    account, message = await delivered(door, settler, door.pool, ANN, BOB, CLEO)
    cfbl, key = cfbl_token(message), return_path.key_of(PEPPER)
    shared = return_path.token(key, message, return_path.shared_place(1))  # in the copies of Bob and Cleo
    old = return_path.token(key, message, return_path.WHOLE_MESSAGE)

    assert await mailed(mx, failed(ANN), bounce_address(mx, cfbl)) == ("ignored", "no_token")
    for token in (shared, old):
        assert await mailed(mx, failed(ANN), bounce_address(mx, token)) == ("ignored", "unknown_recipient")
    for token in (cfbl, old):
        report = arf(
            author="cleo@far.test",
            headers=f"CFBL-Feedback-ID: {token}\r\n",
            fields=f"Original-Rcpt-To: {ANN}\r\n",
        )
        assert await mailed(mx, signed(mx, report, "far.test"), fbl(mx)) == ("ignored", "recorded")
    named = arf(fields=f"Original-Rcpt-To: {ANN}\r\n")
    assert await mailed(mx, named, bounce_address(mx, shared)) == ("ignored", "recorded")
    assert set((await statuses(door.pool, message)).values()) == {"delivered"}
    assert await suppressed(door.pool, account) == []

    own = arf(author="fbl@far.test", headers=f"CFBL-Feedback-ID: {cfbl}\r\n", fields=f"Original-Rcpt-To: {BOB}\r\n")
    assert await mailed(mx, own, fbl(mx)) == ("ignored", "recorded")  # not signed, and all recipients read the token
    again = signed(mx, own.replace(b"This is a", b"Here is a"), "far.test")
    assert await mailed(mx, again, fbl(mx)) == ("applied", "recorded")
    assert await mailed(mx, failed(CLEO), bounce_address(mx, shared)) == ("applied", "bounced")
    assert await statuses(door.pool, message) == {ANN: "delivered", BOB: "complained", CLEO: "bounced"}
    assert await suppressed(door.pool, account) == [BOB]  # anybody who got the copy could write that bounce


@pytest.mark.parametrize(("way", "name"), [("dkim", "client.test"), ("spf of the greeting", "mx.far.test")])
async def test_the_author_of_a_bounce_is_known_at_a_shared_return_path_only(
    mx: TestMx, door: Process, settler: Settler, way: str, name: str
) -> None:
    account, message = await delivered(door, settler, door.pool, BOB, CLEO)
    key = return_path.key_of(PEPPER)
    raw = dsn((CLEO, "failed", "5.1.1", "550 5.1.1 no such user"), reporter="mx.far.test")
    if way == "dkim":
        raw = signed(mx, raw.replace(b"MAILER-DAEMON@mx.far.test", b"MAILER-DAEMON@far.test"), "far.test")
    else:  # the sender is null, so SPF checks the name of EHLO
        mx.zone.set("mx.far.test", "TXT", ["v=spf1 ip4:127.0.0.0/8 -all"])

    single = return_path.token(key, (await delivered(door, settler, door.pool, CLEO))[1], 0)
    for token in (single, return_path.token(key, message, return_path.shared_place(0))):
        assert await mailed(mx, raw, bounce_address(mx, token), name=name) == ("applied", "bounced")
    authors = await door.pool.fetch(
        "SELECT reporter_address FROM report_mails WHERE local = $1 OR message_id = $2 ORDER BY id",
        f"b+{single}", message,
    )  # fmt: skip

    assert [row["reporter_address"] is None for row in authors] == [True, False]
    assert await suppressed(door.pool, account) == [CLEO]
