"""Drafts as hypothesis makes them: what customers send, and what they should not."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

from hypothesis import strategies as st

from engine.mail.address import Mailbox
from engine.mail.compose import Draft
from engine.mail.encoded_words import hides_break
from engine.mail.parts import MailAttachment
from tests.harness.sampling import examples

THOROUGH = examples(150)

# No line breaks of any kind here: in header-bound values CR, LF and NUL are refused (tested apart), and the
# parser that serves as the oracle also breaks lines at these others.
PARSER_BREAKS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
letters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=PARSER_BREAKS)
awkward = st.sampled_from([
    "Your order has shipped", "=?utf-8?q?Fake?=", "=?", "?=", '"', "\\", "a, b", "Ünïcödé", "日本語のメール",
    "👩‍👩‍👧‍👦",
    "  ", "a" * 80, "é" * 70, "x" * 990, "X-Injected: yes", "<b@c.example>", "(comment)", ";:", "_", "100% = good?",
    "\t", "שלום",
])  # fmt: skip
header_text = (
    st.lists(awkward | st.text(letters, max_size=40), max_size=5)
    .map("".join)
    .filter(lambda text: not hides_break(text))  # refused before a draft is made
)

body_line = st.sampled_from([
    "Hello Ann,", ".", "..", ".hidden", "From the shop", ">From", "trailing  ", "tab\t", "", " ", "--",
    "--=_0", "=3D",
    "=", "é" * 30, "Straße", "日本語" * 12, "🎉", "x" * 997, "x" * 998, "x" * 999, "x" * 3000,
    "a b " * 300, "\0", "\x7f", "\x1b[0m",
    "\u2028", "\x85", "soft=\n", "<p>Hello</p>",
])  # fmt: skip
body_text = st.lists(
    st.tuples(
        body_line | st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
        st.sampled_from(["\n", "\r\n", "\r", ""]),
    ),
    max_size=12,
).map(lambda lines: "".join(line + end for line, end in lines))

_atoms = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789!#$%&'*+-/=?^_`{|}~"
_locals = st.text(_atoms, min_size=1, max_size=40) | st.sampled_from(["first.last", "x" * 64, "a+tag"])
_utf8_locals = st.sampled_from(["jörg", "用户", "почта.имя", "é" * 30])
_domains = st.sampled_from(["mail.example", "shop.test", "xn--bcher-kva.example", "a." + "b" * 60 + ".example"])


def mailboxes(*, utf8: bool) -> st.SearchStrategy[Mailbox]:
    """Mailboxes, some with a name; with `utf8` some local parts are not ASCII."""
    local = _locals | _utf8_locals if utf8 else _locals
    addresses = st.builds("{}@{}".format, local, _domains)
    return st.builds(Mailbox, st.just("") | header_text.map(lambda name: name.strip()), addresses)


times = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.sampled_from([  # noqa: DTZ001
    UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-9)),
])).map(lambda at: at.replace(microsecond=0))  # fmt: skip

own_fields = st.lists(
    st.tuples(st.sampled_from(["X-Ref", "X-" + "n" * 60, "X-" + "n" * 198, "References"]), header_text),
    max_size=3,
    unique_by=lambda field: field[0],
).map(tuple)

filenames = st.text(letters, min_size=1, max_size=60) | st.sampled_from([
    "invoice.pdf", "my report (1).pdf", 'quo"te.txt', "back\\slash.txt", "Rechnung März.pdf", "請求書" * 30 + ".pdf",
    "a" * 255, "é" * 255, "50%.txt", "x; filename=evil.txt", "=?utf-8?q?x?=.pdf", " padded ",
    "it's.txt", "👩‍👩‍👧‍👦" * 20,
])  # fmt: skip
_types = st.sampled_from([
    "application/pdf", "IMAGE/PNG", "text/plain; charset=iso-8859-1", "text/html", "text/calendar; method=REQUEST",
    'application/x-thing; title="a; b"', "message/rfc822", "multipart/mixed; boundary=x",
    "application/vnd." + "x" * 180,
])  # fmt: skip
_dispositions: st.SearchStrategy[Literal["attachment", "inline"]] = st.sampled_from(["attachment", "inline"])
attachments = st.builds(
    MailAttachment,
    filename=filenames,
    content_type=_types,
    content=st.binary(max_size=300) | st.sampled_from([b"", b"\r\n.\r\n", bytes(range(256)) * 300]),
    disposition=_dispositions,
    cid=st.none() | st.sampled_from(["logo", "<logo@shop.example>", "a.b-c_d@e", "x" * 200]),
)


def drafts(*, utf8: bool = False) -> st.SearchStrategy[Draft]:
    """Whole drafts."""
    some = mailboxes(utf8=utf8)
    return st.builds(
        Draft,
        message_id=st.just("01jd3q9x5k0000000000000000@shop.test"),
        date=times,
        sender=some,
        to=st.lists(some, min_size=1, max_size=4).map(tuple),
        cc=st.lists(some, max_size=2).map(tuple),
        reply_to=st.lists(some, max_size=1).map(tuple),
        subject=header_text,
        text=st.none() | body_text,
        html=st.none() | body_text,
        headers=own_fields,
        list_unsubscribe=st.none() | st.sampled_from([
            "<https://shop.test/u/1>", "<https://shop.test/u/1>, <mailto:u@shop.test>",
            f"<https://shop.test/{'u' * 975}>",
        ]),
        one_click=st.booleans(),
        attachments=st.lists(attachments, max_size=3).map(tuple),
    )  # fmt: skip
