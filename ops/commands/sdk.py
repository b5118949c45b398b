"""`ops sdk`: build the clients of the API."""

from pathlib import Path

import click
import orjson
from msgspec import Struct

from api.routes import client_document
from api.sdk import python_package, wheel
from engine.base.settings import Settings
from engine.base.version import version
from ops.commands.base import as_json, loaded, print_json, reported


class WrittenDistribution(Struct, frozen=True):
    """A file that was written."""

    path: Path
    sha256: str


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
    written = build(loaded().settings, out)
    if as_json:
        print_json({"files": [{"path": str(one.path), "sha256": one.sha256} for one in written]})
        return
    for one in written:
        click.echo(f"{one.path}  sha256 {one.sha256}")


def build(settings: Settings, folder: Path) -> list[WrittenDistribution]:
    """Write wheel and source distribution; files of the same name are replaced."""
    current = version()
    files = python_package.files(orjson.loads(client_document(settings)), current)
    contents = {
        wheel.wheel_name(current): wheel.wheel(files, current),
        wheel.sdist_name(current): wheel.sdist(files, current),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [WrittenDistribution(folder / name, wheel.digest(content)) for name, content in contents.items()]
