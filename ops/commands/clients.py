"""Commands about the clients of the API."""

from pathlib import Path

import click

from ops.commands.base import as_json, loaded, print_json, reported


@click.group()
def sdk() -> None:
    """Build the clients of the API."""


@sdk.command("build")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path(), show_default="the current folder",
    help="Folder for the files.",
)  # fmt: skip
@as_json
@reported
def build_sdk(*, out: Path, as_json: bool) -> None:
    """Write the Python client of this version as a wheel and a source distribution; the service need not run."""
    from ops import clients  # noqa: PLC0415 - it loads the whole API

    written = clients.build(loaded().settings, out)
    if as_json:
        print_json({"files": [{"path": str(one.path), "sha256": one.sha256} for one in written]})
        return
    for one in written:
        click.echo(f"{one.path}  sha256 {one.sha256}")
