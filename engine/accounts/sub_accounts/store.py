"""Read and write sub-accounts for their parent account."""

from datetime import date, datetime
from uuid import UUID

from msgspec import Struct

from engine.base.clock import first_of_month
from engine.base.plans import DAILY_ALLOWANCES
from engine.store.queries import Conn, Queries

_SQL = Queries.beside(__file__)


class SubAccountRow(Struct, frozen=True):
    """A sub-account with its status and its send counts as of its last send."""

    id: UUID
    name: str
    status: str
    monthly_cap: int | None
    created_at: datetime
    due_at: datetime | None  # of its deletion, if one is scheduled
    day: date
    sent_today: int
    month: date
    sent_this_month: int
    rung: int
    daily_cap: int | None
    causes: list[str]  # reasons of a suspension

    def sent_on(self, day: date) -> int:
        """Return the messages accepted on `day`, which is not before the last send."""
        return self.sent_today if self.day >= day else 0

    def sent_in(self, day: date) -> int:
        """Return the messages accepted in the month of `day`."""
        return self.sent_this_month if self.month >= first_of_month(day) else 0

    @property
    def daily_limit(self) -> int:
        """Return the limit of its own warm-up ladder, as of its last send."""
        return DAILY_ALLOWANCES[self.rung] if self.daily_cap is None else self.daily_cap


LIST = _SQL.rows("list_sub_accounts", SubAccountRow)
READ = _SQL.rows("read_sub_account", SubAccountRow)
INSERT = _SQL.command("insert_sub_account")
CHANGE = _SQL.command("change_sub_account")
_COUNT = _SQL.command("count_sub_accounts")


async def count(connection: Conn, parent: UUID) -> int:
    """Count the sub-accounts that the plan limits."""
    return int((await _COUNT.records(connection, parent))[0]["used"])
