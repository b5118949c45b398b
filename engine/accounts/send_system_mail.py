"""Send system mail: mails that changes have queued are composed, and accepted like any message of the platform
account. Its links sign people in, so it is sealed: no member or key of that account reads content or recipient.

due → still useful → text composed → sealed → accepted → deleted from its queue. A worker takes a mail for a minute; if
the worker dies, another one takes it, and the mail's id as idempotency key prevents a second copy.
"""

import asyncio
import base64
import time
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

import asyncpg
import orjson
import structlog
from msgspec import Struct, structs

from engine.accounts import platform_account
from engine.accounts.billing import invoices
from engine.accounts.billing import store as billing
from engine.accounts.platform_account import Platform
from engine.base import clock, ids
from engine.base.errors import ErrorType, Refusal
from engine.base.secrets import Pepper
from engine.base.settings import Settings
from engine.base.version import COMMAND
from engine.delivery.sealed_mail import MailSealer
from engine.mail.headers import AUTOMATIC
from engine.people.people import store as people
from engine.people.system_mail import rules, store
from engine.people.system_mail.store import DueMail
from engine.people.system_mail.types import SystemMailKind
from engine.people.tokens import store as tokens
from engine.people.tokens.rules import LIFETIME, Purpose, token_of
from engine.sending.emails.types import AttachmentIn, SendRequest
from engine.sending.job_acceptor import JobAcceptor
from engine.sending.preparation import Origin
from engine.sending.sealing import sealed
from engine.store.database_errors import DatabaseUnavailable
from engine.store.jobs import Job
from engine.store.queries import Queries

BATCH: Final = 50
TAKEN_FOR: Final = timedelta(minutes=1)  # acceptance takes at most 15 s
SWEEP_S: Final = 60.0  # between two deletions of mails that are too old
MAX_SWEPT: Final = 1_000
FRESH: Final = timedelta(minutes=5)  # no second password link while the last one is younger
# Mails of one kind to one mailbox that anyone can cause by entering its address: by one account or person, and by all.
PER_REQUESTER_AND_DAY: Final = 7
TO_STRANGERS_PER_DAY: Final = 20
TO_STRANGERS: Final = frozenset({SystemMailKind.VERIFY_EMAIL, SystemMailKind.CONFIRM_EMAIL, SystemMailKind.INVITE})
FORGOT_PATH: Final = "/forgot-password"
PATHS: Final = {
    SystemMailKind.VERIFY_EMAIL: "/verify-email",
    SystemMailKind.FORGOT_PASSWORD: "/reset-password",
    SystemMailKind.CONFIRM_EMAIL: "/confirm-email",
    SystemMailKind.INVITE: "/accept-invite",
}
END_SIGN_UP_PATH: Final = "/end-sign-up"
PAGES: Final = {  # links without a token
    SystemMailKind.ALERT_FIRED: "/v1/alerts/events",
    SystemMailKind.AGENT_SENDS_WAITING: "/console/approvals",
}
PURPOSES: Final = {
    SystemMailKind.VERIFY_EMAIL: Purpose.VERIFY_EMAIL,
    SystemMailKind.FORGOT_PASSWORD: Purpose.RESET_PASSWORD,
    SystemMailKind.CONFIRM_EMAIL: Purpose.CHANGE_EMAIL,
}
NEVER: Final = frozenset({ErrorType.INVALID_REQUEST, ErrorType.INVALID_ADDRESS, ErrorType.PAYLOAD_TOO_LARGE})
NO_PLATFORM: Final = f"there is no platform account; run `{COMMAND} platform set --account acc_…`"

_SQL = Queries.beside(__file__, "send_system_mail.sql")
_FRESH_RESET = _SQL.command("fresh_reset")
_log = structlog.get_logger("system mail")


class Outgoing(Struct, frozen=True):
    """A system mail that is ready for acceptance."""

    id: UUID
    kind: SystemMailKind
    request: SendRequest
    attempts: int
    until: datetime


