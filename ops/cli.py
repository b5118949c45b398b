"""The operator's commands. Each prints for people, or with `--json` one JSON value for programs.

Exit status: 0 done, 1 it failed or found something wrong, 2 the command line is wrong, 130 interrupted.
"""

import sys

import click
import structlog

from ops.commands import accounts, delivery, logs, mail, service, shards, upkeep
from ops.commands.failures import FOREIGN, sentence
from ops.commands.loadtests import GroupWithLoadtests


def main(argv: list[str] | None = None) -> int:
    """Run one command; gives its exit status."""
    structlog.configure(logger_factory=_beside_the_answer)
    try:
        found = cli.main(args=argv, prog_name="ops", standalone_mode=False, complete_var=service.COMPLETE_VARIABLE)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except FOREIGN as error:
        click.ClickException(sentence(error)).show()
        return 1
    return found if isinstance(found, int) else 0  # click gives the code of an Exit back


def _beside_the_answer(*_: object) -> structlog.PrintLogger:
    """Where the engine logs in a command: not into the answer, which may be JSON.

    Standard error as it is at that moment: who runs a command inside a longer process may close what it gave it.
    """
    return structlog.PrintLogger(sys.stderr)


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    if not wanted or context.resilient_parsing:
        return
    from ops import interpreter, release  # noqa: PLC0415

    revision = release.revision()
    python = interpreter.about()
    click.echo(
        f"waybill {release.version()}{f' (revision {revision})' if revision else ''},"
        f" Python {'.'.join(map(str, python['version']))} ({interpreter.words(python['optimised'])})"
    )
    context.exit()


@click.group(cls=GroupWithLoadtests, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Print version, revision and Python, and exit.",
)  # fmt: skip
def cli() -> None:
    """Waybill: transactional email that you run yourself.

    Every command that prints takes --json. Exit status: 0 done, 1 failed or something is wrong, 2 wrong usage, 130
    interrupted.
    """


for command in (
    service.up,
    service.restart,
    service.status,
    service.adopt,
    service.bootstrap,
    service.test,
    service.config,
    service.completion,
    logs.log,
    service.migrate,
    service.purge,
    service.doctor,
    upkeep.backup,
    upkeep.restore,
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
