"""Codes by themselves: the standard's numbers, what people type, and how long wrong ones make them wait."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base import ids
from engine.base.secrets import Pepper, Unsealable
from engine.people.second_factor import rules
from engine.people.second_factor.rules import Factor, Tries

SECRET = b"12345678901234567890"  # RFC 6238 appendix B
AT = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
PEPPER = Pepper("a pepper of these tests alone")


@pytest.mark.parametrize(
    ("at_s", "code"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_codes_are_those_of_rfc_6238(at_s: int, code: str) -> None:
    at = datetime.fromtimestamp(at_s, UTC)

    assert rules.matching_step(SECRET, code, at) == at_s // 30


def test_a_code_is_good_one_step_before_and_after_and_no_further() -> None:
    at = datetime.fromtimestamp(1111111111, UTC)
    code = "050471"

    good = [shift for shift in range(-4, 5) if rules.matching_step(SECRET, code, at + timedelta(seconds=30 * shift))]

    assert good == [-1, 0, 1]


def test_a_secret_has_160_bits_and_is_never_the_same() -> None:
    secrets = {rules.new_secret() for _ in range(100)}

    assert len(secrets) == 100
    assert {len(secret) for secret in secrets} == {20}
    assert {len(rules.shown_secret(secret)) for secret in secrets} == {32}


def test_a_sealed_secret_opens_for_its_person_alone() -> None:
    ann, bob = ids.uuid7(), ids.uuid7()
    stored = rules.sealed(PEPPER, ann, SECRET)

    assert SECRET not in stored
    assert rules.opened(PEPPER, ann, stored) == SECRET
    with pytest.raises(Unsealable):
        rules.opened(PEPPER, bob, stored)
    with pytest.raises(Unsealable):
        rules.opened(Pepper(PEPPER + "!"), ann, stored)


def test_the_uri_is_in_the_form_that_apps_read() -> None:
    uri = urlsplit(rules.otpauth_uri(SECRET, "ann+x@people.test"))

    assert (uri.scheme, uri.netloc) == ("otpauth", "totp")
    assert unquote(uri.path) == "/Waybill:ann+x@people.test"
    asked = parse_qs(uri.query)
    assert asked["secret"] == ["GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"]
    assert asked["issuer"] == ["Waybill"]


def test_the_qr_code_is_one_svg_element_without_script() -> None:
    svg = rules.qr_svg(rules.otpauth_uri(SECRET, f"{'a' * 60}@{'b' * 200}.test"))
    root = ET.fromstring(svg)

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {child.tag.rpartition("}")[2] for child in root.iter()} == {"svg", "g", "path"}
    assert "script" not in svg
    assert "href" not in svg


@pytest.mark.parametrize("typed", ["123456", "123 456", " 12-34-56 ", "123\u00a0456"])
def test_digits_are_read_however_they_are_grouped(typed: str) -> None:
    assert rules.read(typed) == (Factor.TOTP, "123456")


@pytest.mark.parametrize("typed", ["abcd-efgh-jkmn", "ABCDEFGHJKMN", "abcd efgh jkmn"])
def test_recovery_codes_are_read_however_they_are_written(typed: str) -> None:
    assert rules.read(typed) == (Factor.RECOVERY, "abcdefghjkmn")


def test_lookalikes_in_a_recovery_code_are_forgiven() -> None:
    assert rules.read("OIL0-1abc-defg") == (Factor.RECOVERY, "01101abcdefg")


@pytest.mark.parametrize(
    "typed", ["", "12345", "1234567", "١٢٣٤٥٦", "１２３４５６", "abcd-efgh-jkm", "abcd-efgh-jkmu", "\x00" * 6]
)
def test_what_is_no_code_is_none(typed: str) -> None:
    assert rules.read(typed) is None


@given(st.text(max_size=40))
def test_anything_typed_is_read_or_not(typed: str) -> None:
    found = rules.read(typed)

    assert found is None or re.fullmatch(r"[0-9]{6}|[0-9a-z]{12}", found[1])


def test_a_set_has_ten_codes_that_read_back() -> None:
    codes = rules.new_recovery_codes()

    assert len(set(codes)) == 10
    for code in codes:
        assert rules.read(code) == (Factor.RECOVERY, code.replace("-", ""))


def test_a_recovery_digest_is_its_persons_own() -> None:
    ann, bob = ids.uuid7(), ids.uuid7()

    assert rules.recovery_digest(PEPPER, ann, "abcdefghjkmn") != rules.recovery_digest(PEPPER, bob, "abcdefghjkmn")


def test_five_wrong_codes_begin_a_wait_that_doubles_up_to_an_hour() -> None:
    tries: Tries | None = None
    at = AT
    waits = []
    for _ in range(14):
        tries = rules.after_failure(tries, at)
        waits.append(rules.wait_s(tries, at))
        at += timedelta(seconds=waits[-1])

    assert waits == [0, 0, 0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]


def test_a_day_without_a_wrong_code_is_a_new_beginning() -> None:
    tries = Tries(40, AT, AT + timedelta(hours=1))

    assert rules.after_failure(tries, AT + timedelta(hours=23)).failed == 41
    assert rules.after_failure(tries, AT + timedelta(hours=25)) == Tries(1, AT + timedelta(hours=25), None)


def test_whoever_has_the_password_gets_few_guesses_a_day() -> None:
    tries: Tries | None = None
    at, guesses = AT, 0
    while at < AT + timedelta(days=30):
        tries = rules.after_failure(tries, at)
        guesses += 1
        at += timedelta(seconds=rules.wait_s(tries, at))

    assert guesses / 30 < 26
