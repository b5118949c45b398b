"""Change the plan of an account. Its limits hold from the commit; nothing that exceeds a smaller plan is deleted."""

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from engine.accounts.billing import store
from engine.base.events import AccountEvent
from engine.base.plans import CAPS, Plan
from engine.ledger.events import record_event
from engine.people.account import store as accounts
from engine.people.people import store as people
from engine.people.system_mail.store import enqueue
from engine.people.system_mail.types import SystemMailKind
from engine.store.caches import bump
from engine.store.queries import Conn

STAMP: Final = "keys"  # the caches of authentication hold the plan, for the request rate
RETENTION_KEPT: Final = timedelta(days=30)  # the record history of a larger plan lasts so long after shrinking


async def change_plan(
    connection: Conn, account: UUID, plan: Plan, at: datetime, *, actor: str, is_told: bool = True
) -> bool:
    """Set the plan in the caller's transaction, which holds the account's head; return False if it is the same.

    Owners and admins get a mail if `is_told`. Sub-accounts follow. Call `caches.clear_here(STAMP)` after the commit.
    """
    held = await accounts.READ.first(connection, account)
    if held is None or held.plan == plan:
        return False
    before = Plan(held.plan)
    await store.SET_PLAN.execute(connection, account, plan.value)
    if CAPS[plan].retention_days < CAPS[before].retention_days:
        await keep_records(connection, account, CAPS[before].retention_days, at)
    detail = {"before": before.value, "after": plan.value}
    await record_event(connection, account, AccountEvent.ACCOUNT_PLAN_CHANGED, detail, actor=actor)
    await bump(connection, STAMP)
    if is_told:
        kind = SystemMailKind.PLAN_CHANGED
        await tell_managers(connection, account, kind, at, before=before.capitalize(), after=plan.capitalize())
    return True


async def keep_records(connection: Conn, account: UUID, days: int, at: datetime) -> None:
    """Keep the records of an account and its sub-accounts for `days` as before, until RETENTION_KEPT after `at`."""
    await store.KEEP_RETENTION.execute(connection, account, days, at + RETENTION_KEPT)


async def tell_managers(connection: Conn, account: UUID, kind: SystemMailKind, at: datetime, **detail: str) -> None:
    """Queue a mail to each owner and admin of the account, or of its parent account, in the caller's transaction."""
    held = await accounts.READ.first(connection, account)
    name = "" if held is None else held.name
    for person in await people.MANAGERS.fetch(connection, account):
        await enqueue(connection, kind, person.email, at=at, mail=None, account_name=name, **detail)
