"""Limits that an agreement raises above the plan's: check, store and show them. Agreements with the operator use it."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from msgspec import Struct, json

from engine.base.errors import invalid
from engine.base.plans import AGREEABLE, CAPS, IN_DAYS, MAX_AGREED, MAX_AGREED_DAYS, Plan
from engine.store.queries import Conn, Queries, Source

_SQL = Queries.beside(__file__, "agreed_caps.sql")


class AgreedCaps(Struct, frozen=True, kw_only=True, rename="camel"):
    """The limits that were agreed with an account; null where the plan's own limit holds."""

    monthly_emails: int | None = None
    retention_days: int | None = None
    schedule_days: int | None = None
    inbound_addresses: int | None = None
    monthly_verifications: int | None = None
    monthly_address_checks: int | None = None
    analytics_days: int | None = None
    requests_per_second: int | None = None


class AgreedRow(Struct, frozen=True):
    """The columns of an account that hold its agreed limits; of a sub-account, `parent_id` names who agreed them."""

    plan: str
    parent_id: UUID | None
    monthly_cap: int | None
    retention_days: int | None
    agreed_caps: str | None

    @property
    def figures(self) -> dict[str, int]:
        """Return the agreed limits by their names in `Caps`."""
        found = {} if self.agreed_caps is None else json.decode(self.agreed_caps, type=dict[str, int])
        columns = {"monthly_emails": self.monthly_cap, "retention_days": self.retention_days}
        return found | {name: figure for name, figure in columns.items() if figure is not None}


_FIELDS: Final = dict(zip(AgreedCaps.__struct_fields__, AgreedCaps.__struct_encode_fields__, strict=True))
_READ: Final = _SQL.rows("read_agreed", AgreedRow)
_WRITE: Final = _SQL.command("write_agreed")


async def read(source: Source, account: UUID) -> AgreedRow | None:
    """Return what was agreed with an account, None if it does not exist."""
    return await _READ.first(source, account)


async def write(connection: Conn, account: UUID, figures: Mapping[str, int]) -> None:
    """Store the agreed limits of an account, in place of those before; its sub-accounts follow."""
    rest = dict(figures)
    monthly, days = rest.pop("monthly_emails", None), rest.pop("retention_days", None)
    await _WRITE.execute(connection, account, monthly, days, json.encode(rest).decode() if rest else None)


def merged(before: Mapping[str, int], changes: Mapping[str, int | None], plan: Plan) -> dict[str, int]:
    """Return the agreed limits after `changes` (None returns to the plan's), without those that `plan` has anyway.

    Raises the 400 that names a limit below the plan's or above the largest possible one.
    """
    for name, figure in changes.items():
        if figure is not None:
            _check(name, figure, plan)
    after = {**before, **changes}
    return {
        name: figure
        for name in AGREEABLE
        if (figure := after.get(name)) is not None and figure > getattr(CAPS[plan], name)
    }


def shown(row: AgreedRow | None) -> AgreedCaps | None:
    """Return the agreed limits of an account; None for a sub-account, which shares its parent's."""
    if row is None or row.parent_id is not None:
        return None
    return AgreedCaps(**merged(row.figures, {}, Plan(row.plan)))


def _check(name: str, figure: int, plan: Plan) -> None:
    field, lowest = f"caps.{_FIELDS[name]}", getattr(CAPS[plan], name)
    if figure < lowest:
        raise invalid(
            field,
            f"`{field}` is {figure:,}; the {plan.capitalize()} plan has {lowest:,} already, and an agreement can only "
            "raise a limit.",
        )
    most = MAX_AGREED_DAYS if name in IN_DAYS else MAX_AGREED
    if figure > most:
        raise invalid(field, f"`{field}` is {figure:,}; the largest limit is {most:,}.")
