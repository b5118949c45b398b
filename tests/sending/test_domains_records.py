"""The records of a set-up, and what counts as having published them."""

from datetime import UTC, datetime

import pytest

from engine.base import ids
from engine.base.secrets import DerivedKey
from engine.sending.domains import records
from engine.sending.domains.reports import report_address, reported_domain
from engine.sending.domains.types import CheckedRecord, DomainKeyRow, MailHostIdentity, RecordFinding, WantedRecord

HOST = "mail.waybill.test"
IDENTITY = MailHostIdentity(HOST, DerivedKey(b"k" * 32))
AT = datetime(2026, 11, 21, 8, 9, 10, tzinfo=UTC)
ID = ids.uuid7()
NAME = "shop.example.com"
RSA = "v=DKIM1; k=rsa; p=" + "A" * 392
KEYS = [
    DomainKeyRow(ID, "wb1", "rsa-sha256", RSA, "active", None),
    DomainKeyRow(ID, "wb1e", "ed25519-sha256", "v=DKIM1; k=ed25519; p=BBBB", "pending", None),
    DomainKeyRow(ID, "wb2", "rsa-sha256", "v=DKIM1; k=rsa; p=CCCC", "standby", None),
    DomainKeyRow(ID, "wb2e", "ed25519-sha256", "v=DKIM1; k=ed25519; p=DDDD", "standby", None),
]


def setup(name: str = NAME) -> list[WantedRecord]:
    return records.wanted_records(ID, name, AT, KEYS, IDENTITY)


def one(purpose: str, kind: str = "TXT") -> WantedRecord:
    return next(each for each in setup() if each.purpose == purpose and each.type == kind)


def nothing(name: str = NAME) -> dict[tuple[str, str], tuple[str, ...] | None]:
    return dict.fromkeys(records.places(setup(name), name), ())


# -- what is asked for ---------------------------------------------------------------------------------------


def test_a_setup_holds_both_selectors_and_everything_around_them() -> None:
    found = [(each.type, each.host) for each in setup()]

    assert found == [
        ("TXT", f"wb1._domainkey.{NAME}"),
        ("TXT", f"wb1e._domainkey.{NAME}"),
        ("TXT", f"wb2._domainkey.{NAME}"),
        ("TXT", f"wb2e._domainkey.{NAME}"),
        ("CNAME", f"bounce.{NAME}"),
        ("TXT", f"bounces.{HOST}"),
        ("MX", f"bounces.{HOST}"),
        ("TXT", f"_dmarc.{NAME}"),
        ("MX", NAME),
        ("TXT", f"_mta-sts.{NAME}"),
        ("CNAME", f"mta-sts.{NAME}"),
        ("TXT", f"_smtp._tls.{NAME}"),
    ]


def test_only_the_rsa_key_that_signs_is_required() -> None:
    assert [each.host for each in setup() if each.required] == [f"wb1._domainkey.{NAME}"]


def test_the_suggestions_are_whole_records() -> None:
    assert one("dmarc").value.startswith("v=DMARC1; p=none; rua=mailto:dmarc+")
    assert one("tls_rpt").value.startswith("v=TLSRPTv1; rua=mailto:tls+")
    assert one("mta_sts").value == "v=STSv1; id=20261121080910"
    assert one("return_path").value == f"v=spf1 a:{HOST} -all"
    assert one("inbound", "MX").value == f"10 {HOST}"
    assert one("mta_sts", "CNAME").value == f"mta-sts.{HOST}"


def test_every_name_fits_dns_for_the_longest_domain() -> None:
    name = ".".join(["a" * 57] * 4) + ".test"
    assert len(name) <= 237
    assert not any(each.host.startswith("bounce.") for each in records.wanted_records(ID, name, AT, KEYS, IDENTITY))
    assert all(len(each.host) <= 253 for each in records.wanted_records(ID, name, AT, KEYS, IDENTITY))


# -- report addresses ----------------------------------------------------------------------------------------


def test_a_report_address_names_its_domain_and_can_not_be_made_up() -> None:
    key = IDENTITY.report_key
    address = report_address(key, "dmarc", ID, HOST)

    assert len(address.partition("@")[0]) <= 64
    assert reported_domain(key, address) == ("dmarc", ID)
    assert reported_domain(key, address.upper()) == ("dmarc", ID)
    assert reported_domain(key, report_address(key, "tls", ID, HOST)) == ("tls", ID)
    assert reported_domain(DerivedKey(b"another key"), address) is None
    assert reported_domain(key, address.replace("dmarc+", "tls+")) is None
    flipped = address[:20] + ("0" if address[20] != "0" else "1") + address[21:]
    assert reported_domain(key, flipped) is None
    for other in ("", "@", "dmarc", "dmarc+", "dmarc+" + "u" * 40 + f"@{HOST}", "b+" + "0" * 40, "dmarc+" + "0" * 39):
        assert reported_domain(key, other) is None


