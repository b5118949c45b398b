"""Read DMARC aggregate reports (RFC 7489 Appendix C, RFC 9990) and sum their rows while parsing.

A report of 100,000 rows takes about two seconds of CPU: callers run the reader in a thread or feed it piece by piece.
Memory grows with the number of different rows only. Reports come from strangers and in many variants: names count in
any case and namespace, and what the summary doesn't need is ignored.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from xml.parsers import expat

from msgspec import Struct

from engine.mail.xml_text import XmlText

MAX_ROWS: Final = 100_000
MAX_ELEMENTS: Final = 4_000_000  # a row with its record has about 25
MAX_NAMES: Final = 256  # different names of elements and attributes; the parser keeps each; a report has about 40
MAX_TAG: Final = 64 * 1024  # octets of one tag or comment; the parser begins an incomplete one again with each piece
MAX_DEPTH: Final = 32  # elements within elements; a report has 5
MAX_COUNT: Final = 1_000_000_000  # messages of one row
MAX_WORD: Final = 512  # characters of one value; longer ones are cut

_DISPOSITIONS: Final = frozenset({"none", "quarantine", "reject"})
_REPORT: Final = "report"


class BadReport(ValueError):  # noqa: N818 - named for what was given
    """The content is no DMARC aggregate report, or exceeds a limit; the message says why."""


class DmarcRow(NamedTuple):
    """The key by which rows of a report are summed. `dkim` and `spf`: aligned with `header_from` (RFC 7489 3.1)."""

    source_ip: str  # RFC 5952 form
    header_from: str  # lower case
    disposition: str  # none, quarantine or reject
    dkim: bool
    spf: bool


class DmarcReport(Struct, frozen=True):
    """An aggregate report. `begin` and `end` are None if the report has no valid date.

    `counts` holds the number of messages for each different row, `rows` the number of rows read, `skipped` that of rows
    without a valid address or count.
    """

    reporter: str
    email: str
    report_id: str
    begin: datetime | None
    end: datetime | None
    policy_domain: str
    policy: str
    subdomain_policy: str
    counts: dict[DmarcRow, int]
    rows: int
    skipped: int


def read_dmarc_report(pieces: Iterable[bytes]) -> DmarcReport:
    """Read a whole report from its unpacked pieces. Raises BadReport, and what iterating over `pieces` raises."""
    reader = DmarcReader()
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()


class DmarcReader:
    """Parses one report piece by piece; lives for that report."""

    def __init__(self) -> None:
        self._text = XmlText()
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_doctype
        self._collector = _Collector(parser)
        self._fed = 0  # octets
        self._ended = False

    def feed(self, piece: bytes) -> None:
        """Parse the next octets. Raises BadReport."""
        self._parse(self._text.feed(piece), final=False)

    def finish(self) -> DmarcReport:
        """Return the report after the last piece. Raises BadReport if it is incomplete."""
        self._parse(self._text.finish(), final=True)
        return self._collector.report()

    def _parse(self, text: bytes, *, final: bool) -> None:
        if self._ended:
            return
        self._fed += len(text)
        try:
            self._parser.Parse(text, final)
            if self._fed - self._parser.CurrentByteIndex > MAX_TAG + len(text):
                raise BadReport(f"The report has a tag or comment of more than {MAX_TAG} octets.")
        except expat.ExpatError as error:
            # Some reporters send the document twice, or with the rest of a template behind it.
            if error.code != expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]:
                raise BadReport(f"The report is not well-formed XML: {error}.") from error
            self._ended = True


def _refuse_doctype(*_declaration: Any) -> None:
    raise BadReport("The report has a document type declaration, which is refused.")


class _Collector:
    """The handlers of one parser: the values of the current record, and the sums so far."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        self._path: list[str] = []
        self._names: dict[str, str] = {}  # of elements and attributes, by the tags as written
        self._word = ""
        self._values: dict[str, str] = {}  # of the current record
        self._rows: list[dict[str, str]] = []  # of the current record, nearly always one
        self._elements = 0
        self._about: dict[str, str] = {}
        self._ips: dict[str, str | None] = {}
        self._counts: dict[DmarcRow, int] = {}
        self._read = self._skipped = 0
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def report(self) -> DmarcReport:
        about = self._about
        if "domain" not in about and not self._read:
            raise BadReport("The XML document isn't a DMARC aggregate report: it has neither a policy nor a record.")
        return DmarcReport(
            reporter=about.get("org_name", ""), email=about.get("email", ""), report_id=about.get("report_id", ""),
            begin=_time(about.get("begin", "")), end=_time(about.get("end", "")),
            policy_domain=_domain(about.get("domain", "")), policy=about.get("p", "").lower(),
            subdomain_policy=about.get("sp", "").lower(),
            counts=self._counts, rows=self._read, skipped=self._skipped,
        )  # fmt: skip

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = self._names.get(tag) or self._name(tag)
        for attribute in attributes:
            if attribute not in self._names:
                self._name(attribute)
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise BadReport(f"The report has more than {MAX_ELEMENTS} elements.")
        self._path.append(name)
        if len(self._path) > MAX_DEPTH:
            raise BadReport(f"The report nests deeper than {MAX_DEPTH} elements.")
        self._word = ""
        self._parser.CharacterDataHandler = self._characters if name in _WANTED else None
        if name == "record":
            self._values, self._rows = {}, []

    def _characters(self, text: str) -> None:
        if len(self._word) < MAX_WORD:
            self._word += text[:MAX_WORD]

    def _end(self, _tag: str) -> None:
        path = self._path
        name = path.pop()
        self._parser.CharacterDataHandler = None
        place = _WANTED.get(name)
        if place is not None:
            parent = path[-1] if path else ""
            if parent in place:
                values = self._about if place[parent] == _REPORT else self._values
                values.setdefault(name, self._word[:MAX_WORD].strip())
        elif name == "row":
            self._rows.append(self._values)
            self._values = {}
            self._check_rows(self._read + len(self._rows))
        elif name == "record":
            self._sum()

    def _name(self, tag: str) -> str:
        """Return a new name in lower case and without its namespace prefix. Raises BadReport if there are too many."""
        if len(self._names) == MAX_NAMES:
            raise BadReport(f"The report has more than {MAX_NAMES} different names of elements and attributes.")
        name = self._names[tag] = tag.rpartition(":")[2].lower()
        return name

    @staticmethod
    def _check_rows(count: int) -> None:
        if count > MAX_ROWS:
            raise BadReport(f"The report has more than {MAX_ROWS} rows.")

    def _sum(self) -> None:
        header_from = self._values.get("header_from", "")
        for row in self._rows:
            self._read += 1
            source_ip = self._ip(row.get("source_ip", ""))
            count = _count(row.get("count", ""))
            if source_ip is None or count is None:
                self._skipped += 1
                continue
            disposition = row.get("disposition", "").lower()
            key = DmarcRow(
                source_ip,
                _domain(header_from or self._about.get("domain", "")),
                disposition if disposition in _DISPOSITIONS else "none",  # also `pass` of RFC 9990
                row.get("dkim", "").lower() == "pass",
                row.get("spf", "").lower() == "pass",
            )
            self._counts[key] = self._counts.get(key, 0) + count
        self._rows = []

    def _ip(self, text: str) -> str | None:
        try:
            return self._ips[text]
        except KeyError:
            found = self._ips[text] = _ip(text)
            return found


