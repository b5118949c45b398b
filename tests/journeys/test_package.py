"""The wheel in a clean environment: `waybill` runs the service from any folder and clashes with nothing."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from loadtests.kit.service import PORTS
from loadtests.ports import reserve_ports
from ops.commands import package
from ops.host.bootstrap import LOCKS

pytestmark = [pytest.mark.journey, pytest.mark.exhaustive, pytest.mark.timeout(900)]  # most of it is downloads


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    try:
        return package.build(tmp_path_factory.mktemp("dist"))
    except click.ClickException as error:
        if "No matching distribution" in error.message or "ConnectionError" in error.message:
            pytest.skip("no package index has the build tools")
        raise


@pytest.fixture(scope="module")
def installed(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=60)
    subprocess.run([folder / "bin/pip", "install", "--quiet", built[0]], check=True, timeout=300, env=clean())
    return folder / "bin" / "waybill"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A project's folder, whose packages have the names of Waybill's."""
    for name in ("api", "engine", "mta", "ops", "shards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported from the current folder')")
    return tmp_path


def clean(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("WAYBILL_", "PYTHON"))}
    return kept | more


def run(command: Path, folder: Path, environ: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(
        [command, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_adds_one_name_to_an_environment(built: list[Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"waybill"}


def test_the_sbom_lists_every_locked_package_with_its_version_and_licence(built: list[Path]) -> None:
    bill = json.loads(built[2].read_text())
    listed = {one["name"].lower().replace("_", "-"): one for one in bill["components"]}
    lock = (LOCKS / "run.txt").read_text().splitlines()
    for line in [line for line in lock if "==" in line and ";" not in line]:
        name, _, version = line.removesuffix(" \\").partition("==")
        assert listed[name.lower()]["version"] == version
        assert listed[name.lower()]["licenses"]


def test_the_command_runs_the_service_from_any_folder(installed: Path, elsewhere: Path, tmp_path: Path) -> None:
    ports = {f"WAYBILL_{name}": str(port) for name, port in zip(PORTS, reserve_ports(len(PORTS)), strict=True)}
    environ = clean(XDG_DATA_HOME=str(tmp_path / "data"), **ports)
    told = run(installed, elsewhere, environ, "up", "--detach")
    try:
        assert "Waybill is ready" in told
        assert (tmp_path / "data" / "waybill" / "first-run.json").is_file()
        rows = json.loads(run(installed, elsewhere, environ, "status", "--json"))
        assert {row["name"] for row in rows} >= {"api", "host", "postgres", "valkey"}
        assert "waybill logs -f" in told
    finally:
        run(installed, elsewhere, environ, "stop")
    assert "does not run" in run(installed, elsewhere, environ, "stop")
