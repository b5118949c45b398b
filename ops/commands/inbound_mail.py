"""Commands about received messages: what came in, for whom, and its bytes."""

import sys

import click

from ops import admin
from ops.commands.base import as_json, attached, print_json, reported, table
from ops.commands.inbound import inbound

__all__ = ["inbound"]


@inbound.command("list")
@click.option("--account", help="Only this account (id acc_… or name); default: all accounts.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Print at most this many.")
@as_json
@reported
def inbound_list(*, account: str | None, limit: int, as_json: bool) -> None:
    """List the newest received messages."""
    from ops import received_messages  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: received_messages.newest(pool, account=account, limit=limit))
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No received messages.")
    else:
        table(found, ["receivedAt", "account", "envelopeFrom", "recipient", "subject", "spamScore", "action", "id"])


@inbound.command("show")
@click.argument("message", metavar="MESSAGE_ID", help="Id of the received message (imsg_…).")
@as_json
@reported
def inbound_show(*, message: str, as_json: bool) -> None:
    """Show one received message (imsg_…) with its verdicts and text; --json adds its header and HTML."""
    from ops import received_messages  # noqa: PLC0415

    found = admin.with_pool(attached(), lambda pool: received_messages.opened(pool, message))
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(received_messages.in_words(found)))


@inbound.command("raw")
@click.argument("message", metavar="MESSAGE_ID", help="Id of the received message (imsg_…).")
@reported
def inbound_raw(*, message: str) -> None:
    """Write the bytes of a received message (imsg_…) to standard output, even if they are infected."""
    from ops import received_messages  # noqa: PLC0415

    sys.stdout.buffer.write(admin.with_pool(attached(), lambda pool: received_messages.raw(pool, message)))
