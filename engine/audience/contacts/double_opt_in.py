"""Create contacts that must confirm by mail, and mail the link again.

The contact is stored first and its mail is accepted after that, as an ordinary send with its checks and limits. A
refused mail takes the new contact back. After a crash between the two the contact stays unconfirmed, which no broadcast
reaches, and the link can be mailed again.
"""

from collections.abc import Collection
from contextlib import suppress
from uuid import UUID

import asyncpg
from msgspec import Struct

from engine.audience.contacts import confirmations, service, store
from engine.audience.contacts.confirmation_mail import Locale, confirmation_mail
from engine.audience.contacts.types import Consent, ContactRow, NewContact
from engine.base.errors import ErrorType, Refusal
from engine.base.settings import Settings
from engine.mail.address import BadAddress, parse_mailbox
from engine.mail.headers import AUTOMATIC
from engine.sending.accept import Acceptor
from engine.sending.emails.types import SendRequest
from engine.sending.preparation import Origin
from engine.store.database_errors import DatabaseUnavailable


class ConfirmationRequest(Struct, frozen=True, kw_only=True):
    """How to ask a contact: the From of the mail, its stream and its language."""

    sender: str
    stream: str | None = None
    locale: Locale = "en"


class DoubleOptIn:
    """Asks contacts of one origin by mail to confirm; lives as long as one request."""

    def __init__(self, pool: asyncpg.Pool, acceptor: Acceptor, settings: Settings, origin: Origin) -> None:
        self._pool = pool
        self._acceptor = acceptor
        self._settings = settings
        self._origin = origin

    async def create(
        self,
        wanted: NewContact,
        request: ConfirmationRequest,
        *,
        consent: Consent,
        lists: Collection[UUID],
        actor: str,
    ) -> ContactRow:
        """Create an unconfirmed contact and mail it a link; raise whatever `service.create` and a send raise."""
        account, sender = self._origin.account_id, shown_sender(request.sender)
        async with self._pool.acquire() as connection, connection.transaction():
            row = await service.create_in(
                connection, account, wanted, consent=consent, lists=lists, confirmed=False, actor=actor
            )
            link = await confirmations.ask(connection, account, row.id, sender)
        try:
            await self._mail(row, request, sender, link)
        except Refusal:
            with suppress(Refusal, DatabaseUnavailable):  # deleted meanwhile, or still unconfirmed
                await service.delete(self._pool, account, row.id, actor=actor)
            raise
        return row

    async def ask_again(self, contact: UUID, request: ConfirmationRequest) -> ContactRow:
        """Mail an unconfirmed contact a new link, which replaces the former one.

        Raises the 404 for an unknown contact, the 409 for a confirmed one, the 429 after too many mails, and whatever a
        send raises.
        """
        account, sender = self._origin.account_id, shown_sender(request.sender)
        async with self._pool.acquire() as connection, connection.transaction():
            await store.lock_totals(connection, account)
            row = await service.read(connection, account, contact)
            if row.confirmed:
                raise Refusal(
                    ErrorType.INVALID_STATE,
                    "This contact isn't waiting for confirmation. Only contacts created with `confirm` can be asked.",
                    state="confirmed",
                )
            link = await confirmations.ask(connection, account, contact, sender)
        await self._mail(row, request, sender, link)
        return row

    async def _mail(self, row: ContactRow, request: ConfirmationRequest, sender: str, link: UUID) -> None:
        pepper = self._settings.pepper
        url = confirmations.link_url(pepper, self._settings.public_url, link)
        mail = confirmation_mail(request.locale, sender=sender, url=url)
        send = SendRequest(
            from_=request.sender,
            to=row.email,
            subject=mail.subject,
            text=mail.text,
            html=mail.html,
            stream=request.stream,
            headers=AUTOMATIC,
        )
        await self._acceptor.accept(await self._acceptor.preparer.check(send, self._origin))


def shown_sender(text: str) -> str:
    """Return the name in a From mailbox, its domain if it has none; raise the 422 for an invalid one."""
    try:
        mailbox = parse_mailbox(text)
    except BadAddress as error:
        raise Refusal(
            ErrorType.INVALID_ADDRESS, f"`from` is not an email address: {error}", address=text, field="from"
        ) from None
    return mailbox.name or mailbox.domain
