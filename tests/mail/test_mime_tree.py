"""The division of a message into parts: nothing vanishes, whatever its boundaries; doubts are named; limits hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.mime_tree import MAX_PARTS, Doubt, MimeEntity, read_tree, walk
from engine.mail.received import read_received, received_attachment
from tests.harness.sampling import examples

MIXED = b"Content-Type: multipart/mixed; boundary=%b\r\n\r\n"
TEXT = b"Content-Type: text/plain\r\n\r\nwords"
HTML = b"Content-Type: text/html\r\n\r\n<p>html</p>"
FILE = b"Content-Type: text/csv\r\nContent-Disposition: attachment; filename=a.csv\r\n\r\n1,2"


def parted(boundary: bytes, *parts: bytes, declared: bytes = b"") -> bytes:
    """Return a multipart/mixed."""
    lines = b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts)
    return MIXED % (declared or b'"%b"' % boundary) + lines + b"--%b--\r\n" % boundary


def shown(mime: bytes) -> tuple[str, str, list[bytes], set[str]]:
    """Return text, HTML, the contents of files, and warnings about parts."""
    found = read_received(mime)
    codes = {one.code for one in found.warnings} - {"date_missing", "from_missing"}
    contents = [received_attachment(mime, one.index) for one in found.attachments]
    return (found.text or "").strip(), (found.html or "").strip(), contents, codes


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (b"b", b"b"),
        (b"a", b"ab"),
        (b"ab", b"a"),
        (b"a--", b"a----"),
        (b"a----", b"a--"),
        (b"a", b"a--"),
        (b"a--", b"a"),
    ],
)
def test_a_line_belongs_to_the_innermost_multipart_that_has_its_boundary(outer: bytes, inner: bytes) -> None:
    alternative = parted(inner, TEXT, HTML).replace(b"mixed", b"alternative")

    assert shown(parted(outer, alternative, FILE)) == ("words", "<p>html</p>", [b"1,2"], set())


@pytest.mark.parametrize(
    ("boundary", "declared"),
    [
        (b"b x", b'"b x "'), (b'a"b', b'"a\\"b"'), (b"(b)", b"(b)"), (b"b/c", b"b; boundary*=us-ascii''b%2Fc"),
        (b"b", b'"b" (comment)'), (b"b", b"b (comment)"), (b"a b", b'"a\r\n b"'), (b"ab", b'"a\r\n b"'),
        (b"b x (y)", b"b x (y)"), (b"b", b"'b'"), (b"b", b'"=?us-ascii?q?b?="'),
        (b"b", b'"c"; boundary="b"'), (b"b", b"'b'; boundary=b"), (b"b" * 200, b"b" * 200), (b"\xe4", b'"\xe4"'),
    ],
)  # fmt: skip
def test_a_boundary_is_found_in_any_spelling(boundary: bytes, declared: bytes) -> None:
    assert shown(parted(boundary, TEXT, FILE, declared=declared)) == ("words", "", [b"1,2"], set())


def test_parts_of_a_digest_are_messages() -> None:
    digest = parted(b"b", b"\r\nSubject: one\r\n\r\nbody", b"Content-Type: text/plain\r\n\r\nwords")

    text, _, contents, codes = shown(digest.replace(b"mixed", b"digest"))

    assert (text, contents, codes) == ("words", [b"Subject: one\r\n\r\nbody"], set())


@pytest.mark.parametrize(
    ("mime", "code"),
    [
        (parted(b"b", TEXT) + b"--b\r\n" + FILE + b"\r\n--b--\r\n", "text_outside_parts"),
        (parted(b"b", TEXT) + b"footer of a list\r\n", "text_outside_parts"),
        (parted(b"b", TEXT).replace(b"--b\r\n", b"--c\r\n" + FILE + b"\r\n--b\r\n", 1), "text_outside_parts"),
        (parted(b"c", TEXT, FILE, declared=b"b"), "boundary_missing"),
        (b"Content-Type: multipart/mixed\r\n\r\nwords", "boundary_missing"),
        (parted(b"b", TEXT + b"\r\n--c\r\n" + FILE + b"\r\n--c--"), "boundary_undeclared"),
        (parted(b"b", b"words without a header\r\n\r\nmore words"), "part_header_malformed"),
        (parted(b"b", b"Content-Type: text/plain\r\nwords below it"), "part_header_malformed"),
        (parted(b"b", TEXT).replace(b"\r\n\r\n--b", b"\r\n--b", 1), "part_header_malformed"),
        (parted(b"b", b"  indented words"), "part_header_malformed"),
        (parted(b"b", b"  indented words\r\n\r\nmore"), "part_header_malformed"),
        (parted(b"b", b"Note: words"), "part_header_malformed"),
        (parted(b"b", b"https://words.test\r\nmore"), "part_header_malformed"),
        (parted(b"b", b"https://a.test\r\n\r\nwords"), "part_header_malformed"),
        (parted(b"b", TEXT + b"\r\n--bx\r\n" + FILE), "boundary_undeclared"),
        (parted(b"b", TEXT + b"\r\n--c\r\n" + FILE, declared=b"b; boundary=c"), "boundary_undeclared"),
        (parted(b"b", b"Content-Type: text/plain\r\n" + TEXT), "part_field_repeated"),
        (parted(b"b", b"X: " + b"y" * 110_000 + b"\r\n" + TEXT), "part_header_truncated"),
    ],
)
def test_a_doubt_about_the_structure_is_a_warning(mime: bytes, code: str) -> None:
    text, _, _, codes = shown(mime)

    assert "words" in text
    assert code in codes


def test_an_empty_closing_line_again_is_no_doubt() -> None:
    assert not shown(parted(b"b", TEXT) + b"--b--\r\n\r\n")[3]


@pytest.mark.parametrize(
    ("mime", "words"),
    [
        (b"Subject: s\r\nwords\r\nmore", "words\nmore"),
        (b"words alone", "words alone"),
        (b"Subject: s\r\r\nContent-Type: text/plain\r\r\n\r\r\nwords", "words"),
    ],
)
def test_words_are_shown_without_an_empty_line_above_them(mime: bytes, words: str) -> None:
    assert shown(mime)[0] == words


@pytest.mark.parametrize("declared", [b"<base64>", b"[base64]", b"base64=", b"base64.", b"=base64"])
def test_an_encoding_is_read_that_is_declared_as_no_word(declared: bytes) -> None:
    assert shown(b"Content-Transfer-Encoding: " + declared + b"\r\n\r\nd29yZHM=")[0] == "words"


@pytest.mark.parametrize("value", [b"<a@b>", b"<a@b> (c)", b'"a@b"', b"a@b", b"(c) <a@b>"])
def test_a_content_id_is_read_without_what_is_around_it(value: bytes) -> None:
    assert read_tree(b"Content-ID: " + value + b"\r\n\r\n").root.cid == "a@b"


def covered(mime: bytes, parent: MimeEntity) -> None:
    """Assert that children lie in order within their parent, and that only lines of dashes are between them."""
    at = parent.body
    for child in parent.children:
        assert at <= child.start <= child.body <= child.end <= parent.end
        between = mime[at : child.start]
        assert parent.kind == "message/rfc822" or b"--" in between
        at = child.end
        covered(mime, child)


_tokens = st.sampled_from([
    b"\r\n", b"\n", b"--x", b"--x--", b"--y", b"--y--", b"--", b"Content-Type: multipart/mixed; boundary=x\r\n\r\n",
    b"Content-Type: multipart/alternative; boundary=y\r\n\r\n", b"Content-Type: multipart/digest; boundary=x--\r\n\r\n",
    b"Content-Type: text/html\r\n\r\n", b"Content-Type: message/rfc822\r\n\r\n", b"word", b" ", b"a: b\r\n", b"\0",
    b"Content-Disposition: attachment\r\n", b"Content-Transfer-Encoding: base64\r\n\r\n",
])  # fmt: skip


@pytest.mark.parametrize("into_messages", [False, True])
@pytest.mark.parametrize("subtype", [b"mixed", b"alternative", b"digest", b"related"])
@examples(1_000, share=20)
@given(st.lists(_tokens, max_size=40).map(b"".join))
def test_every_octet_is_in_a_part_or_in_a_doubt(subtype: bytes, into_messages: bool, rest: bytes) -> None:
    mime = MIXED.replace(b"mixed", subtype) % b"x" + rest
    tree = read_tree(mime, into_messages=into_messages)

    covered(mime, tree.root)
    assert (tree.root.start, tree.root.end) == (0, len(mime))
    outside = {found.start for found in tree.doubts if found.doubt is Doubt.OUTSIDE}
    for one in walk(tree.root):
        if one.multipart and one.children and b"word" in mime[one.children[-1].end : one.end]:
            assert one.start in outside


def test_parts_beyond_the_limit_are_counted_over_attached_messages_too() -> None:
    message = b"Content-Type: message/rfc822\r\n\r\n" + parted(b"c", *[TEXT] * 600)

    tree = read_tree(parted(b"b", message, message), into_messages=True)

    assert tree.limit is not None
    assert sum(1 for _ in walk(tree.root)) <= MAX_PARTS + 2
