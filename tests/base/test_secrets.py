"""Keyed digests are the HMAC-SHA-256 of the standard, whichever keys were used before."""

import hmac

from hypothesis import given
from hypothesis import strategies as st

from engine.base.secrets import digest, hmac_sha256


@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=300)), min_size=1, max_size=5))
def test_a_keyed_digest_depends_on_its_own_key_and_message_alone(calls: list[tuple[bytes, bytes]]) -> None:
    for key, message in [*calls, *calls]:
        assert hmac_sha256(key, message) == hmac.digest(key, message, "sha256")


def test_a_keyed_digest_is_that_of_rfc_4231() -> None:
    """Check the digest of test case 2 of RFC 4231."""
    assert hmac_sha256(b"Jefe", b"what do ya want for nothing?").hex() == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_the_digest_of_a_secret_is_keyed_with_the_pepper(pepper: str, secret: str) -> None:
    assert digest(pepper, secret) == hmac.digest(pepper.encode(), secret.encode(), "sha256")
