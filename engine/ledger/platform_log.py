"""Record the operator's changes of the installation, such as limits of sites, in the log of the platform account.

Changes of one account are in that account's own log.
"""

from collections.abc import Mapping
from uuid import UUID

import structlog
from msgspec import Struct

from engine.base.events import AccountEvent
from engine.ledger.events import record_event
from engine.store.queries import Conn, Queries

OPERATOR = "operator"  # the actor of changes by `ops`; those by the API name the person: `operator:usr_…`

_SQL = Queries.beside(__file__, "platform_log.sql")

_log = structlog.get_logger("operator")


class PlatformAccountRow(Struct, frozen=True):
    """The id of the platform account."""

    account_id: UUID


_PLATFORM = _SQL.rows("platform_account", PlatformAccountRow)


async def record_platform_change(
    connection: Conn, action: str, detail: Mapping[str, object], *, actor: str = OPERATOR
) -> None:
    """Record a change within the caller's transaction; without a platform account, in the process's log alone."""
    platform = await _PLATFORM.first(connection)
    if platform is None:
        _log.warning("platform changed, without a platform account", action=action, actor=actor, detail=dict(detail))
        return
    changed = {"action": action, **detail}
    await record_event(connection, platform.account_id, AccountEvent.PLATFORM_CHANGED, changed, actor=actor)