# The elements that are read, by the parents in which they count, and whether they describe the report or a record.
# `identities` is the name in drafts before RFC 7489, which some reporters still follow.
_WANTED: Final[dict[str, dict[str, str]]] = {
    "org_name": {"report_metadata": _REPORT},
    "email": {"report_metadata": _REPORT},
    "report_id": {"report_metadata": _REPORT},
    "begin": {"date_range": _REPORT},
    "end": {"date_range": _REPORT},
    "domain": {"policy_published": _REPORT},
    "p": {"policy_published": _REPORT},
    "sp": {"policy_published": _REPORT},
    "source_ip": {"row": "record"},
    "count": {"row": "record"},
    "disposition": {"policy_evaluated": "record"},
    "dkim": {"policy_evaluated": "record"},
    "spf": {"policy_evaluated": "record"},
    "header_from": {"identifiers": "record", "identities": "record"},
}


def _ip(text: str) -> str | None:
    """Return an IP address in its canonical form, an IPv4-mapped one as IPv4; None if it is invalid."""
    try:
        found = ipaddress.ip_address(text.strip("[] ").removeprefix("IPv6:").partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _count(text: str) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    count = int(text)
    return count if count <= MAX_COUNT else None


def _domain(text: str) -> str:
    return text[:253].strip(" .").lower()


def _time(text: str) -> datetime | None:
    """Return the time of Unix seconds, or of an ISO 8601 date as some reporters write; None if it is neither."""
    try:
        if text.partition(".")[0].isdigit():
            return datetime.fromtimestamp(int(text.partition(".")[0]), UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
