"""Define domains, their keys, wanted records and findings."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from engine.authentication.dkim_signing import SigningKey
from engine.base.secrets import DerivedKey

RecordType = Literal["TXT", "MX", "CNAME"]
Purpose = Literal["dkim", "return_path", "dmarc", "inbound", "mta_sts", "tls_rpt"]
RecordStatus = Literal["ok", "missing", "mismatch"]
DomainStatus = Literal["pending", "verified", "failed"]
ReturnPathState = Literal["pending", "verified", "failed"]
DEFAULT_RETURN_PATH_LABEL = "bounce"
Place = tuple[RecordType, str]  # record type and name to look up


class DomainRow(Struct):
    """A sending domain; `findings` is the JSON text of the last check."""

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
    return_path_label: str
    return_path: str  # pending, verified or failed: whether its mail has return paths under the domain itself
    return_path_misses: int
    sts_policy_id: str | None  # of its hosted MTA-STS policy

    @property
    def return_path_host(self) -> str:
        """Return the host of the domain's own return paths."""
        return f"{self.return_path_label}.{self.name}"


class DomainName(Struct, frozen=True):
    """Name and status of a domain and the host of its return paths, for acceptance.

    `return_path_host` is None where its mail has the service's return paths.
    """

    name: str
    status: str
    return_path_host: str | None


class SendingIdentity(Struct, frozen=True):
    """The keys that sign for a domain, and the host of its return paths; None: the service's bounce domain."""

    keys: Sequence[SigningKey]
    return_path_host: str | None


class SigningRow(Struct, frozen=True):
    """An active signing key of a domain."""

    domain_id: UUID
    name: str
    selector: str
    algorithm: str
    sealed_key: bytes


class DomainKeyRow(Struct, frozen=True):
    """The public part of a key, with the TXT record to publish under its selector."""

    domain_id: UUID
    selector: str
    algorithm: str
    public_txt: str
    status: str
    retire_at: datetime | None

    @property
    def pair(self) -> str:
        """Return `wb1` or `wb2`; the RSA and the Ed25519 key of a pair rotate together."""
        return self.selector[:3]

    @property
    def is_rsa(self) -> bool:
        """Return True for the algorithm that every verifier supports (RFC 8301 3.1)."""
        return self.algorithm == "rsa-sha256"


class WantedRecord(Struct, frozen=True):
    """A record of a domain's set-up; `note` is a sentence for its owner."""

    type: RecordType
    host: str
    value: str
    required: bool
    purpose: Purpose
    selector: str | None = None  # of a DKIM record
    note: str | None = None
    by_operator: bool = False  # published once for all domains, under the service's mail host

    @property
    def place(self) -> Place:
        """Return the type and name to look up."""
        return self.type, self.host


class RecordFinding(Struct, frozen=True, omit_defaults=True):
    """The result of a lookup; if `problem` is set, DNS gave no answer and the rest is older.

    `ok_as` is the fingerprint of the value that the record had when it was last correct, None if it never was; `misses`
    counts the checks in a row since then that found it missing or wrong. `appended` is the name, with the zone appended
    once more, at which a missing record was found.
    """

    status: RecordStatus = "missing"
    found: tuple[str, ...] = ()
    problem: str | None = None
    ok_as: str | None = None
    misses: int = 0
    appended: str | None = None


class CheckedRecord(Struct, frozen=True):
    """A record with its finding."""

    wanted: WantedRecord
    finding: RecordFinding


class MailHostIdentity(Struct, frozen=True):
    """The service's mail host, to which records of all domains refer, and the key of report addresses."""

    mail_host: str
    report_key: DerivedKey
