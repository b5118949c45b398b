"""Find the cell of a submitting key and of a recipient of incoming mail."""

import re
from itertools import islice
from uuid import UUID

from engine.base.netaddr import network_of
from engine.base.settings import Settings
from engine.cells.locator import Location, Locator
from engine.cells.whose import Key, KeyKind
from engine.mail import feedback_headers, return_path, unsubscribe_token
from engine.mail.report_parts import MAX_READ
from engine.mail.return_path_tokens import MAX_TOKENS, tokens_in
from engine.mail.unsubscribe_links import LOCAL_PREFIX
from engine.receiving.inbound_addresses import rules
from engine.receiving.recipients import FEEDBACK, split_address
from engine.sending.domains import reports as domain_reports
from engine.sending.domains import service as domains

_feedback_ids = re.compile(rb"CFBL-Feedback-ID:[ \t\r\n]*([0-9A-Za-z]{40})", re.IGNORECASE).finditer


class Places:
    """The cells of one front's SMTP clients, with the keys of all tokens that addresses hold."""

    def __init__(self, locator: Locator, settings: Settings) -> None:
        self.locator = locator
        self._mail_host = settings.mail_host.lower()
        self._return_path = return_path.key_of(settings.pepper)
        self._unsubscribe = unsubscribe_token.key_of(settings.pepper)
        self._reports = domains.identity(settings).report_key
        self._complaints = feedback_headers.cfbl_key(settings.pepper)

    async def of_api_key(self, key_id: str, address: str) -> Location | None:
        """Return the cell of an API key; None if no cell has it. Raises Unlocated and TooManyUnknown."""
        return await self._settled(await self.locator.find(Key(KeyKind.API_KEY, key_id), network_of(address)))

    def is_feedback(self, address: str) -> bool:
        """Return True for the address of complaints, which name their message in the content alone."""
        split = split_address(address, self._mail_host)
        return split is not None and split[0] == FEEDBACK

    async def of_recipient(self, address: str, client: str) -> Location | None:
        """Return the cell of a recipient; None for one that no cell has, or that every cell has.

        Raises Unlocated and TooManyUnknown.
        """
        key = self._key_of(address)
        return None if key is None else await self._settled(await self.locator.find(key, client))

    async def of_complaint(self, content: bytes, client: str) -> Location | None:
        """Return the cell of the message that a complaint is about, by the first token that a cell knows."""
        origins = [return_path.origin_of_token(self._return_path, token) for token in tokens_in(content)]
        named = [one[1].decode() for one in islice(_feedback_ids(content, 0, MAX_READ), MAX_TOKENS)]
        origins += [feedback_headers.cfbl_origin(self._complaints, value) for value in named]
        for found in origins:
            if found is not None:
                location = await self.locator.find(Key(KeyKind.MESSAGE, str(found.message_id)), client)
                if location is not None:
                    return await self._settled(location)
        return None

    def default_cell(self) -> str | None:
        """Return the cell of mail that belongs to no account: always the same one, the first by name."""
        return min(self.locator.cells, default=None)

    def _key_of(self, address: str) -> Key | None:
        split = split_address(address, self._mail_host)
        if split is None or not split[1]:
            return None
        local, host = split
        token: UUID | None = None
        if host == self._mail_host and local.startswith(LOCAL_PREFIX):
            token = unsubscribe_token.link_of(self._unsubscribe, local.removeprefix(LOCAL_PREFIX))
            return None if token is None else Key(KeyKind.UNSUBSCRIBE_LINK, str(token))
        origin = return_path.origin(self._return_path, f"{local}@{host}")
        if origin is not None:
            return Key(KeyKind.MESSAGE, str(origin.message_id))
        if host == self._mail_host:
            report = domain_reports.reported_domain(self._reports, f"{local}@{host}")
            return None if report is None else Key(KeyKind.DOMAIN, str(report[1]))
        label = rules.managed_label(host, self._mail_host)
        return Key(KeyKind.RECEIVING_DOMAIN, host) if label is None else Key(KeyKind.LABEL, label)

    async def _settled(self, location: Location | None) -> Location | None:
        return None if location is None else await self.locator.after_move(location)
