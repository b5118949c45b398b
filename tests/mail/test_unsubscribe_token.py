"""Tokens of unsubscribe links: length, letter case, and forgeries."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from engine.base import ids
from engine.base.secrets import Pepper
from engine.mail import unsubscribe_token
from engine.mail.address import MAX_LOCAL

KEY = unsubscribe_token.key_of(Pepper("one pepper"))
OTHER = unsubscribe_token.key_of(Pepper("another pepper"))


@given(st.uuids(allow_nil=True))
def test_a_token_names_its_link_in_any_case_and_fits_a_local_part(link: UUID) -> None:
    token = unsubscribe_token.token(KEY, link)

    assert token == token.lower()
    assert len(token) <= 60
    assert len(f"u+{token}") <= MAX_LOCAL
    assert unsubscribe_token.link_of(KEY, token) == link
    assert unsubscribe_token.link_of(KEY, token.upper()) == link


@given(st.uuids(), st.integers(0, unsubscribe_token.LENGTH - 1), st.sampled_from(ids.ALPHABET))
def test_a_token_with_another_character_is_forged(link: UUID, place: int, letter: str) -> None:
    token = unsubscribe_token.token(KEY, link)
    changed = token[:place] + letter + token[place + 1 :]

    assert unsubscribe_token.link_of(KEY, changed) == (link if changed == token else None)
    assert unsubscribe_token.link_of(OTHER, token) is None


@given(st.text(max_size=60))
def test_any_other_text_is_no_token(text: str) -> None:
    assert unsubscribe_token.link_of(KEY, text) is None


def test_the_link_of_a_person_is_one_for_each_account_address_and_installation() -> None:
    account = ids.uuid7()
    link = unsubscribe_token.link_of_person(KEY, account, "ann@people.test")

    assert link == unsubscribe_token.link_of_person(KEY, account, "ann@people.test")
    others = {
        unsubscribe_token.link_of_person(KEY, account, "bob@people.test"),
        unsubscribe_token.link_of_person(KEY, ids.uuid7(), "ann@people.test"),
        unsubscribe_token.link_of_person(OTHER, account, "ann@people.test"),
    }
    assert len(others | {link}) == 4
    assert (link.version, link.variant) == (8, "specified in RFC 4122")
