"""Define the mail of the local sink as accounts see it."""

from uuid import UUID

from msgspec import Struct

from engine.store.sink_folder import SinkEntry, SinkPosition, position_of


class SinkMail(Struct, frozen=True):
    """A mail that the sink received, and the message that it delivers."""

    entry: SinkEntry
    message_id: UUID


class SinkFilters(Struct, frozen=True, kw_only=True):
    """The filters of the list, all of which must match; `recipient` is in lower case."""

    before: SinkPosition | None = None
    after: SinkPosition | None = None
    message_id: UUID | None = None
    recipient: str | None = None

    def takes(self, entry: SinkEntry) -> bool:
        """Return True if the recipient matches, and the mail arrived after `after`."""
        if self.is_over(entry):
            return False
        return self.recipient is None or any(one.lower() == self.recipient for one in entry.recipients)

    def is_over(self, entry: SinkEntry) -> bool:
        """Return True if the entry, and so every older one, did not arrive after `after`."""
        return self.after is not None and (position_of(entry.id) or (0, 0)) <= self.after


class SinkMailPage(Struct, frozen=True):
    """A page, newest first; `cursor` is the id of the last mail looked at, None at the end."""

    mails: list[SinkMail]
    cursor: str | None
