"""Define the recipients and messages that the MX hands over."""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from engine.receiving.reports.types import Reporter


class RecipientPurpose(StrEnum):
    """The purpose of an address that the MX accepts."""

    ADDRESS = "address"  # claimed by an account, or covered by its catch-all address
    BOUNCE = "bounce"  # return paths: delivery status notifications
    FEEDBACK = "feedback"  # `fbl@`: complaints
    DMARC_REPORT = "dmarc"  # `dmarc+<token>@`
    TLS_REPORT = "tls"  # `tls+<token>@`
    UNSUBSCRIBE = "unsubscribe"  # `u+<token>@`: the mailto link of List-Unsubscribe
    PLATFORM = "platform"  # `postmaster@` and `abuse@` of the service's own hosts: stored for the platform account
    OPERATOR = "operator"  # the same while there is no platform account: stored with the reports
    POSTMASTER = "postmaster"  # `postmaster@` of a customer's domain that has not claimed it (RFC 5321 4.5.1)


class RecipientRefusal(StrEnum):
    """Why the MX refuses a recipient; `mta.inbound.replies` has the reply to each."""

    UNKNOWN = "unknown"  # 550 5.1.1
    DISABLED = "disabled"  # 550 5.2.1: disabled, or its account is being closed
    NOT_OURS = "not_ours"  # 550 5.7.1
    MONTH_USED = "month_used"  # 452 4.2.2


class InboundRecipient(Struct, frozen=True, kw_only=True):
    """An accepted recipient of an SMTP transaction.

    `given`: as in RCPT. `account_id`, `address_id`, `address`, `domain` name the claimed address (of the platform
    account for PLATFORM), None for reports and OPERATOR. `tag`: the part after `+`, None without. `local` is the local
    part of a report address, in lower case: it holds the token.
    """

    given: str
    purpose: RecipientPurpose
    local: str = ""
    host: str = ""  # the domain of a report address, in lower-case A-labels
    account_id: UUID | None = None
    address_id: UUID | None = None
    address: str | None = None
    domain: str | None = None
    tag: str | None = None


class ReceivedEnvelope(Struct, frozen=True, kw_only=True):
    """The envelope of a received message: what the SMTP session knows beside its bytes.

    `sender`: the reverse-path, "" for the null one. `tls`: version of the protocol, None in clear text. `reporter`: the
    author of mail to report addresses, once it is authenticated.
    """

    sender: str
    recipients: tuple[InboundRecipient, ...]
    remote_ip: str
    helo: str
    tls: str | None = None
    reporter: Reporter | None = None


class AttachmentScan(StrEnum):
    """Result of a virus scan of one attachment."""

    CLEAN = "clean"
    INFECTED = "infected"
    UNSCANNED = "unscanned"
    FAILED = "failed"


class ScanVerdict(Struct, frozen=True):
    """The scan of one attachment, or of the raw message; `signature` names what was found."""

    scan: AttachmentScan
    signature: str | None = None


class ScanResult(Struct, frozen=True, kw_only=True):
    """The results of the scanners for a message: one verdict for each attachment, in the order of `ReceivedMail`.

    `spam_score`: None when no scanner and no built-in score could be computed. `raw`: the verdict on the message as it
    came; a virus in it that no attachment shows marks all attachments.
    """

    spam_score: float | None
    attachments: tuple[ScanVerdict, ...]
    raw: ScanVerdict = ScanVerdict(AttachmentScan.UNSCANNED)


class ReceiveOutcome(StrEnum):
    """Result of storing a received message."""

    STORED = "stored"  # committed for every recipient; recipients that had it already (24 h) count as stored
    MONTH_USED = "month_used"  # at least one account's month is used up; the others' mail is committed
    GONE = "gone"  # at least one address was deleted, disabled or its account closed since RCPT; others are committed