class Mailer:
    """Sends system mail for one process; opens its connections at the first mail."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._mail = JobAcceptor(pool, settings, "system mail")
        self._swept_at = -SWEEP_S

    def job(self) -> Job:
        """Return the worker's job that sends due system mail."""
        return Job("system mail", every_s=0.3, run=lambda *_: self.send_due())

    async def send_due(self) -> int:
        """Send at most BATCH due mails; return how many were accepted.

        Without a platform account, mail waits, which is logged once.
        """
        at = clock.now()
        await self._sweep(at)
        sender = await platform_account.read(self._pool, at)
        if not sender.due or not self._mail.is_ready("" if sender.account_id else NO_PLATFORM):
            return 0
        await self._mail.refresh()
        taken = await store.TAKE_DUE.fetch(self._pool, at, BATCH, at + TAKEN_FOR)
        ready = [await self._made(mail, sender, at) for mail in sorted(taken, key=lambda mail: mail.id)]
        assert sender.account_id is not None
        origin = Origin(sender.account_id, "system")
        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(self._send(one, origin, at)) for one in ready if one is not None]
        return sum(task.result() for task in sent)

    async def close(self) -> None:
        """Close the connections."""
        await self._mail.close()

    @cached_property
    def _sealer(self) -> MailSealer:
        return MailSealer(self._settings.pepper)

    # -- checks ------------------------------------------------------------------------------------

    async def _sweep(self, at: datetime) -> None:
        """Delete mails that could not be sent within a day."""
        now = time.monotonic()
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        for row in await store.DROP_OLD.records(self._pool, at - rules.MAX_AGE, MAX_SWEPT):
            _log.error("system mail dropped: it is a day old", mail=str(row["id"]), kind=row["kind"])

    # -- content -----------------------------------------------------------------------------------

    async def _made(self, mail: DueMail, sender: Platform, at: datetime) -> Outgoing | None:
        """Return the mail ready for acceptance; None if it was dropped, or postponed after an error."""
        try:
            return await self._decide(mail, sender, at)
        except DatabaseUnavailable as error:
            _log.warning("system mail postponed", mail=str(mail.id), error=repr(error))
        except Exception:  # noqa: BLE001 - process loop: one mail must not end the others
            _log.exception("system mail not composed", mail=str(mail.id), kind=mail.kind)
        return None

    async def _decide(self, mail: DueMail, sender: Platform, at: datetime) -> Outgoing | None:
        kind = SystemMailKind(mail.kind)
        purpose = PURPOSES.get(kind)
        until = rules.worth_until(mail.created_at, None if purpose is None else LIFETIME[purpose])
        if until <= at:
            await self._drop(mail, "it is too old")
            return None
        if kind in TO_STRANGERS and mail.attempts == 1 and not await self._bearable(mail):
            await self._drop(mail, "its mailbox has had too many mails today")
            return None
        if kind is SystemMailKind.FORGOT_PASSWORD and not await self._allow_reset(mail, at):
            return None
        if kind is SystemMailKind.CONFIRM_EMAIL and await people.FIND.first(self._pool, mail.address) is not None:
            kind, purpose = SystemMailKind.ADDRESS_TAKEN, None  # only the owner of the address learns it
        pepper = await tokens.pepper_of(self._pool, self._settings.pepper, mail.id)
        request = self._request(mail, kind, sender, None if purpose is None else until, pepper)
        if kind is SystemMailKind.INVOICE_ISSUED:
            request = await self._with_invoice(mail, request)
        return Outgoing(mail.id, kind, request, mail.attempts, until)

    async def _with_invoice(self, mail: DueMail, request: SendRequest) -> SendRequest:
        """Attach the PDF of the invoice that the mail is about."""
        invoice = ids.parse_id(ids.Kind.INVOICE, orjson.loads(mail.detail)["invoice"])
        row = await billing.INVOICE_OF_ANY.first(self._pool, invoice, None)
        assert row is not None  # invoices are kept ten years, system mail a day
        content = base64.b64encode(await invoices.pdf(self._pool, row)).decode()
        attachment = AttachmentIn(filename=f"{row.number}.pdf", content_type="application/pdf", content=content)
        return structs.replace(request, attachments=[attachment])

    async def _bearable(self, mail: DueMail) -> bool:
        """Count a mail to a mailbox whose owner need not have asked for it; its requester's limit comes first, so that
        one account cannot use up what the mailbox takes of all.
        """
        requester = orjson.loads(mail.detail).get("requester", "")
        bucket = f"system-mail:{mail.kind}:{mail.address}"
        for name, most in ((f"{bucket}:{requester}", PER_REQUESTER_AND_DAY), (bucket, TO_STRANGERS_PER_DAY)):
            standing = await self._mail.limits.check(name, most / 86_400, burst_s=86_400)
            if not standing.allowed:
                return False
        return True

    async def _allow_reset(self, mail: DueMail, at: datetime) -> bool:
        """Store the token of a password link; return False, and drop the mail, for an address without a person.

        Also drops it if the person has a link younger than FRESH. The mail remembers that the token was stored, so that
        a second try does not revive a used link.
        """
        if "user" in orjson.loads(mail.detail):
            return True
        async with self._pool.acquire() as connection, connection.transaction():
            person = await people.FIND.first(connection, mail.address)
            if person is None or await _FRESH_RESET.records(connection, person.id, at - FRESH):
                await store.DROP.execute(connection, mail.id)
                return False
            token = token_of(self._settings.pepper, mail.id)
            await tokens.issue(connection, token, Purpose.RESET_PASSWORD, person.id, at=at, detail=mail.address)
            known = orjson.dumps({"user": ids.format_id(ids.Kind.USER, person.id)}).decode()
            await store.NOTE.execute(connection, mail.id, known)
        return True

    def _request(
        self, mail: DueMail, kind: SystemMailKind, sender: Platform, deliver_by: datetime | None, pepper: Pepper
    ) -> SendRequest:
        url = self._settings.public_url.rstrip("/")
        values: dict[str, object] = orjson.loads(mail.detail)
        values |= {"service": platform_account.NAME, "url": url, "forgot_link": f"{url}{FORGOT_PATH}"}
        if kind in PATHS:
            values["link"] = f"{url}{PATHS[kind]}#token={token_of(pepper, mail.id)}"
        if kind is SystemMailKind.VERIFY_EMAIL:
            ending = token_of(pepper, mail.id, Purpose.END_SIGN_UP)
            values["end_link"] = f"{url}{END_SIGN_UP_PATH}#token={ending}"
        if kind in PAGES:
            values["link"] = f"{url}{PAGES[kind]}"
        words = rules.content_of(kind, values)
        reply_to = values.get("email") if kind is SystemMailKind.LEAD else None
        return SendRequest(
            from_=platform_account.sender_of(self._settings, sender),
            to=mail.address,
            subject=words.subject,
            text=words.text,
            html=words.html,
            reply_to=None if reply_to is None else str(reply_to),
            headers=AUTOMATIC,
            stream="transactional",
            tags=["system", kind.value],
            idempotency_key=f"system-mail {ids.encode(mail.id)}",
            deliver_by=clock.iso_or_none(deliver_by),
        )

    # -- acceptance ---------------------------------------------------------------------------------

    async def _send(self, mail: Outgoing, origin: Origin, at: datetime) -> bool:
        """Accept the mail and delete it; a refusal postpones it until it is no longer useful."""
        try:
            message = await self._mail.acceptor.preparer.prepare(mail.request, origin)
            await self._mail.acceptor.accept(sealed(message, self._sealer))
        except Refusal as refusal:
            await self._refused(mail, refusal, at)
            return False
        except Exception:  # noqa: BLE001 - process loop: one mail must not end the others
            _log.exception("system mail not accepted", mail=str(mail.id), kind=mail.kind.value)
            return False
        try:
            await store.DROP.execute(self._pool, mail.id)
        except DatabaseUnavailable as error:  # accepted only once, thanks to its idempotency key
            _log.warning("system mail accepted but not deleted yet", mail=str(mail.id), error=repr(error))
        return True

    async def _refused(self, mail: Outgoing, refusal: Refusal, at: datetime) -> None:
        again = rules.next_try(mail.attempts, at)
        final = refusal.kind in NEVER or again >= mail.until
        told = {"mail": str(mail.id), "kind": mail.kind.value, "type": refusal.kind.value}
        try:
            if final:
                _log.error("system mail dropped after a refusal", **told)
                await store.DROP.execute(self._pool, mail.id)
            else:
                _log.warning("system mail postponed", until=clock.iso(again), **told)
                await store.PUT_OFF.execute(self._pool, mail.id, again)
        except DatabaseUnavailable as error:
            _log.warning("system mail not updated", mail=str(mail.id), error=repr(error))

    async def _drop(self, mail: DueMail, why: str) -> None:
        _log.warning("system mail dropped", mail=str(mail.id), kind=mail.kind, why=why)
        await store.DROP.execute(self._pool, mail.id)