# -- what was found ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((), "missing"),
        ((RSA,), "ok"),
        ((RSA.replace("; ", ";").replace("k=rsa", "k = rsa"),), "ok"),
        ((RSA.replace("AAAA", "AA AA"),), "ok"),  # folded by somebody's editor (RFC 6376 3.2)
        ((RSA.removeprefix("v=DKIM1; k=rsa; "),), "ok"),  # both have these defaults (RFC 6376 3.6.1)
        ((RSA + "; t=s; s=email; h=sha1:sha256",), "ok"),
        ((RSA + "; h=sha1",), "mismatch"),
        ((RSA + "; s=tlsrpt",), "mismatch"),
        ((RSA.replace("k=rsa", "k=ed25519"),), "mismatch"),
        ((RSA.replace("DKIM1", "DKIM2"),), "mismatch"),
        (("k=rsa; v=DKIM1; p=" + "A" * 392,), "mismatch"),  # `v=` must be the first tag (RFC 6376 3.6.1)
        ((RSA + "; k=rsa",), "mismatch"),  # no tag may be there twice (RFC 6376 3.2)
        ((RSA[:-1],), "mismatch"),
        (("v=DKIM1; p=",), "mismatch"),  # revoked
        ((RSA, RSA.replace("A", "B")), "mismatch"),  # RFC 6376 3.6.2.2
        (("v=spf1 -all",), "mismatch"),
        (("\ufffd",), "mismatch"),
        (("",), "mismatch"),
    ],
)
def test_a_key_record_is_read_as_verifiers_read_it(found: tuple[str, ...], status: str) -> None:
    assert records.status_of(one("dkim"), found) == status


@pytest.mark.parametrize(
    ("purpose", "kind", "found", "status"),
    [
        ("dmarc", "TXT", ("v=DMARC1; p=none",), "ok"),
        ("dmarc", "TXT", ("v=DMARC1;p=REJECT;rua=mailto:me@example.org",), "ok"),
        ("dmarc", "TXT", ("google-site-verification=1", "v=DMARC1; p=quarantine"), "ok"),
        ("dmarc", "TXT", ("v=DMARC1; p=perhaps",), "mismatch"),
        ("dmarc", "TXT", ("v=DMARC1",), "mismatch"),
        ("dmarc", "TXT", ("v=DMARC1; p=none", "v=DMARC1; p=reject"), "mismatch"),
        ("dmarc", "TXT", ("v=DMARC10; p=none",), "missing"),
        ("inbound", "MX", (f"5 {HOST}", "10 other.test"), "ok"),
        ("inbound", "MX", ("10 other.test",), "mismatch"),
        ("inbound", "MX", ("0 .",), "mismatch"),
        ("mta_sts", "CNAME", (f"mta-sts.{HOST}",), "ok"),
        ("mta_sts", "CNAME", ("pages.example",), "mismatch"),
        ("mta_sts", "TXT", ("v=STSv1; id=20261121080910;",), "ok"),
        ("mta_sts", "TXT", ("v=STSv1; id=1",), "mismatch"),
        ("tls_rpt", "TXT", ("v=TLSRPTv1; rua=https://example.org/r",), "ok"),
        ("tls_rpt", "TXT", ("v=TLSRPTv1",), "mismatch"),
        ("return_path", "TXT", (f"v=spf1 ip4:192.0.2.1 a:{HOST} ~all",), "ok"),
        ("return_path", "TXT", ("v=spf1 -all",), "mismatch"),
        ("return_path", "TXT", ("hello",), "missing"),
        ("return_path", "TXT", (";",), "missing"),
    ],
)
def test_the_optional_records_count_by_what_they_do(
    purpose: str, kind: str, found: tuple[str, ...], status: str
) -> None:
    assert records.status_of(one(purpose, kind), found) == status


def test_a_name_without_a_policy_takes_the_one_above() -> None:
    answers = nothing() | {("TXT", "_dmarc.example.com"): ("v=DMARC1; p=reject",)}
    checks = {check.wanted.purpose: check for check in records.checked(setup(), NAME, answers, {})}  # type: ignore[arg-type]

    found = checks["dmarc"].finding
    assert (found.status, found.found) == ("ok", ("_dmarc.example.com: v=DMARC1; p=reject",))


def test_the_walk_up_ends_before_a_registry() -> None:
    assert records.ancestors("a.shop.co.uk") == ["shop.co.uk"]
    assert records.ancestors("shop.co.uk") == []
    assert records.ancestors("example.com") == []
    assert len(records.ancestors(".".join("abcdefghijklm"))) == records.MAX_ANCESTORS


def test_what_dns_did_not_tell_keeps_what_was_known_and_says_so() -> None:
    answers = nothing() | {one("dkim").place: None, one("inbound", "MX").place: None}
    before = {
        f"TXT wb1._domainkey.{NAME}": RecordFinding("ok", (RSA,)),
    }
    checks = {(c.wanted.type, c.wanted.host): c.finding for c in records.checked(setup(), NAME, answers, before)}  # type: ignore[arg-type]

    assert checks[one("dkim").place] == RecordFinding("ok", (RSA,), records.NO_ANSWER)
    assert checks["MX", NAME] == RecordFinding("missing", (), records.NO_ANSWER)
    assert checks["TXT", f"_smtp._tls.{NAME}"] == RecordFinding("missing", ())


def test_findings_are_kept_and_held_against_the_keys_of_the_day() -> None:
    kept = records.encoded([CheckedRecord(one("dkim"), RecordFinding("ok", (RSA,)))])
    now = [DomainKeyRow(ID, "wb1", "rsa-sha256", "v=DKIM1; k=rsa; p=NEW", "standby", None)]
    wanted = records.wanted_records(ID, NAME, AT, now, IDENTITY)

    assert records.known(setup(), kept)[0].finding == RecordFinding("ok", (RSA,))
    assert records.known(wanted, kept)[0].finding == RecordFinding("mismatch", (RSA,))
    assert records.known(setup(), None)[0].finding == RecordFinding()
    assert records.known(setup(), "[1]")[0].finding == RecordFinding()


def test_tags_are_read_whatever_the_spacing() -> None:
    assert records.tags(" v = DKIM1 ;p=a b\tc; p=other;; x") == {"v": "DKIM1", "p": "abc"}
