"""Address lists: every entry is shown, one that two programs may read in two ways is refused; in linear time."""

import time
from email.errors import HeaderParseError
from email.policy import default
from email.utils import getaddresses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.address import BadAddress, Mailbox
from engine.mail.address_list import MAX_ENTRY, author, display_name, listed, undoubted, without_comments
from engine.mail.encoded_words import unfolded
from engine.mail.fields import MAX_HEADER
from tests.harness.sampling import examples

FAST_S = 3.0
Pairs = list[tuple[str, str]]


def read(value: str | bytes) -> Pairs:
    text = unfolded(value) if isinstance(value, bytes) else value
    return [(display_name(one)[0], one.address) for one in listed(text)]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", []),
        (" , ;", []),
        ('"", a@b.test', [("", "a@b.test")]),
        ("a@b.test, c@d.test", [("", "a@b.test"), ("", "c@d.test")]),
        ('"Smith, Ann" <a@b.test>,c@d.test', [("Smith, Ann", "a@b.test"), ("", "c@d.test")]),
        (r'"a\", b" <a@b.test>', [('a", b', "a@b.test")]),
        ("team: a@b.test, c@d.test;, e@f.test", [("", "a@b.test"), ("", "c@d.test"), ("", "e@f.test")]),
        ("a@b.test; c@d.test", [("", "a@b.test"), ("", "c@d.test")]),
        ("Backup job:;", [("Backup job", "")]),
        ("Backup job: ; , a@b.test", [("Backup job", ""), ("", "a@b.test")]),
        ("=?utf-8?q?J=C3=B6rg?=:;", [("Jörg", "")]),
        ("unlisted-recipients:; (no To-header on input)", [("unlisted-recipients", "")]),
        ("(a, (b), c) a@b.test", [("a, (b), c", "a@b.test")]),
        ("Ann <ann@people.test> (via list)", [("Ann", "ann@people.test")]),
        (
            '"Ann" <ann@people.test> (x), Bob (b (c)) <bob@own.test>',
            [("Ann", "ann@people.test"), ("Bob", "bob@own.test")],
        ),
        ("Ann <ann@people.test>;", [("Ann", "ann@people.test")]),
        ("<<ann@people.test>>", [("", "ann@people.test")]),
        ("Ann <mailto:ann@people.test>", [("Ann", "ann@people.test")]),
        ("Ann [mailto:ann@people.test]", [("Ann", "ann@people.test")]),
        ("Ann ann@people.test", [("Ann", "ann@people.test")]),
        ("mailto:ann@people.test", [("", "ann@people.test")]),
        ("Ann <smtp:ann@people.test>", [("Ann", "ann@people.test")]),
        ("Ann <'ann@people.test'>, 'bob@people.test'", [("Ann", "ann@people.test"), ("", "bob@people.test")]),
        ("=?utf-8?Q?Ann <ann@people.test>?=", [("Ann", "ann@people.test")]),
        (
            "=?utf-8?B?QW5uIDxhbm5AcGVvcGxlLnRlc3Q+?=, b@people.test",
            [("Ann", "ann@people.test"), ("", "b@people.test")],
        ),
        ("Ann (ann@people.test)", [("Ann (ann@people.test)", "")]),
        ("Ann&nbsp;<ann@people.test>", [("Ann&nbsp;", "ann@people.test")]),
        ("Ann; Bob; c@people.test", [("Ann", ""), ("Bob", ""), ("", "c@people.test")]),
        ("[Ext] Ann <ann@people.test>", [("[Ext] Ann", "ann@people.test")]),
        ("Smith, Ann <ann@people.test>", [("Smith, Ann", "ann@people.test")]),
        ("Smith, ann@people.test", [("Smith", ""), ("", "ann@people.test")]),
        ("=?utf-8?Q?Berg, J=C3=B6rg?= <j@people.test>", [("Berg, Jörg", "j@people.test")]),
        ("=?utf-8?Q?J=C3=BCrgen von Berg?= <j@people.test>", [("Jürgen von Berg", "j@people.test")]),
        ("Ann <a@people.test> Bob <b@people.test>", [("Ann", "a@people.test"), ("Bob", "b@people.test")]),
        ('"Ann <ann@people.test>', [('"Ann', "ann@people.test")]),
        ("Ann (x <ann@people.test>", [("Ann (x", "ann@people.test")]),
        ("Ann <ann@people.test", [("Ann", "ann@people.test")]),
        ("ann @ people . test", [("", "ann@people.test")]),
        ("a@b@c, <a@b@c.test>", [("a@b@c", ""), ("<a@b@c.test>", "")]),
        ("a@[@]", [("a@[@]", "")]),
        ("Ann <>", [("Ann", "")]),
        ("MAILER-DAEMON", [("MAILER-DAEMON", "")]),
        ("(only a comment)", [("only a comment", "")]),
        ("u@[IPv6:2001:db8::1]", [("", "u@[ipv6:2001:db8::1]")]),
        ('"ann"@people.test, "ann b"@people.test', [("", "ann@people.test"), ("", '"ann b"@people.test')]),
        (b"J\xfcrgen <j@people.test>", [("Jürgen", "j@people.test")]),
    ],
)
def test_every_entry_shows_the_address_that_programs_show(value: str | bytes, found: Pairs) -> None:
    assert read(value) == found


