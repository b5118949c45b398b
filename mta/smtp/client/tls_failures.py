"""TLS failures, by the result types of TLS reports."""

from enum import StrEnum

from msgspec import Struct


class TlsFailureType(StrEnum):
    """The result types of RFC 8460 4.3."""

    STARTTLS_NOT_SUPPORTED = "starttls-not-supported"
    HOST_MISMATCH = "certificate-host-mismatch"
    EXPIRED = "certificate-expired"
    NOT_TRUSTED = "certificate-not-trusted"
    VALIDATION_FAILURE = "validation-failure"  # failures without an own type, such as a failed handshake
    TLSA_INVALID = "tlsa-invalid"
    DNSSEC_INVALID = "dnssec-invalid"
    STS_FETCH_ERROR = "sts-policy-fetch-error"
    STS_INVALID = "sts-policy-invalid"
    STS_WEBPKI_INVALID = "sts-webpki-invalid"


class TlsFailure(Struct, frozen=True):
    """A failure; `reason` is one printable sentence."""

    kind: TlsFailureType
    reason: str
