"""The Authentication-Results field of RFC 8601: what we state, and whose statements we do not believe."""

import pytest

from engine.authentication.results import (
    AuthenticationVerdict,
    AuthenticationVerdicts,
    claims,
    results_text,
)

VERDICTS = AuthenticationVerdicts(
    AuthenticationVerdict("softfail", "shop.test", "client 192.0.2.1: matched ~all"),
    AuthenticationVerdict("pass", "esp.test", "the signature is valid"),
    AuthenticationVerdict("none", "shop.test", ""),
    AuthenticationVerdict("none", None, ""),
    "reject",
)


def test_the_field_states_each_verdict_with_its_domain() -> None:
    assert results_text("mx.us.test", VERDICTS, null_sender=False) == (
        "mx.us.test;\r\n spf=softfail smtp.mailfrom=shop.test;\r\n"
        " dkim=pass header.d=esp.test;\r\n dmarc=none header.from=shop.test;\r\n arc=none"
    )


def test_spf_of_a_null_sender_is_about_its_helo_name() -> None:
    assert "spf=softfail smtp.helo=shop.test" in results_text("mx.us.test", VERDICTS, null_sender=True)


def test_a_domain_can_not_forge_a_result() -> None:
    false = AuthenticationVerdict("fail", "a.test; dmarc=pass\r\nX: y", "")
    forged = AuthenticationVerdicts(false, VERDICTS.arc, VERDICTS.arc, VERDICTS.arc)

    text = results_text("mx.us.test", forged, null_sender=False)

    assert text.count("\r\n") == 4
    assert "; dmarc=pass" not in text


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        (b"Authentication-Results: mx.us.test; spf=pass", True),
        (b"AUTHENTICATION-RESULTS : MX.us.TEST;\r\n spf=pass", True),
        (b"Authentication-Results:\r\n mx.us.test 1; none", True),
        (b"Authentication-Results: (a comment) mx.us.test; none", True),
        (b"Authentication-Results: (one (two)) mx.us.test; none", True),
        (b'Authentication-Results: "mx.us.test"; none', True),
        (b"Authentication-Results:", True),
        (b"Authentication-Results: ; spf=pass", True),
        (b"Authentication-Results: mx.other.test; spf=pass", False),
        (b"Authentication-Results: mx.us.test.other.test; spf=pass", False),
        (b"ARC-Authentication-Results: i=1; mx.us.test; spf=pass", False),
        (b"Subject: Authentication-Results: mx.us.test", False),
    ],
)
def test_fields_that_claim_our_name_are_recognised(field: bytes, ours: bool) -> None:
    assert claims(field, "mx.us.test") is ours
