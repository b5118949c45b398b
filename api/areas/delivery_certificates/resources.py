"""`GET /v1/messages/{id}/certificate`: a signed statement about one message, as JSON or as PDF."""

import asyncio
from typing import Final

from api.areas.delivery_certificates.schemas import CertificateFormat, CertificateQuery
from api.http import owner_checks
from api.http.download import download
from api.http.operation import Area, Call, LimitedKeys, Operation, Raw
from engine.accounts.delivery_certificates import certificate_pdf, service
from engine.accounts.delivery_certificates.types import DeliveryCertificate
from engine.base import ids
from engine.base.errors import ErrorType

PDF: Final = "application/pdf"
_PRIVATE: Final = ("Cache-Control", "private, no-store")


async def read_certificate(call: Call, query: CertificateQuery) -> DeliveryCertificate | Raw:
    """Return a certificate that is signed now: as JSON, or as PDF if the query or the Accept field asks for it."""
    issued = await service.issue(call.services.pool, call.settings, call.account_id, call.id)
    if _wants_pdf(query, call.request.get_header("Accept") or ""):
        content = await asyncio.to_thread(certificate_pdf.render, issued)
        return download(content, filename=f"{issued.statement.message}-certificate.pdf", content_type=PDF)
    call.headers = (_PRIVATE,)
    return issued.certificate


def _wants_pdf(query: CertificateQuery, accept: str) -> bool:
    if query.format is not None:
        return query.format is CertificateFormat.PDF
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return PDF in kinds and not any(kind in {"application/json", "*/*"} for kind in kinds[: kinds.index(PDF)])


OPERATIONS = (
    Operation(
        "GET",
        "/v1/messages/{id}/certificate",
        read_certificate,
        "Get a signed certificate about the delivery of a message",
        Area(
            "Messages",
            reads=("messages:read",),
            limited_keys=LimitedKeys.OWN,
            owner_check=owner_checks.message,
            id_of=ids.Kind.MESSAGE,
        ),
        note="The certificate is a JWS with `alg` `Ed25519`, which anybody can verify with the public keys at "
        "`/.well-known/waybill/keys`. It holds digests of the content and the addresses, the outcome for each "
        "recipient with the server's answer, and the end of the account log. `format=pdf`, or `Accept: "
        "application/pdf`, returns a page for people with the same certificate attached. A message with an outcome "
        "that is not final is a 409.",
        reply=DeliveryCertificate,
        other_reply_types=(PDF,),
        refusals=(ErrorType.INVALID_STATE, ErrorType.CONFLICT),
    ),
)
