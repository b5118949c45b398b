"""The operator's commands. Each prints for people, or with `--json` one JSON value for programs."""

import sys

import click
import structlog

from ops.commands import accounts, delivery, hosts, load, mail, measure, service, shards, upkeep


def main(argv: list[str] | None = None) -> int:
    """Run one command; gives its exit status."""
    structlog.configure(logger_factory=_beside_the_answer)
    try:
        found = cli.main(args=argv, prog_name="ops", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    return found if isinstance(found, int) else 0  # click gives the code of an Exit back


def _beside_the_answer(*_: object) -> structlog.PrintLogger:
    """Where the engine logs in a command: not into the answer, which may be JSON.

    Standard error as it is at that moment: who runs a command inside a longer process may close what it gave it.
    """
    return structlog.PrintLogger(sys.stderr)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Waybill: transactional email that you run yourself."""


for command in (
    service.up,
    service.restart,
    service.status,
    service.adopt,
    service.test,
    service.config,
    service.migrate,
    service.purge,
    service.doctor,
    upkeep.backup,
    upkeep.restore,
    hosts.hosts,
    measure.bench,
    measure.drill,
    load.loadtest,
    accounts.account,
    accounts.person,
    accounts.key,
    accounts.domain,
    accounts.platform,
    delivery.queue,
    delivery.site,
    delivery.source,
    shards.shards,
    shards.nodes,
    delivery.explain,
    delivery.trace,
    mail.send,
    mail.messages,
    mail.message,
    mail.tail,
    mail.sink,
):
    cli.add_command(command)
