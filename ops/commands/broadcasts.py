"""Commands about broadcasts: which run and why one waits, and the review of large first ones."""

from typing import Any

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table

_COLUMNS = ["account", "name", "status", "why", "recipients", "accepted", "skipped", "id"]
_REVIEWS = ["account", "name", "from", "recipients", "scheduledAt", "status", "id"]
_broadcast = click.argument("broadcast", metavar="BROADCAST_ID", help="Id of the broadcast (brd_…).")


@click.command()
@click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many.")
@as_json
@reported
def broadcasts(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the broadcasts that are in review, scheduled, sending or paused, and why each waits."""
    from ops import broadcasts as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.in_progress(pool, account=account, limit=limit))
    _print(found, _COLUMNS, as_json=as_json)


@click.group()
def review() -> None:
    """Review the first broadcast of an account to more than 1,000 people."""


@review.command("list")
@as_json
@reported
def review_list(*, as_json: bool) -> None:
    """List the broadcasts that wait for review, the oldest first."""
    from ops import broadcasts as listed  # noqa: PLC0415

    _print(admin.with_pool(attached(), listed.reviews), _REVIEWS, as_json=as_json)


@review.command("show")
@_broadcast
@as_json
@reported
def review_show(*, broadcast: str, as_json: bool) -> None:
    """Show a broadcast (brd_…): its content, the figures of its account, and the consents of its recipients."""
    from ops import broadcasts as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.review_of(pool, broadcast))
    if as_json:
        print_json(found)
        return
    bodies = {kind: found.pop(kind) for kind in ("text", "html")}
    for name, value in found.items():
        click.echo(f"{name}: {visible(str(value))}")
    for kind, body in bodies.items():
        click.echo(f"\n{kind}:\n{'none' if body is None else visible(body)}")


@review.command("approve")
@_broadcast
@as_json
@reported
def review_approve(*, broadcast: str, as_json: bool) -> None:
    """Let a broadcast (brd_…) go out, now or at its time. Its account needs no other review."""
    from ops import broadcasts as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.approve(pool, broadcast))
    _print([found], _REVIEWS, as_json=as_json)


@review.command("reject")
@_broadcast
@click.option("--note", required=True, help="Why; the author of the broadcast reads it.")
@as_json
@reported
def review_reject(*, broadcast: str, note: str, as_json: bool) -> None:
    """Cancel a broadcast (brd_…) that waits for review."""
    from ops import broadcasts as listed  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: listed.reject(pool, broadcast, note))
    _print([found], [*_REVIEWS, "reviewNote"], as_json=as_json)


def visible(text: str) -> str:
    """Return a customer's text with control characters as `\\u001b`: a terminal would obey them."""
    lines = text.replace("\r\n", "\n")
    return "".join(char if char in "\n\t" or char.isprintable() else f"\\u{ord(char):04x}" for char in lines)


def _print(found: list[dict[str, Any]], columns: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found:
        click.echo("None.")
    else:
        table(found, columns)
