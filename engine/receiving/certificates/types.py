"""Define certificates and the account at the certificate authority."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class DueCertificate(Struct, frozen=True):
    """A host that needs a certificate now; `failures`: failed tries in a row."""

    host: str
    domain_id: UUID
    failures: int


class StoredCertificate(Struct, frozen=True):
    """A certificate with its sealed key; `chain` is PEM, leaf first."""

    host: str
    sealed_key: bytes
    chain: str
    not_after: datetime


class StoredAcmeAccount(Struct, frozen=True):
    """The account key of one authority, and the account's URL once it is registered."""

    sealed_key: bytes
    url: str | None


class IssuedCertificate(Struct, frozen=True):
    """A certificate just issued: its private key (PKCS #8 PEM) and its chain (PEM, leaf first)."""

    key_pem: bytes
    chain: str
