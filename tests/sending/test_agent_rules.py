"""The policy of an agent's key decides how its sends go out, and a token confirms what a dry run has shown."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from engine.base.errors import Refusal
from engine.base.secrets import Pepper, derived
from engine.people.api_keys.agent_policy import AgentPolicy, checked_policy
from engine.people.api_keys.rules import KeyRestrictions
from engine.sending.agent_sends import rules
from engine.sending.agent_sends.rules import Door

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
KEY = derived(Pepper("a pepper of these tests"), rules.TOKEN_PURPOSE)
SCOPES = ("emails:send", "messages:read", "account:read")


# the policy of a key ------------------------------------------------------------------------------


def test_a_policy_keeps_canonical_recipients() -> None:
    policy = AgentPolicy(recipients=["@Bücher.example", "Ann@Example.com", "ann@example.com"], approval="required")

    assert checked_policy(policy, SCOPES).columns == (["@xn--bcher-kva.example", "ann@example.com"], "required")


@pytest.mark.parametrize("recipient", ["example.com", "@", "ann@", "@ann@example.com", "Ann"])
def test_a_policy_names_addresses_and_domains(recipient: str) -> None:
    with pytest.raises(Refusal, match="neither an address nor a domain"):
        checked_policy(AgentPolicy(recipients=[recipient]), SCOPES)


def test_a_key_with_a_policy_has_no_scope_that_could_send_past_it() -> None:
    with pytest.raises(Refusal, match="broadcasts:write"):
        checked_policy(AgentPolicy(), ("broadcasts:write", "emails:send"))


@pytest.mark.parametrize(
    ("recipients", "approval", "door"),
    [
        (None, None, Door.CONFIRMED),
        (None, "none", Door.CONFIRMED),
        (["@example.com"], "none", Door.AT_ONCE),
        (["@example.com"], "required", Door.APPROVED),
        (None, "required", Door.APPROVED),
    ],
)
def test_the_policy_decides_how_a_send_goes_out(recipients: list[str] | None, approval: str | None, door: Door) -> None:
    assert rules.door_of(KeyRestrictions.of(None, None, None, recipients, approval)) is door


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("ann@example.com", True), ("bob@example.org", True), ("ann@example.org", False),
        ("ann@sub.example.com", False), ("ann@notexample.com", False), ("example.com@example.net", False),
    ],
)  # fmt: skip
def test_a_domain_allows_its_own_addresses_alone(address: str, allowed: bool) -> None:
    reach = KeyRestrictions(recipients=frozenset({"@example.com", "bob@example.org"}))

    if allowed:
        reach.check_recipients([address])
    else:
        with pytest.raises(Refusal, match="isn't allowed to send"):
            reach.check_recipients([address])


# tokens ----------------------------------------------------------------------------------------


def test_a_token_confirms_its_account_key_and_content_until_it_expires() -> None:
    account, key, digest = uuid4(), uuid4(), b"d" * 16
    token, ends = rules.token_of(KEY, account, key, digest, AT)

    assert len(token) <= rules.MAX_TOKEN
    rules.check_token(KEY, token, account, key, digest, ends - timedelta(seconds=1))
    for others in ((uuid4(), key, digest), (account, uuid4(), digest), (account, key, b"e" * 16)):
        with pytest.raises(Refusal, match="not of a dry run"):
            rules.check_token(KEY, token, *others, AT)
    with pytest.raises(Refusal, match="expired"):
        rules.check_token(KEY, token, account, key, digest, ends)


def test_a_token_with_a_later_end_is_refused() -> None:
    account, key, digest = uuid4(), uuid4(), b"d" * 16
    octets = bytearray(urlsafe_b64decode(rules.token_of(KEY, account, key, digest, AT)[0] + "=="))
    octets[6] += 1
    altered = urlsafe_b64encode(octets).rstrip(b"=").decode()

    with pytest.raises(Refusal, match="not of a dry run"):
        rules.check_token(KEY, altered, account, key, digest, AT)


@pytest.mark.parametrize("token", ["", "a", "!!!", "é", "A" * 60])
def test_a_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(Refusal, match="not of a dry run"):
        rules.check_token(KEY, token, uuid4(), uuid4(), b"d" * 16, AT)


def test_another_spelling_of_a_token_is_refused() -> None:
    account, key, digest = uuid4(), uuid4(), b"d" * 16
    token = rules.token_of(KEY, account, key, digest, AT)[0]
    padded = f"{token[:9]}!!!!{token[9:]}"
    last = token[:-1] + chr(ord(token[-1]) + 1)  # in the two bits that belong to no octet

    for other in (padded, last):
        assert urlsafe_b64decode(other + "=") == urlsafe_b64decode(token + "=")
        with pytest.raises(Refusal, match="not of a dry run"):
            rules.check_token(KEY, other, account, key, digest, AT)
