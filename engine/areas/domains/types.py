"""Shapes of a sending domain: its row, its keys, the records it needs and what DNS said about them."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

RecordType = Literal["TXT", "MX", "CNAME"]
Purpose = Literal["dkim", "return_path", "dmarc", "inbound", "mta_sts", "tls_rpt"]
RecordStatus = Literal["ok", "missing", "mismatch"]
DomainStatus = Literal["pending", "verified", "failed"]
Place = tuple[RecordType, str]  # what DNS is asked: type and name


class DomainRow(Struct):
    """One sending domain of an account; `findings` is the JSON text of the last check."""

    id: UUID
    account_id: UUID
    name: str
    status: str
    created_at: datetime
    verified_at: datetime | None
    checked_at: datetime | None
    vouched: bool
    misses: int
    findings: str | None


class DomainName(Struct, frozen=True):
    """What acceptance needs to know of a domain."""

    name: str
    status: str


class SigningRow(Struct, frozen=True):
    """An active signing key of a domain."""

    domain_id: UUID
    name: str
    selector: str
    algorithm: str
    sealed_key: bytes


class DomainKeyRow(Struct, frozen=True):
    """A key's public half: the TXT record that a domain's owner is asked to publish under its selector."""

    domain_id: UUID
    selector: str
    algorithm: str
    public_txt: str
    status: str
    retire_at: datetime | None

    @property
    def pair(self) -> str:
        """`wb1` or `wb2`: the RSA and the Ed25519 key of a pair rotate together."""
        return self.selector[:3]

    @property
    def is_rsa(self) -> bool:
        """The algorithm that every verifier knows (RFC 8301 3.1)."""
        return self.algorithm == "rsa-sha256"


class WantedRecord(Struct, frozen=True):
    """One record of a domain's set-up; `note` is a sentence for its owner."""

    type: RecordType
    host: str
    value: str
    required: bool
    purpose: Purpose
    selector: str | None = None  # of a DKIM record
    note: str | None = None
    by_operator: bool = False  # published once for all domains, under the service's own host

    @property
    def place(self) -> Place:
        """What DNS is asked for it."""
        return self.type, self.host


class RecordFinding(Struct, frozen=True):
    """What DNS said where a record should be; `problem` says why the last look told nothing, the rest is then older."""

    status: RecordStatus = "missing"
    found: tuple[str, ...] = ()
    problem: str | None = None


class CheckedRecord(Struct, frozen=True):
    """A record with what was found."""

    wanted: WantedRecord
    finding: RecordFinding


class MailHostIdentity(Struct, frozen=True):
    """What the records of every domain point to: the service's mail host, and the key of its report addresses."""

    mail_host: str
    report_key: bytes
