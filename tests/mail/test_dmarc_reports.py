"""DMARC aggregate reports: sums of rows, deviations of reporters, limits."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail import dmarc_reports
from engine.mail.dmarc_reports import (
    MAX_DEPTH,
    MAX_NAMES,
    MAX_ROWS,
    MAX_TAG,
    BadReport,
    DmarcReader,
    DmarcReport,
    DmarcRow,
    read_dmarc_report,
)

DAY = datetime(2026, 11, 1, tzinfo=UTC)
ABOUT = (
    "<report_metadata><org_name>Reporter</org_name><email>noreply@reporter.example</email>"
    "<report_id>r-1</report_id><date_range><begin>1793491200</begin><end>1793577599</end></date_range></report_metadata>"
    "<policy_published><domain>Example.com</domain><adkim>r</adkim><p>Reject</p><sp>none</sp></policy_published>"
)


def row(
    ip: str = "192.0.2.1",
    count: object = 1,
    disposition: str = "none",
    dkim: str = "pass",
    spf: str = "fail",
    header_from: str = "<header_from>example.com</header_from>",
) -> str:
    return (
        f"<record><row><source_ip>{ip}</source_ip><count>{count}</count><policy_evaluated>"
        f"<disposition>{disposition}</disposition><dkim>{dkim}</dkim><spf>{spf}</spf></policy_evaluated></row>"
        f"<identifiers><envelope_from>other.example</envelope_from>{header_from}</identifiers>"
        "<auth_results><dkim><domain>example.com</domain><result>pass</result></dkim>"
        "<spf><domain>x.example</domain><result>pass</result></spf></auth_results></record>"
    )


def document(*rows: str, root: str = "feedback", about: str = ABOUT, start: str = '<?xml version="1.0"?>') -> bytes:
    return f"{start}<{root}>{about}{''.join(rows)}</{root.partition(' ')[0]}>".encode()


def read(xml: bytes, size: int = 1_000) -> DmarcReport:
    return read_dmarc_report(xml[at : at + size] for at in range(0, len(xml), size))


def test_rows_of_one_key_are_summed() -> None:
    found = read(document(row(count=3), row(count=4), row(count=5, spf="pass"), row("2001:DB8::0001", 7)))

    assert found.counts == {
        DmarcRow("192.0.2.1", "example.com", "none", dkim=True, spf=False): 7,
        DmarcRow("192.0.2.1", "example.com", "none", dkim=True, spf=True): 5,
        DmarcRow("2001:db8::1", "example.com", "none", dkim=True, spf=False): 7,
    }
    assert (found.rows, found.skipped) == (4, 0)
    assert (found.reporter, found.report_id, found.policy_domain) == ("Reporter", "r-1", "example.com")
    assert (found.policy, found.subdomain_policy) == ("reject", "none")
    assert (found.begin, found.end) == (
        DAY,
        datetime(2026, 11, 1, 23, 59, 59, tzinfo=UTC),
    )


def test_results_of_the_checks_are_not_taken_for_alignment() -> None:
    [key] = read(document(row(dkim="fail", spf="fail"))).counts
    assert (key.dkim, key.spf) == (False, False)


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        (("none", "pass", "fail"), ("none", True, False)),
        (("Quarantine", "Pass", "FAIL"), ("quarantine", True, False)),
        (("REJECT ", " pass ", ""), ("reject", True, False)), (("pass", "pass", "pass"), ("none", True, True)),
        (("", "", ""), ("none", False, False)), (("unused", "none", "neutral"), ("none", False, False)),
    ],
)  # fmt: skip
def test_words_count_in_any_case_and_pass_is_no_action(
    given_words: tuple[str, str, str], expected: tuple[str, bool, bool]
) -> None:
    [key] = read(document(row("192.0.2.1", 1, *given_words))).counts
    assert (key.disposition, key.dkim, key.spf) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"), ("2001:0DB8:0:0:0:0:0:1", "2001:db8::1"), ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[2001:db8::1]", "2001:db8::1"), ("fe80::1%eth0", "fe80::1"), ("192.0.2.999", None), ("", None),
        ("host", None),
    ],
)  # fmt: skip
def test_addresses_have_one_form_and_rows_without_one_are_skipped(text: str, expected: str | None) -> None:
    found = read(document(row(text), row("198.51.100.1")))
    assert [key.source_ip for key in found.counts if key.source_ip != "198.51.100.1"] == (
        [expected] if expected else []
    )
    assert found.skipped == (expected is None)


@pytest.mark.parametrize("count", ["", "-1", "1.5", "many", "9" * 30, "٣", "10000000000"])
def test_rows_without_a_valid_count_are_skipped(count: str) -> None:
    found = read(document(row(count=count), row(count="0")))
    assert (found.rows, found.skipped, sum(found.counts.values())) == (2, 1, 0)


@pytest.mark.parametrize(
    "xml",
    [
        document(row(), root='feedback xmlns="urn:ietf:params:xml:ns:dmarc-2.0"'),
        document(
            row(), root='feedback xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns="http://x.example/d"'
        ),
        document(row()).replace(b"<", b"<ns2:").replace(b"<ns2:/", b"</ns2:").replace(b"<ns2:?", b"<?"),
        document(row()).replace(b"record", b"Record").replace(b"feedback", b"FEEDBACK"),
        document(row(), start="\ufeff\r\n <?xml version='1.0' encoding='UTF-8'?>"),
        document(row(), start=""),
        document(row(), start='<?xml version="1.0" encoding="utf-16"?>'),
        document(row(), start='<?xml version="1.0" encoding="windows-1252"?>').replace(b"Reporter", b"Rep\xf6rter"),
        document(row(), start='<?xml version="1.0" encoding="x-none"?>'),
        document(row()).replace(b"Reporter", b"Rep\xf6r\x00\x0bter"),
        document(row()).decode().encode("utf-16"),
        document(row()).decode().encode("utf-16-le"),
        document(row(), about="<xs:schema id='a'>" + ABOUT),
        document(row(), about=ABOUT + "</xs:schema>"),
        document(row(), about=ABOUT.replace("noreply@reporter.example", "<bad@reporter.example>")),
        document(row()) + document(row("203.0.113.9")),
        document(row()) + b"\r\n\0\0trailing",
        document(row().replace("identifiers", "identities")),
        document(row(), about=ABOUT + "<record/><extension><row><x>&amp;</x></row></extension>"),
    ],
)
def test_deviations_of_reporters_are_read(xml: bytes) -> None:
    for size in (7, 1_000, 100_000):
        found = read(xml, size)
        assert list(found.counts) == [DmarcRow("192.0.2.1", "example.com", "none", dkim=True, spf=False)]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("1793491200", DAY), ("1793491200.5", DAY),
        ("2026-11-01T00:00:00Z", DAY), ("2026-11-01 00:00:00", DAY),
        ("302832000", datetime(1979, 8, 7, tzinfo=UTC)), ("", None), ("yesterday", None), ("9" * 40, None),
        ("-5", None),
    ],
)  # fmt: skip
def test_dates(begin: str, expected: datetime | None) -> None:
    assert read(document(row(), about=ABOUT.replace("1793491200", begin))).begin == expected


def test_the_declared_encoding_counts_in_pieces_of_any_size() -> None:
    xml = document(row(), start='<?xml version="1.0" encoding="windows-1252"?>').replace(b"Reporter", b"Rep\xf6rter")
    assert {read(xml, size).reporter for size in (1, 7, 600, 100_000)} == {"Repörter"}


def test_the_domain_of_the_policy_counts_where_a_row_names_none() -> None:
    [key] = read(document(row(header_from=""))).counts
    assert key.header_from == "example.com"


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        (document(row(), start="<!DOCTYPE feedback SYSTEM 'http://x.example/'>"), "document type"),
        (document(row(), start='<!DOCTYPE f [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'), "document type"),
        (document(row(), about=ABOUT + "<a>" * MAX_DEPTH), "deeper"), (document(row())[:-30], "not well-formed"),
        (b"", "not well-formed"), (b"{}", "not well-formed"), (b"<feedback/>", "neither"),
        (b"<html><body/></html>", "neither"), (document(row(header_from="&nbsp;")), "not well-formed"),
    ],
)  # fmt: skip
def test_other_documents_are_refused_with_the_reason(xml: bytes, reason: str) -> None:
    with pytest.raises(BadReport, match=reason):
        read(xml)


def test_more_rows_than_the_limit_are_refused_before_the_end() -> None:
    reader = DmarcReader()
    reader.feed(document()[: -len("</feedback>")])
    piece = b"<record><row><source_ip>192.0.2.1</source_ip><count>1</count></row></record>" * (MAX_ROWS // 10)
    for _ in range(10):
        reader.feed(piece)
    with pytest.raises(BadReport, match="more than"):
        reader.feed(row().encode() + b" ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<record>" + "<row/>" * (MAX_ROWS + 1), "more than 100000 rows"),
        ("".join(f"<a{number}/>" for number in range(MAX_NAMES)), "more than 256 different names"),
        ("<a " + " ".join(f"b{number}='c'" for number in range(MAX_NAMES)) + "/>", "more than 256 different names"),
        ("<a b='" + "x" * (MAX_TAG + 65_536 * 2), "more than 65536 octets"),
        ("<!-- " + "x" * (MAX_TAG + 65_536 * 2), "more than 65536 octets"),
    ],
    ids=["rows of one record", "elements", "attributes", "tag", "comment"],
)
def test_what_costs_memory_or_time_is_refused_before_the_end(text: str, reason: str) -> None:
    beginning = document(about=text)[: -len("</feedback>")]
    with pytest.raises(BadReport, match=reason):
        read(beginning, 65_536)


def test_more_elements_than_the_limit_are_refused_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmarc_reports, "MAX_ELEMENTS", 1_000)
    reader = DmarcReader()
    with pytest.raises(BadReport, match="more than 1000 elements"):
        reader.feed(document(about="<a/>" * 1_000)[: -len("</feedback>")])


def test_long_values_and_open_tags_take_a_bounded_time() -> None:
    began = time.process_time()
    for text in ("<org_name>" + "x" * 4_000_000, "<a " + "b='c' " * 600_000, "<" * 4_000_000, "<a@" * 1_000_000):
        with pytest.raises(BadReport):
            read(document(about=text), 65_536)
    assert time.process_time() - began < 5


@given(st.binary(max_size=400), st.integers(0, 1_200))
def test_arbitrary_octets_raise_nothing_else(octets: bytes, at: int) -> None:
    xml = document(row(), row())
    for damaged in (octets, xml[:at] + octets + xml[at:]):
        try:
            read(damaged, 64)
        except BadReport:
            continue
