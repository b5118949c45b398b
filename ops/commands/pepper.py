"""`ops pepper`: report what depends on the previous key pepper, so that an operator knows when it may go."""

from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg
import click
import msgspec

from engine.base import clock
from engine.base.settings import Settings, variable
from engine.retention import reseal
from ops.commands.base import as_json, in_service, reported, show

# Bounces and complaints are accepted for 60 days (engine.mail.return_path.WHOLE_MESSAGE_FOR), and US law demands that
# an unsubscribe link works for 30 days (15 U.S.C. 7704(a)(3)(A)(ii)).
MAIL_FOR: Final = timedelta(days=60)


@click.command()
@as_json
@reported
def pepper(*, as_json: bool) -> None:
    """Show how many stored secrets depend on the present key pepper, and how many on the previous one."""
    found = in_service(report)
    show(found, as_json=as_json)
    if not as_json:
        click.echo(f"\n{advice(found)}", err=True)


async def report(pool: asyncpg.Pool, settings: Settings) -> dict[str, Any]:
    """Return the time of the last change and the stored secrets by kind and pepper."""
    since = await reseal.changed_at(pool)
    counts = await reseal.count(pool, settings.pepper)
    return {
        "previousPepper": settings.key_pepper_previous is not None,
        "changedAt": clock.iso_or_none(since),
        "mailUntil": None if since is None else clock.iso(since + MAIL_FOR),
        "stored": [msgspec.to_builtins(one) for one in counts],
    }


def advice(found: dict[str, Any]) -> str:
    """Return one sentence about the next step."""
    stored: list[dict[str, Any]] = found["stored"]
    if any(one["unreadable"] for one in stored):
        return f"Some secrets open under no pepper of this host. Set {variable('key_pepper_previous')} to theirs."
    if not found["previousPepper"]:
        return "No previous pepper is set."
    if any(one["previous"] for one in stored):
        return "Keep the previous pepper. Keys move when they are used, sealed secrets within an hour."
    until = found["mailUntil"]
    if until is not None and datetime.fromisoformat(until) > clock.now():
        return f"Nothing stored needs the previous pepper, but links in sent mail do. Keep it until {until}."
    return "The previous pepper can be removed: links in older mail and old report addresses then stop working."
