"""Define the mail of the local sink as accounts see it."""

from uuid import UUID

from msgspec import Struct

from engine.store.sink_folder import SinkEntry, SinkPosition


class SinkMail(Struct, frozen=True):
    """A mail that the sink received, and the message that it delivers."""

    entry: SinkEntry
    message_id: UUID


class SinkFilters(Struct, frozen=True, kw_only=True):
    """The filters of the list, all of which must match; `recipient` is in lower case."""

    before: SinkPosition | None = None
    message_id: UUID | None = None
    recipient: str | None = None

    def takes(self, entry: SinkEntry) -> bool:
        """Return True if the recipient matches."""
        return self.recipient is None or any(one.lower() == self.recipient for one in entry.recipients)


class SinkMailPage(Struct, frozen=True):
    """A page, newest first; `cursor` is the id of the last mail looked at, None at the end."""

    mails: list[SinkMail]
    cursor: str | None
