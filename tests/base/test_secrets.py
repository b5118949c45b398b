"""Keyed digests are the HMAC-SHA-256 of the standard, whichever keys were used before."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.secrets import DerivedKey, Pepper, Unsealable, derived, digest, hmac_sha256, is_mac, seal, unseal


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


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40), st.binary(max_size=40))
def test_what_was_made_under_either_pepper_is_accepted(new: str, old: str, plain: bytes) -> None:
    both = derived(Pepper(new, old), "purpose")
    for pepper in (new, old):
        key = derived(Pepper(pepper), "purpose")
        assert unseal(both, seal(key, plain, b"row"), b"row") == plain
        assert is_mac(both, plain, hmac_sha256(key, plain)[:8])
    assert both == derived(Pepper(new), "purpose")  # new things are made under the present pepper
    if new != old:
        assert not is_mac(DerivedKey(both), plain, hmac_sha256(derived(Pepper(old), "purpose"), plain))
        with pytest.raises(Unsealable):
            unseal(DerivedKey(both), seal(derived(Pepper(old), "purpose"), plain, b"row"), b"row")


@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_mac_that_could_be_guessed_is_an_error(length: int) -> None:
    key = derived(Pepper("pepper"), "purpose")
    with pytest.raises(ValueError, match="too short"):
        is_mac(key, b"message", hmac_sha256(key, b"message")[:length])


@pytest.mark.parametrize("length", [0, 1, 7, 12, 28])
def test_damaged_encrypted_bytes_are_unsealable_however_short(length: int) -> None:
    with pytest.raises(Unsealable):
        unseal(derived(Pepper("new", "old"), "purpose"), bytes(length), b"row")
