"""`ops doctor`: check this installation."""

import click

from ops.commands.base import as_json, loaded, print_json
from ops.doctor import examine


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Check this installation: what is wrong and how to fix it. Exit status 1 if anything is wrong."""
    findings = examine(loaded())
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        for finding in findings:
            mark = "ok  " if finding.ok else "BAD "
            click.echo(f"{mark} {finding.check}: {finding.found}")
            if finding.mend:
                click.echo(f"     fix: {finding.mend}")
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(1)
