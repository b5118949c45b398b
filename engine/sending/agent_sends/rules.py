"""Decide how an agent's send goes out, and make the tokens that confirm a dry run. Pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Final
from uuid import UUID

from engine.base.errors import ErrorType, Refusal, invalid
from engine.base.secrets import DerivedKey, hmac_sha256, is_mac
from engine.people.api_keys.rules import KeyRestrictions
from engine.sending.agent_sends.types import AgentSendRow, AgentSendState

TOKEN_PURPOSE: Final = "agent send tokens"  # noqa: S105 - the purpose of a derived key
SEALING: Final = "agent sends"
TOKEN_LIFE: Final = timedelta(minutes=10)
MAX_TOKEN: Final = 60  # characters
_TIME_BYTES, _MAC_BYTES = 8, 24


class Door(StrEnum):
    """Name the way of an agent's send."""

    AT_ONCE = "at once"
    CONFIRMED = "confirmed"  # with the token of its dry run
    APPROVED = "approved"  # by a person


def door_of(reach: KeyRestrictions | None) -> Door:
    """Return the way that the policy of a key allows."""
    if reach is not None and reach.needs_approval:
        return Door.APPROVED
    return Door.CONFIRMED if reach is None or reach.recipients is None else Door.AT_ONCE


def token_of(key: DerivedKey, account: UUID, api_key: UUID, digest: bytes, at: datetime) -> tuple[str, datetime]:
    """Return the token that lets this key send the request with this digest, and its end."""
    ends = (at + TOKEN_LIFE).replace(microsecond=0)
    stamp = int(ends.timestamp()).to_bytes(_TIME_BYTES, "big")
    mac = hmac_sha256(key, _confirmed(stamp, account, api_key, digest))[:_MAC_BYTES]
    return _written(stamp + mac), ends


def check_token(key: DerivedKey, token: str | None, account: UUID, api_key: UUID, digest: bytes, at: datetime) -> None:
    """Raise a refusal unless the token is that of a dry run with this key and request, at most TOKEN_LIFE ago."""
    if token is None:
        raise Refusal(
            ErrorType.FORBIDDEN,
            "This API key sends only what it has shown before. Call with `dryRun: true`, then again with its `token`.",
        )
    try:
        octets = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (Error, ValueError):
        octets = b""
    if _written(octets) != token:  # decoding ignores other characters: a token in another spelling would send again
        octets = b""
    stamp, mac = octets[:_TIME_BYTES], octets[_TIME_BYTES:]
    if len(mac) != _MAC_BYTES or not is_mac(key, _confirmed(stamp, account, api_key, digest), mac):
        raise invalid("token", "`token` is not of a dry run with this API key and content. Make another dry run.")
    if at.timestamp() >= int.from_bytes(stamp, "big"):
        raise invalid("token", "`token` has expired: it is valid for 10 minutes. Make another dry run.")


def key_of_token(token: str) -> str:
    """Return the idempotency key of a confirmed send: the token sends once."""
    return f"agent-{blake2b(token.encode(), digest_size=16).hexdigest()}"


def key_of_content(api_key: UUID, digest: bytes, at: datetime) -> str:
    """Return the idempotency key of a send at once: the same content goes out once a day (UTC)."""
    return f"agent-{at:%Y%m%d}-{blake2b(api_key.bytes + digest, digest_size=16).hexdigest()}"


def key_of_approval(send: UUID) -> str:
    """Return the idempotency key of an approved send: however often it is approved, it goes out once."""
    return f"agent-{send.hex}"


def state_of(row: AgentSendRow, at: datetime) -> AgentSendState:
    """Return the state that readers see."""
    if row.state == "pending" and row.expires_at <= at:
        return "expired"
    return row.state  # type: ignore[return-value]  # the table's CHECK has the same states


def _written(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


def _confirmed(stamp: bytes, account: UUID, api_key: UUID, digest: bytes) -> bytes:
    return stamp + account.bytes + api_key.bytes + digest
