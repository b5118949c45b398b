"""Plan limits: the account's plan under its lock, and the refusal at a limit. Used by every service that creates."""

from uuid import UUID

from engine.base.errors import ErrorType, Refusal, not_found
from engine.base.plans import Plan
from engine.ledger import heads
from engine.store.queries import Conn


async def locked_plan(connection: Conn, account: UUID) -> Plan:
    """Lock the account's head and return its plan, so that no other transaction creates before this one commits.

    Raises a 404 if the account was erased meanwhile.
    """
    locked = await heads.lock(connection, [account])
    if account not in locked:
        raise not_found("account")
    return Plan(locked[account].plan)


def limit_reached(resource: str, words: str, limit: int, used: int) -> Refusal:
    """Return the 403 of a plan whose limit is used up: `resource` names it for programs, `words` for people."""
    sentence = (
        f"This account has {used} of the {limit} {words} that its plan includes. Make room, or move to a larger one."
    )
    if limit == 0:
        sentence = f"This account's plan includes no {words}. Move to a larger one."
    return Refusal(ErrorType.PLAN_LIMIT_REACHED, sentence, resource=resource, limit=limit, used=used)
