"""The query of delivery certificates."""

from enum import StrEnum

from msgspec import Struct


class CertificateFormat(StrEnum):
    """The format of a certificate."""

    JSON = "json"
    PDF = "pdf"


class CertificateQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """The query of `GET /v1/messages/{id}/certificate`."""

    format: CertificateFormat | None = None
