"""Define report mails as received, and the effect that each had."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class ReportPurpose(StrEnum):
    """The kind of address that a report was sent to."""

    BOUNCE = "bounce"  # a return path: delivery status notifications, and complaints
    FEEDBACK = "feedback"  # `fbl@`: complaints
    DMARC = "dmarc"  # `dmarc+<token>@`
    TLS = "tls"  # `tls+<token>@`
    UNSUBSCRIBE = "unsubscribe"  # `u+<token>@`: not a report, but handled like one
    OPERATOR = "operator"  # `postmaster@`, `abuse@` of the service's own hosts while there is no platform account


class ReportState(StrEnum):
    """The processing state of a report mail."""

    WAITING = "waiting"
    APPLIED = "applied"  # it changed something; its bytes are deleted
    IGNORED = "ignored"  # it was read and changed nothing
    UNREADABLE = "unreadable"


class Reporter(Struct, frozen=True):
    """The author of a report, authenticated by DKIM or SPF under the domain of its From address or one above.

    `address`: of From, in lower case. `signed_by`: the domain of the DKIM signature, None if only SPF passed.
    """

    address: str
    signed_by: str | None

    @property
    def domain(self) -> str:
        """Return the domain of the address, in lower-case A-labels."""
        return self.address.rpartition("@")[2]


class ReportMail(Struct, frozen=True, kw_only=True):
    """A report mail as the MX received it, for one recipient.

    `local` and `host` are the report address in lower case, the host in A-labels. `sender` is the reverse-path.
    `digest` is that of `raw` by `store.digest`. `is_genuine`: the address holds no token, or one that the service gave
    out. `reporter`: None if the author is not authenticated, or not
    judged.
    """

    purpose: ReportPurpose
    local: str
    host: str
    sender: str
    remote_ip: str
    received_at: datetime
    raw: bytes
    digest: bytes
    is_genuine: bool
    reporter: Reporter | None = None


class DueReport(Struct, frozen=True):
    """A report mail that a worker has taken; `raw` is None if it was too large to be kept, isn't needed, or
    the token is forged.
    """

    id: UUID
    purpose: str
    local: str
    host: str
    received_at: datetime
    tries: int
    raw: bytes | None
    reporter_address: str | None = None
    signed_by: str | None = None

    @property
    def reporter(self) -> Reporter | None:
        """Return the authenticated author; None without one."""
        return None if self.reporter_address is None else Reporter(self.reporter_address, self.signed_by)


class ReportResult(Struct, frozen=True, kw_only=True):
    """The result of reading one report mail: its new state, one word, and one sentence for the operator."""

    id: UUID
    state: ReportState
    result: str
    reason: str
    account_id: UUID | None = None
    message_id: UUID | None = None


class ReportRow(Struct, frozen=True):
    """A report mail for the operator's list, without its bytes."""

    id: UUID
    purpose: str
    local: str
    host: str
    envelope_from: str
    remote_ip: str
    received_at: datetime
    size_bytes: int
    state: str
    result: str | None
    reason: str | None
    account_id: UUID | None
    message_id: UUID | None
    tries: int
    reporter_address: str | None
    signed_by: str | None
