"""Record events about a person in the logs of all their accounts."""

from uuid import UUID

from engine.base import clock, ids
from engine.base.events import AccountEvent
from engine.ledger import log
from engine.ledger.events import append_events
from engine.people.people import store as people
from engine.store.queries import Conn


async def record_person_event(
    connection: Conn, user: UUID, kind: AccountEvent, detail: dict[str, object], *, actor: str | None = None
) -> None:
    """Append an event about a person to the log of each of their accounts, in the caller's transaction.

    `actor` is the person or key that caused it; None: the person themselves.
    """
    person = ids.format_id(ids.Kind.USER, user)
    memberships = await people.MEMBERSHIPS.fetch(connection, user)
    at, text = clock.now(), log.detail_text({"id": person, **detail, "actor": actor or person})
    await append_events(connection, [log.Entry(one.account_id, kind, text, at) for one in memberships])
