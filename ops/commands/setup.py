"""`ops bootstrap` and `ops completion`: the virtual environment and the shell."""

import click
from click.shell_completion import get_completion_class

from ops.host.bootstrap import enter

COMPLETE_VARIABLE = "_WAYBILL_COMPLETE"


@click.command()
@click.argument("lock", default="run", help="Package set: run (the service), test, load (load tests) or dev.")
def bootstrap(lock: str) -> None:
    """Create or update the virtual environment (.venv) and print its folder. Every start does this too.

    WAYBILL_PYTHON selects the Python to use; PIP_INDEX_URL a mirror of the package index.
    """
    raise click.exceptions.Exit(enter(["bootstrap", lock]) or 0)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="Your shell.")
@click.option("--name", default="waybill", show_default=True, help="Name of the command on your PATH.")
def completion(*, shell: str, name: str) -> None:
    """Print a completion script for your shell.

    It completes commands and options of `waybill` (.venv/bin/waybill), or of a link to it with another name:

    \b
        ln -s "$PWD/.venv/bin/waybill" ~/.local/bin/waybill
        eval "$(waybill completion bash)"        # in ~/.bashrc; zsh: ~/.zshrc
        waybill completion fish | source         # in config.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = click.get_current_context().find_root().command
    click.echo(made(root, {}, name, COMPLETE_VARIABLE).source())