# RFC 5322 appendix A.1.1 to A.6.3, RFC 6854 3.
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("John Doe <jdoe@machine.example>", [("John Doe", "jdoe@machine.example")]),
        ('"Joe Q. Public" <john.q.public@example.com>', [("Joe Q. Public", "john.q.public@example.com")]),
        ('Who? <one@y.test>, "Giant; \\"Big\\" Box" <sysservices@example.net>',
         [("Who?", "one@y.test"), ('Giant; "Big" Box', "sysservices@example.net")]),
        ("A Group:Ed Jones <c@a.test>,joe@where.test,John <jdoe@one.test>;",
         [("Ed Jones", "c@a.test"), ("", "joe@where.test"), ("John", "jdoe@one.test")]),
        ("Undisclosed recipients:;", [("Undisclosed recipients", "")]),
        (r"Pete(A nice \) chap) <pete(his account)@silly.test(his host)>", [("Pete", "pete@silly.test")]),
        ("A Group(Some people)\r\n :Chris <c@(his host.)public.example>,\r\n joe@example.org (x); (the end of it)",
         [("Chris", "c@public.example"), ("x", "joe@example.org")]),
        ("(Empty list)(start)Hidden recipients  :(nobody(that I know))  ;", [("Hidden recipients", "")]),
        ("Joe Q. Public <john.q.public@example.com>", [("Joe Q. Public", "john.q.public@example.com")]),
        ("Mary Smith <@node.test:mary@example.net>, , jdoe@test  . example",
         [("Mary Smith", "mary@example.net"), ("", "jdoe@test.example")]),
        ("Nightly Monitor Robot:;", [("Nightly Monitor Robot", "")]),
    ],
)  # fmt: skip
def test_the_examples_of_the_standards_are_read(value: str, found: Pairs) -> None:
    assert read(value.encode()) == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("a@B.test", Mailbox("", "a@b.test")),
        ("<a@b.test>", Mailbox("", "a@b.test")),
        ("Ann <a@b.test>", Mailbox("Ann", "a@b.test")),
        ('"Smith, Ann" <a@b.test>', Mailbox("Smith, Ann", "a@b.test")),
        (r'"Ann \"A\"" <a@b.test>', Mailbox('Ann "A"', "a@b.test")),
        ('Joe "the man" Q. Public <a@b.test>', Mailbox("Joe the man Q. Public", "a@b.test")),
        ("=?utf-8?q?J=C3=B6rg?= <a@b.test>", Mailbox("Jörg", "a@b.test")),
        ("a@b.test (Ann)", Mailbox("Ann", "a@b.test")),
        ("a@b.test (Ann (at home))", Mailbox("Ann (at home)", "a@b.test")),
        ("Ann (away (until (May))) <a@b.test>", Mailbox("Ann", "a@b.test")),
        ("Ann <a@b.test> (via list)", Mailbox("Ann", "a@b.test")),
        ("Ann (a) <a (b) @ (c) b.test> (d)", Mailbox("Ann", "a@b.test")),
        ("a@b.test <a@b.test>", Mailbox("a@b.test", "a@b.test")),
        ('"ann"@b.test', Mailbox("", "ann@b.test")),
        ('"ann b"@b.test', Mailbox("", '"ann b"@b.test')),
        ("=?utf-8?q?a=0Ab?= <a@b.test>", Mailbox("a b", "a@b.test")),
    ],
)
def test_a_mailbox_with_one_reading_is_the_author(entry: str, found: Mailbox) -> None:
    assert author(entry) == found


@pytest.mark.parametrize(
    "entry",
    [
        "", "Ann", "a@b.test>", "Ann <>", "x@other.test <a@b.test>", "<x@other.test> <a@b.test>", 'x"y <a@b.test>',
        "a@b.test b", "a@b@c", "a@b@c.test", "<a@b@c.test>", "a" * MAX_ENTRY + " <a@b.test>", "Ann <a@b.test> b",
        "<<a@b.test>>", "Ann [mailto:a@b.test]", "mailto:a@b.test", "<@x.test:a@b.test>", "Smith, Ann <a@b.test>",
        "Ann <a@b.test> (x@other.test)", "a(<x@other.test>)@b.test (Ann)", "Ann <a@b.test", "Ann (x <a@b.test>",
        '"Ann <a@b.test>', "team: a@b.test;", "team:;", "a@b.test, c@d.test", "Ann <a@b.test>, Bob",
        "=?utf-8?q?<x@other.test>?= <a@b.test>", "=?utf-8?q?a =?utf-8?q?b?= <a@b.test>", "=?utf-8?q?a?=@b.test",
        "a@=?utf-8?q?b.test?=", "a@b.\x07test", "a@[192.0.2.1]", "Re: Ann <a@b.test>", "Ann\\ <a@b.test>",
    ],
)  # fmt: skip
def test_an_entry_that_two_programs_could_read_in_two_ways_is_no_author(entry: str) -> None:
    with pytest.raises(BadAddress):
        author(entry)


