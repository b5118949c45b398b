"""Define delivery certificates: the signed statement, its form as JWS, the keys, and the rows they are made from."""

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

VERSION: Final = 1  # of the statement; another number means that a field changed its meaning
TYPE: Final = "waybill-delivery-certificate"  # `typ` of the protected header
ALGORITHM: Final = "Ed25519"  # RFC 9864
SALT_BYTES: Final = 16
HEADER_FIELDS: Final = ("from", "to", "subject", "date", "message-id")
KEYS_PATH: Final = "/.well-known/waybill/keys"


class CertifiedContent(Struct, frozen=True, rename="camel"):
    """Digests of the message as composed, which is the message as sent without its DKIM-Signature field.

    All but the first are salted, as short texts could be guessed from their digests.
    """

    sha256: str
    size_bytes: int
    body_sha256: str  # of the salt and the `bh` of its DKIM signature: the digest of the relaxed body (RFC 6376 3.4.4)
    header_sha256: dict[str, str | None]  # by HEADER_FIELDS; null for a field that the message does not have


class CertifiedTls(Struct, frozen=True, rename="camel"):
    """The TLS of the connection over which a server answered."""

    version: str | None
    cipher: str | None
    certificate: str | None  # the verdict on the server's certificate
    policy: str | None  # the policy of the domain that was applied: `DANE`, `MTA-STS`, `MTA-STS testing`, or `minTls`


class CertifiedServer(Struct, frozen=True, rename="camel"):
    """The mail server that gave the last answer about a recipient, and this answer."""

    host: str | None
    ip: str | None
    tls: CertifiedTls | None  # null: the connection was not encrypted, or there was none
    reply: str | None
    smtp_code: int | None
    enhanced_code: str | None


class CertifiedRecipient(Struct, frozen=True, rename="camel"):
    """The outcome for one recipient; `address_sha256` is salted, and null for an erased or encrypted address."""

    kind: str | None
    address_sha256: str | None
    outcome: str
    at: str | None  # of the event with the outcome
    delivered_at: str | None  # when a server accepted the message, also if a complaint or late bounce followed
    simulated: bool
    server: CertifiedServer | None


class CertifiedEvent(Struct, frozen=True, rename="camel"):
    """An entry of the account log about the message, and the salted digest of its hash.

    The digest is null in all entries if one of them was erased.
    """

    seq: int
    type: str
    occurred_at: str
    hash_sha256: str | None


class CertifiedLog(Struct, frozen=True, rename="camel"):
    """The end of the account log when the certificate was issued, with the salted digest of its hash."""

    seq: int
    hash_sha256: str


class Statement(Struct, frozen=True, rename="camel"):
    """The payload of a certificate. `missing` names what the service no longer holds, or never could read."""

    version: int
    installation: str
    issued_at: str
    account: str
    message: str
    accepted_at: str
    delivered_at: str | None
    content: CertifiedContent | None
    recipients: list[CertifiedRecipient]
    events: list[CertifiedEvent]
    log: CertifiedLog
    missing: list[str]


class CertificateSalts(Struct, frozen=True):
    """The salts of the digests in a statement, in hex, outside of the signature: a holder may take them away."""

    content: str | None
    recipients: list[str | None]
    log: str


class DeliveryCertificate(Struct, frozen=True):
    """A statement as JWS in the flattened JSON form (RFC 7515 7.2.2), with the salts beside it."""

    payload: str
    protected: str
    signature: str
    salts: CertificateSalts


class SignedStatement(Struct, frozen=True):
    """A certificate with what its signature covers, and the addresses by recipient (null: erased or encrypted)."""

    certificate: DeliveryCertificate
    statement: Statement
    addresses: list[str | None]


class KeyRow(Struct, frozen=True):
    """A key that signs or signed certificates."""

    kid: str
    public_key: bytes
    sealed_key: bytes | None
    made_at: datetime
    retired_at: datetime | None


class CertifiedRow(Struct, frozen=True):
    """The stored facts of a message, read in one snapshot. `status` is null if the message is deleted."""

    log_seq: int
    log_hash: bytes
    status: str | None
    delivered_at: datetime | None
    size_bytes: int | None
    recipients: list[Any]  # of RecipientOutcome
    events: list[Any]  # of LogEntry, by seq


class RecipientOutcome(Struct, frozen=True):
    """The stored outcome for one recipient."""

    kind: str | None
    address: str
    status: str


class LogEntry(Struct, frozen=True):
    """An entry of the log about a message; `sound` if its hash fits its content and the entry before it."""

    id: UUID
    seq: int
    type: str
    occurred_at: datetime
    payload: str | None  # null after an erasure
    hash: bytes
    sound: bool
