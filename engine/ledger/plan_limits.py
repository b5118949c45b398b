"""Plan limits: lock the account's limits, and refuse at one. Used by every service that creates records."""

from uuid import UUID

from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.plans import Caps
from engine.ledger import heads
from engine.store.queries import Conn


async def locked_caps(connection: Conn, account: UUID) -> Caps:
    """Lock the account's head and return its limits; no other transaction can create records until this one commits.

    Raises a 404 if the account was erased meanwhile.
    """
    locked = await heads.lock(connection, [account])
    if account not in locked:
        raise not_found("account")
    return locked[account].caps


def limit_reached(resource: str, words: str, limit: int, used: int) -> Refusal:
    """Return the 403 for a plan limit that is reached: `resource` is for programs, `words` name it in the sentence."""
    sentence = f"You've reached your plan's limit for {words} ({used} of {limit}). Delete some, or upgrade your plan."
    if limit == 0:
        sentence = f"Your plan includes no {words}. Upgrade your plan."
    return Refusal(ErrorType.PLAN_LIMIT_REACHED, sentence, resource=resource, limit=limit, used=used)