@pytest.mark.parametrize(
    "letter", ["\ufe0f", "\u034f", "\u115f", "\u00ad", "\u3164", "\u200b", "\u2060", "\u212a", "\uff4b"]
)
def test_a_domain_that_uts_46_maps_is_refused_in_a_header(letter: str) -> None:
    (one,) = listed(f"Ann <ann@ow{letter}n.test>")
    with pytest.raises(BadAddress, match="read differently"):
        undoubted(one)


# -- against Python's parsers ---------------------------------------------------------------------------

atoms = st.text("abcxyzABC0189!#$%&'*+-/=?^_`{|}~", min_size=1, max_size=8).filter(lambda text: "=?" not in text)
dotted = st.lists(st.text("abcx019-_+", min_size=1, max_size=5), min_size=1, max_size=3).map(".".join)
domains = st.lists(st.text("abcdefx019", min_size=1, max_size=5), min_size=2, max_size=3).map(".".join)
addresses = st.builds(lambda local, domain: f"{local}@{domain}", dotted, domains)
quoted = (
    st.text('abc ,;:<>@()."\\', min_size=1, max_size=10)
    .filter(str.strip)
    .map(lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')
)
comments = st.text("abc ,;:<>@.", max_size=8).map(lambda text: f"({text})")
names = st.lists(st.one_of(atoms, quoted), min_size=1, max_size=3).map(" ".join)
mailboxes = st.one_of(
    addresses,
    st.builds(lambda name, address: f"{name} <{address}>", names, addresses),
    st.builds(lambda name, address, comment: f"{name} <{address}> {comment}", names, addresses, comments),
    st.builds(lambda name, address, comment: f"{name} {comment} <{address}>", names, addresses, comments),
    st.builds(lambda address, comment: f"{address} {comment}", addresses, comments),
)
groups = st.builds(
    lambda name, members: f"{name}: {', '.join(members)};",
    st.lists(st.text("abcxyz", min_size=1, max_size=6), min_size=1, max_size=2).map(" ".join),
    st.lists(mailboxes, max_size=3),
)
lists = st.lists(st.one_of(mailboxes, groups), min_size=1, max_size=4).map(", ".join)


@given(lists)
@examples(1_000)
def test_well_formed_lists_have_the_addresses_of_the_standard_librarys_parser(value: str) -> None:
    try:
        theirs = [one.addr_spec for one in default.header_factory("To", value).addresses]
    except (HeaderParseError, IndexError, ValueError):  # Python 3.12 raises IndexError for some comments
        return
    # Python keeps the case of a domain.
    assert [one.address for one in listed(value) if one.address] == [_lower_domain(one) for one in theirs]


@given(mailboxes)
@examples(2_000)
def test_well_formed_mailboxes_have_the_names_of_the_standard_librarys_parser(value: str) -> None:
    header = default.header_factory("From", value)
    (ours,) = listed(value)
    (theirs,) = header.addresses
    # A rule: the obsolete form `ann@example.com (Ann)` names the author; Python's new parser drops the comment.
    if value.startswith(theirs.addr_spec) and "(" in value:
        assert ours.name == getaddresses([value])[0][0] or _in_comment(value, ours.name)
    else:
        assert ours.name.split() == theirs.display_name.split()


def _in_comment(value: str, name: str) -> bool:
    return name == value.partition("(")[2].rpartition(")")[0].strip()


def _lower_domain(address: str) -> str:
    local, _, domain = address.rpartition("@")
    return f"{local}@{domain.lower()}"


@given(st.text('ab@.,;:<>()"\\[] =?utf-8q\n\xfc', max_size=60))
@examples(2_000)
def test_any_text_becomes_entries_of_which_the_undoubted_have_an_address(value: str) -> None:
    for one in listed(value):
        assert one.name or one.address
        assert one.address.count("@") == 1 or not one.address or '"' in one.address
        try:
            assert "@" in undoubted(one).address
        except BadAddress:
            continue


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a (b) c", "a   c"), ("(a (b) c) d", "  d"), (r"(a \) b) c", "  c"), ("a (b", "a (b"), ("a) b", "a) b"),
    ],
)  # fmt: skip
def test_comments_are_removed_with_those_within_them(text: str, without: str) -> None:
    assert without_comments(text) == without


@pytest.mark.parametrize(
    "piece",
    ['"', "(", "<", ">", ",", "\\", "a@", '"\\', '\\"', "(\\", ")(", "a@b.test (", "a:", ":", "a, ", "<a> ", "<a,",
     "[a", "a b ", '""', "=?a?q?b?=", "=?a?q?b", "a@b ", ";", "(a)", "ü@ü.test,", "(<a@b>)"],
)  # fmt: skip
def test_hostile_lists_take_linear_time(piece: str) -> None:
    value = piece * (MAX_HEADER // len(piece))
    began = time.thread_time()
    for one in list(listed(value))[:1_000]:
        display_name(one)
        try:
            undoubted(one)
        except BadAddress:
            continue
    without_comments(value)
    assert time.thread_time() - began < FAST_S
