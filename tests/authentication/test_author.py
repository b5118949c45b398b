"""A header with more than one reading has no author domain; the forms are those that espoofer tries."""

import pytest

from engine.authentication.author import NoAuthorDomain, author_domain
from engine.authentication.canonicalization import CanonicalHeader


def found(head: bytes) -> str | NoAuthorDomain:
    return author_domain(CanonicalHeader(head))


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("ann@bank.test", "bank.test"),
        ("<ann@BANK.test>", "bank.test"),
        ("Ann Example <ann@bank.test>", "bank.test"),
        ('"Example, Ann: <hello>" <ann@bank.test>', "bank.test"),
        ("=?utf-8?q?J=C3=BCrgen?= <j@bank.test>", "bank.test"),
        ("Ann\r\n <ann@bank.test>", "bank.test"),
        ("ann@bank.test (Ann)", "bank.test"),
        ("ann@bücher.test", "xn--bcher-kva.test"),
        ('"ann@bank.test via Lists" <list@lists.test>', "lists.test"),
        ("Ann (at home (in May)) <ann@bank.test> (via list)", "bank.test"),
        ('Ann "the boss" Example <ann(x)@bank.test>', "bank.test"),
        ('"ann b"@bank.test', "bank.test"),
        ("Ann <ann@bank.test> (list@lists.test)", None),
        ("Smith, Ann <ann@bank.test>", None),
        ("ann@ba\ufe0fnk.test", None),
        ("undisclosed:o@bank.test <ann@bank.test>", None),
    ],
)
def test_the_author_domain_is_that_of_the_address(value: str, domain: str | None) -> None:
    author = found(f"To: x@y.test\r\nFrom: {value}\r\nSubject: a\r\n".encode())

    assert author == domain if domain else isinstance(author, NoAuthorDomain)


@pytest.mark.parametrize(
    "head",
    [
        b"To: x@y.test\r\n",
        b"From: a@bank.test\r\nFrom: b@evil.test\r\n",
        b"From: a@bank.test\r\nFROM : b@evil.test\r\n",
        b"From: b@evil.test\r\n From: a@bank.test\r\n",
        b" From: a@bank.test\r\nFrom: b@evil.test\r\n",
        b"From\0: a@bank.test\r\nFrom: b@evil.test\r\n",
        b"From\xff: a@bank.test\r\nFrom: b@evil.test\r\n",
        b"\x0bFrom: a@bank.test\r\nFrom: b@evil.test\r\n",
        b"From a@bank.test\r\nFrom: b@evil.test\r\n",
        b"From: a@bank.test, b@evil.test\r\n",
        b"From: <a@bank.test>,<b@evil.test>\r\n",
        b"From: a@bank.test\\,<b@evil.test>\r\n",
        b"From: <a@bank.test>\\,<b@evil.test>\r\n",
        b"From: <a@bank.test><b@evil.test>\r\n",
        b"From: <a@bank.test> <b@evil.test>\r\n",
        b"From: a@bank.test <b@evil.test>\r\n",
        b"From: <@evil.test,@any.test:a@bank.test>\r\n",
        b"From: <a@bank.test>a@x.test <b@evil.test>\r\n",
        b"From: a@bank.test\0, b@evil.test\r\n",
        b"From: a@bank.test b@evil.test\r\n",
        b"From: =?utf-8?b?PGFAYmFuay50ZXN0Pg==?= <b@evil.test>\r\n",
        b"From: =?utf-8?b?YUBiYW5rLnRlc3Q=?=\r\n",
        b"From: =?utf-8?b?YUBiYW5rLnRlc3Q=?=,<b@evil.test>\r\n",
        b"From: b@=?utf-8?q?bank.test?=\r\n",
        b"From: =?utf-8?q?a?=@bank.test\r\n",
        b"From: b@evil.test(<a@bank.test>)\r\n",
        b"From: friends: a@bank.test;\r\n",
        b"From: a@[192.0.2.1]\r\n",
        b"From: a@bank\r\n",
        b"From: a@bank..test\r\n",
        b"From: @bank.test\r\n",
        b"From:\r\n",
        b"From: <>\r\n",
        b"From: \xff@bank.test\r\n",
        b"From: a@bank.test@evil.test\r\n",
        "From: a@bank。test\r\n".encode(),
        b"From: " + b"x" * 20_000 + b"@bank.test\r\n",
    ],
)  # fmt: skip
def test_a_header_with_several_readings_has_no_author(head: bytes) -> None:
    author = found(head + b"Subject: a\r\n")

    assert isinstance(author, NoAuthorDomain), author
    assert author.detail
