"""Start verifications and send further codes. The code's mail is accepted like any message.

The rows of the verification and its message are one transaction: no code without its mail, no mail without its code.
The message is sealed (engine.delivery.sealed_mail): neither its content nor its recipient can be read anywhere.
"""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import orjson
from msgspec import structs

from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.settings import Settings
from engine.codes.verifications import mail, rules, service, store
from engine.codes.verifications.requests import AlreadyStarted, ResendRequest, Started, StartRequest
from engine.codes.verifications.rules import CodeKeys
from engine.codes.verifications.tied_rows import AnotherCode, FirstCode
from engine.codes.verifications.types import PreludeRow, ResendRow, VerificationRow
from engine.delivery.sealed_mail import MailSealer, masked
from engine.mail.address import BadAddress, bare_address, canonical
from engine.mail.headers import AUTOMATIC
from engine.sending.accept import Acceptor
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Origin
from engine.sending.sealing import sealed
from engine.store import metrics

SOURCE: Final = "verification"
LOGO_PATH: Final = "/verification-logos/"
LINK_PATH: Final = "/v/"


class CodeSender:
    """Sends the codes of one process."""

    def __init__(self, pool: asyncpg.Pool, acceptor: Acceptor, settings: Settings) -> None:
        self._pool = pool
        self._acceptor = acceptor
        self._public_url = settings.public_url.rstrip("/")
        self._sealer = MailSealer(settings.pepper)
        self.keys = CodeKeys(settings.pepper)

    async def start(self, request: StartRequest, origin: Origin) -> Started:
        """Start a verification and send its first code; pending ones of the same address are cancelled.

        A repeated `idempotencyKey` returns the first verification, also if the request would be refused now.
        """
        account = origin.account_id
        address = _address(request.to)
        prelude = await store.READ_FOR_START.first(self._pool, account, _storable(request.idempotency_key))
        assert prelude is not None
        if prelude.replay is not None:
            return Started(await service.read(self._pool, account, prelude.replay), replayed=True)
        destination = await self._destination(account, canonical(address))
        row = _new_row(request, prelude)
        code = rules.new_code(row.code_length)
        first = FirstCode(
            verification=row,
            request=request,
            destination=destination,
            code=self.keys.code(row.id, code),
        )
        composed = self._mail(code, row.id, 1, row.expires_at, prelude, request.locale, link=bool(request.link))
        try:
            message = await self._accepted(_send_request(request, address, composed, row.expires_at), origin, first)
        except AlreadyStarted as earlier:
            return Started(await service.read(self._pool, account, earlier.verification), replayed=True)
        metrics.TALLY.add(metrics.CODES_SENT, "first")
        return Started(structs.replace(row, message_id=message))

    async def resend(self, verification: UUID, request: ResendRequest, origin: Origin) -> VerificationRow:
        """Send a fresh code for a pending verification, with its deadline and its attempts; the earlier code dies."""
        account = origin.account_id
        address = _address(request.to)
        known = await store.READ_FOR_RESEND.first(self._pool, account, verification)
        prelude = await store.READ_FOR_START.first(self._pool, account, None)
        if known is None or prelude is None:
            raise not_found(rules.WHAT)
        if not self.keys.is_destination(account, canonical(address), known.destination):
            raise rules.other_destination()
        refusal = rules.refuse_resend(known.status, known.codes_sent, known.expires_at, prelude.now)
        if refusal is not None:
            raise refusal
        code = rules.new_code(known.code_length)
        another = AnotherCode(verification, known, self.keys.code(verification, code))
        sent = known.codes_sent + 1
        composed = self._mail(code, verification, sent, known.expires_at, prelude, known.locale, link=known.has_link)
        await self._accepted(_resend_request(request, known, address, composed), origin, another)
        metrics.TALLY.add(metrics.CODES_SENT, "another")
        return await service.read(self._pool, account, verification)

    async def _destination(self, account: UUID, canonical_address: str) -> bytes:
        """Return the digest of an address, after moving what is stored under the previous pepper to it."""
        present = self.keys.destination(account, canonical_address)
        previous = self.keys.previous_destination(account, canonical_address)
        if previous is not None:
            await store.REDIGEST_DESTINATION.execute(self._pool, account, previous, present)
        return present

    async def _accepted(self, request: SendRequest, origin: Origin, tied: FirstCode | AnotherCode) -> UUID:
        message = sealed(await self._acceptor.preparer.prepare(request, origin), self._sealer)
        try:
            await self._acceptor.accept(message, tied)
        except Refusal as refusal:
            if refusal.kind is ErrorType.SUPPRESSED:  # the message knows the masked address only
                raise _suppressed(refusal, str(request.to)) from None
            raise
        return message.id

    def _mail(
        self,
        code: str,
        verification: UUID,
        codes_sent: int,
        expires_at: datetime,
        known: PreludeRow,
        locale: str | None,
        *,
        link: bool,
    ) -> mail.CodeMail:
        logo = None
        if known.logo_token is not None and known.logo_width is not None and known.logo_height is not None:
            logo = mail.LogoImage(self.logo_url(known.logo_token), known.logo_width, known.logo_height)
        url = f"{self._public_url}{LINK_PATH}{self.keys.link(verification, codes_sent)}" if link else None
        minutes = max(1, round((expires_at - known.now) / timedelta(minutes=1)))
        locale = locale or mail.DEFAULT_LOCALE
        return mail.compose(code, minutes=minutes, locale=locale, brand=known.brand_name, logo=logo, link=url)

    def logo_url(self, token: str) -> str:
        """Return the public URL of a logo."""
        return f"{self._public_url}{LOGO_PATH}{token}"


def _address(text: str) -> str:
    try:
        return bare_address(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`to` is not an email address: {error}", address=text, field="to"
        ) from None


def _storable(key: str | None) -> str | None:
    return None if key is None or "\0" in key else key


def _new_row(request: StartRequest, known: PreludeRow) -> VerificationRow:
    """Return the verification as it will be read, but for the id of its message."""
    at = clock.whole_milliseconds(known.now)
    return VerificationRow(
        id=ids.uuid7(),
        status="pending",
        attempts_left=rules.MAX_ATTEMPTS,
        code_length=request.code_length or known.code_length or rules.DEFAULT_CODE_LENGTH,
        codes_sent=1,
        message_id=UUID(int=0),
        created_at=at,
        expires_at=at + rules.LIFE,
        finished_at=None,
    )


def _send_request(request: StartRequest, address: str, composed: mail.CodeMail, expires_at: datetime) -> SendRequest:
    return SendRequest(
        from_=request.from_,
        to=address,
        subject=composed.subject,
        text=composed.text,
        html=composed.html,
        headers=AUTOMATIC,
        stream=request.stream,
        tags=request.tags,
        metadata=request.metadata,
        deliver_by=clock.iso(expires_at),
        idempotency_key=None,
    )


def _resend_request(request: ResendRequest, known: ResendRow, address: str, composed: mail.CodeMail) -> SendRequest:
    return SendRequest(
        from_=known.sender,
        to=address,
        subject=composed.subject,
        text=composed.text,
        html=composed.html,
        headers=AUTOMATIC,
        stream=request.stream or known.stream,
        tags=orjson.loads(known.tags),
        metadata=orjson.loads(known.metadata),
        deliver_by=clock.iso(known.expires_at),
    )


def _suppressed(refusal: Refusal, address: str) -> Refusal:
    message = refusal.message.replace(masked(address), address)
    return Refusal(refusal.kind, message, address=address, reason=refusal.fields["reason"])
