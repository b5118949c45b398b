"""Submission, the mailbox and DMARC read the same header octets alike."""

from hypothesis import given
from hypothesis import strategies as st

from engine.authentication.author import author_domain
from engine.authentication.canonicalization import CanonicalHeader
from engine.mail.address import BadAddress, path_mailbox
from engine.mail.received import summarise
from engine.mail.received_header import MAX_NAME
from engine.mail.submitted import Unsendable, read
from tests.harness.sampling import examples

pieces = st.sampled_from([
    "Ann", " ", '"Smith, Ann"', '"a\\"b"', "(via list)", "(a (b) c)", "<ann@people.test>", "ann@people.test", ",", ";",
    ":", "Team:", "=?utf-8?q?J=C3=BCrgen?=",
    "=?utf-8?Q?von Berg?=", "=?utf-8?B?SGVsbG8=IFdvcmxk?=", "=?iso-8859-1?q?=FC?=",
    "=?utf-8?q?a=40b.test?=", "=?utf-8?q?x", "?=", "=0A", "<", ">", "@", "\\", '"', "(", ")", "\r\n ", "\t", "jürgen",
    "@bücher.test", "<ann @ people . test>", '<"ann"@people.test>', '"ann b"@people.test',
    "ow\ufe0fn.test", "[x]", "mailto:",
])  # fmt: skip
values = st.lists(pieces, min_size=1, max_size=7).map("".join).filter(lambda text: bool(text.strip()))


def _is_sendable(address: str) -> bool:
    try:
        return bool(path_mailbox(address))
    except BadAddress:
        return False


@given(values, values)
@examples(2_000)
def test_what_submission_accepts_the_mailbox_shows_alike_and_dmarc_judges(sender: str, subject: str) -> None:
    mime = f"From: {sender}\r\nTo: {sender}\r\nSubject: {subject}\r\n\r\nx\r\n".encode()
    shown = summarise(mime)
    try:
        mail = read(mime, smtputf8=True)
    except Unsendable:
        return

    assert shown.sender is not None
    assert shown.sender.name == mail.sender.name[:MAX_NAME]
    assert shown.sender.address.rpartition("@")[0] == mail.sender.local
    assert shown.subject == (mail.text(b"subject") or "")
    accepted = list(mail.mailboxes(b"to"))
    assert [(one.name, one.local) for one in accepted] == [
        (one.name, one.address.rpartition("@")[0]) for one in shown.to if _is_sendable(one.address)
    ]
    assert author_domain(CanonicalHeader(mime[: mime.index(b"\r\n\r\n") + 2])) == mail.sender.domain
