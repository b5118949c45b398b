"""The `ops` command line: collects all commands and turns errors into one line and an exit status.

Each command prints text for people, or with `--json` one JSON value for programs. Exit status: 0 done, 1 failed or
something is wrong, 2 wrong usage, 130 interrupted.
"""

import logging
import sys

import click
import structlog

from ops.commands import (
    accounts,
    alerts,
    blocklists,
    broadcasts,
    clients,
    contacts,
    delivery,
    erasures,
    inbound_mail,
    logs,
    mail,
    reports,
    service,
    shards,
    upkeep,
    verifications,
)
from ops.commands.failures import FOREIGN, sentence
from ops.commands.loadtests import GroupWithLoadtests
from ops.commands.output import print_json


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    # Commands print what they did; the service's log lines below a warning would stand before their output.
    structlog.configure(
        logger_factory=_log_to_stderr, wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )
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
    return found if isinstance(found, int) else 0  # click returns the code of an Exit exception


def _log_to_stderr(*_: object) -> structlog.PrintLogger:
    """Return a logger for standard error, so that log lines never mix with the command's output.

    It reads `sys.stderr` at each call: a process that runs several commands may replace and close it between them.
    """
    return structlog.PrintLogger(sys.stderr)


def _print_version(*, as_json: bool) -> None:
    from engine.base.version import version  # noqa: PLC0415
    from ops.host import interpreter, release  # noqa: PLC0415

    revision = release.revision()
    python = interpreter.about()
    numbers = ".".join(map(str, python["version"]))
    if as_json:
        print_json({
            "version": version(), "revision": revision, "python": numbers, "optimised": bool(python["optimised"])
        })  # fmt: skip
        return
    click.echo(
        f"waybill {version()}{f' (revision {revision})' if revision else ''},"
        f" Python {numbers} ({interpreter.words(python['optimised'])})"
    )


@click.group(
    cls=GroupWithLoadtests, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True,
    no_args_is_help=True,
)  # fmt: skip
@click.option("--version", is_flag=True, help="Print version, revision and Python, and exit.")
@click.option("--json", "as_json", is_flag=True, help="With --version: print one JSON value.")
@click.pass_context
def cli(context: click.Context, *, version: bool, as_json: bool) -> None:
    """Waybill: transactional email that you run yourself.

    Every command that prints accepts --json. Exit status: 0 done, 1 failed or something is wrong, 2 wrong usage, 130
    interrupted.
    """
    if version:
        _print_version(as_json=as_json)
        context.exit()
    if as_json:
        raise click.UsageError("Write --json behind the command, such as `ops status --json`.", context)


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
    upkeep.pepper,
    accounts.account,
    accounts.person,
    accounts.key,
    accounts.domain,
    accounts.platform,
    delivery.queue,
    delivery.site,
    delivery.source,
    blocklists.blocklists,
    shards.shards,
    shards.nodes,
    contacts.contacts,
    contacts.suppressions,
    contacts.opt_outs,
    inbound_mail.inbound,
    alerts.alerts,
    broadcasts.broadcasts,
    broadcasts.review,
    verifications.verifications,
    erasures.erasure,
    delivery.explain,
    delivery.trace,
    mail.send,
    mail.messages,
    mail.message,
    mail.tail,
    mail.sink,
    reports.reports,
    clients.sdk,
):
    cli.add_command(command)
