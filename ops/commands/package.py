"""`ops package`: build the distributions of this version for a release, with a list of what they need to run."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from engine.base.version import version
from ops.commands.base import as_json, fail, print_json, reported
from ops.host.bootstrap import LOCKS, ROOT

_BUILDERS: Final = ("build==1.6.1", "cyclonedx-bom==7.5.0")
_LIMIT_S: Final = 600.0  # for one step; most of it is downloads


@click.command()
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("dist"), show_default=True,
    help="Folder for the files.",
)  # fmt: skip
@as_json
@reported
def package(*, out: Path, as_json: bool) -> None:
    """Build wheel, source distribution and SBOM of this version.

    The SBOM (CycloneDX, JSON) lists the packages that Waybill runs with, at the locked versions, with their licences
    and the texts of these. Needs a package index.
    """
    written = build(out)
    if as_json:
        print_json({"files": [str(one) for one in written]})
        return
    for one in written:
        click.echo(str(one))


def build(out: Path) -> list[Path]:
    """Build the files into a folder and return their paths; files of the same name are replaced."""
    bill = out / f"waybill-{version()}.cdx.json"
    with tempfile.TemporaryDirectory(prefix="waybill-package-") as name:
        builders, clean = Path(name) / "builders", Path(name) / "clean"
        python = _environment(builders, list(_BUILDERS))
        _run([python, "-m", "build", "--outdir", str(out.absolute()), str(ROOT)])
        packed = out / f"waybill-{version()}-py3-none-any.whl"
        running = _environment(clean, ["--require-hashes", "--no-deps", "--requirement", str(LOCKS / "run.txt")])
        _run([running, "-m", "pip", "install", "--quiet", "--no-deps", str(packed)])
        _run([running, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"])  # they came with the folder
        _run([
            str(builders / "bin" / "cyclonedx-py"), "environment", running, "--pyproject", str(ROOT / "pyproject.toml"),
            "--gather-license-texts", "--output-reproducible", "--output-file", str(bill),
        ])  # fmt: skip
    _check(json.loads(bill.read_text("utf-8")), bill)
    return [packed, out / f"waybill-{version()}.tar.gz", bill]


def _check(bill: dict[str, list[dict[str, object]]], file: Path) -> None:
    """End the command if a package has no licence: a release must not pass that on."""
    unlicensed = sorted(str(one["name"]) for one in bill["components"] if not one.get("licenses"))
    if unlicensed:
        fail(f"{file} has no licence of: {', '.join(unlicensed)}.")


def _environment(folder: Path, wanted: list[str]) -> str:
    """Make a virtual environment with packages; return its Python."""
    _run([sys.executable, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    _run([python, "-m", "pip", "install", "--quiet", *wanted])
    return python


def _run(words: list[str]) -> None:
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        fail(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}")
