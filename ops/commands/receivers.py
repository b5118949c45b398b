"""`ops receivers`: how mailbox providers and busy mail servers treat mail at present."""

from typing import Any

import asyncpg
import click

from engine.base import clock
from engine.receiving.receivers import rules, store
from engine.receiving.receivers.types import ReceiverRow
from ops.commands.base import as_json, in_database, reported, show_rows

_COLUMNS = [
    "provider", "site", "state", "since", "basis", "firstAttemptShare", "p50S", "p90S", "p99S", "sample", "accounts",
    "updatedAt",
]  # fmt: skip


@click.command()
@as_json
@reported
def receivers(*, as_json: bool) -> None:
    """Show how mailbox providers and busy mail servers treat mail at present, over all accounts.

    The figures are of the last hour or less. `accounts` counts up to 3; accounts see only figures of that many.
    """
    show_rows(in_database(standing), _COLUMNS, as_json=as_json, empty="No worker has judged receivers yet.")


async def standing(pool: asyncpg.Pool) -> list[dict[str, Any]]:
    """Return all receivers, providers first."""
    rows = sorted(await store.LIST.fetch(pool), key=lambda one: (bool(one.site), one.key))
    return [_shown(one) for one in rows]


def _shown(row: ReceiverRow) -> dict[str, Any]:
    quantiles = {
        name: None if (found := rules.quantile_s(row.survival, share)) is None else round(found, 1)
        for name, share in (("p50S", 0.5), ("p90S", 0.9), ("p99S", 0.99))
    }
    return {
        "provider": row.provider,
        "site": row.site or None,
        "state": row.state,
        "since": clock.iso(row.since),
        "basis": row.basis,
        "firstAttemptShare": None if row.first_share is None else round(row.first_share, 4),
        **quantiles,
        "sample": row.sample,
        "accounts": rules.account_count(row.accounts),
        "updatedAt": clock.iso(row.updated_at),
    }
