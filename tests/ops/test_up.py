"""`ops up` before its processes: ports, one start per state folder, and what operator commands attach to."""

import asyncio
import json
import os
import re
import socket
import stat
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from engine.base.settings import Settings, load
from loadtests.ports import reserve_port, reserve_ports
from ops.host import control, prepare, process_specs, up
from ops.host.attach import NotRunning, attach
from ops.host.console import UpConsole
from ops.host.process_specs import PortTaken
from ops.host.rolling import Roller
from ops.host.state import StateLock, kept_pepper, write_private
from ops.host.supervise import Supervisor

PORTS = ("API", "METRICS", "SINK", "DNS", "SUBMISSION", "SUBMISSION_TLS", "MX")


def environ(state: Path, **more: str) -> dict[str, str]:
    ports = {f"WAYBILL_{name}_PORT": str(port) for name, port in zip(PORTS, reserve_ports(len(PORTS)), strict=True)}
    return {"WAYBILL_STATE": str(state), **ports, **more}


def test_free_ports_pass(tmp_path: Path) -> None:
    process_specs.check_ports(load(environ(tmp_path)).settings)


@pytest.mark.parametrize("name", PORTS)
def test_a_busy_port_is_named_with_the_variable_that_moves_it(tmp_path: Path, name: str) -> None:
    settings = load(environ(tmp_path)).settings
    port = getattr(settings, f"{name.lower()}_port")
    kind = socket.SOCK_DGRAM if name == "DNS" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", port))
        if kind is socket.SOCK_STREAM:
            other.listen()
        with pytest.raises(PortTaken, match=rf"Port {port} is in use.*WAYBILL_{name}_PORT"):
            process_specs.check_ports(settings)


def test_local_ports_do_not_matter_in_live_mode(tmp_path: Path) -> None:
    loaded = load(environ(tmp_path, WAYBILL_DELIVERY="live"))
    with socket.create_server(("127.0.0.1", loaded.settings.sink_port)):
        process_specs.check_ports(loaded.settings)


def test_two_settings_with_one_port_are_told_apart(tmp_path: Path) -> None:
    port = str(reserve_port())
    settings = load(environ(tmp_path, WAYBILL_API_PORT=port, WAYBILL_SINK_PORT=port)).settings

    with pytest.raises(PortTaken, match="WAYBILL_SINK_PORT and WAYBILL_API_PORT"):
        process_specs.check_ports(settings)


def test_a_second_up_fails_at_once_with_the_pid_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load(environ(tmp_path))
    with StateLock(tmp_path):
        assert up.run(loaded) == 1

    assert f"process {os.getpid()}" in capsys.readouterr().err


def test_an_unusable_state_folder_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    assert up.run(load(environ(tmp_path / "file"))) == 1
    assert "WAYBILL_STATE" in capsys.readouterr().err


def test_children_read_settings_with_every_gap_filled(tmp_path: Path) -> None:
    loaded = load({"WAYBILL_DNS_PORT": "5353", "WAYBILL_PROFILE": "full"})
    filled = up._filled(loaded, tmp_path, {"database_url": "postgresql:///x", "redis_url": "unix:///y"})
    child = next(spec for spec in process_specs.processes(filled) if spec.name == "mta-2")

    read = load({name: text for name, text in child.env.items() if name.startswith("WAYBILL_")}).settings
    assert read == filled
    assert [str(server) for server in read.dns_servers] == ["127.0.0.1:5353"]
    assert read.allow_private_mx
    assert read.key_pepper == kept_pepper(tmp_path)
    assert child.argv[-4:] == ("-m", "mta.process", "--name", "mta-2")


def test_the_pepper_is_given_to_the_processes_that_use_it(tmp_path: Path) -> None:
    given = load(environ(tmp_path, WAYBILL_KEY_PEPPER="0123456789abcdef", WAYBILL_PROFILE="full")).settings
    specs = [*process_specs.helpers(given), *process_specs.processes(given)]
    without = {spec.name for spec in specs if "WAYBILL_KEY_PEPPER" not in spec.env}
    assert without == {"sink"}
    changing = process_specs.processes(
        structs.replace(given, key_pepper_previous="fedcba9876543210", processes=("mx",))
    )
    assert [one.name for one in changing if "WAYBILL_KEY_PEPPER_PREVIOUS" not in one.env] == ["metrics"]
    of_one_kind = process_specs.processes(structs.replace(given, processes=("mx",)))
    assert [spec.name for spec in of_one_kind if "WAYBILL_KEY_PEPPER" not in spec.env] == ["metrics"]


def test_what_the_operator_set_is_not_overridden(tmp_path: Path) -> None:
    pepper = "ab" * 32
    given = {"WAYBILL_DNS_SERVERS": "192.0.2.1:53", "WAYBILL_ALLOW_PRIVATE_MX": "no", "WAYBILL_KEY_PEPPER": pepper}
    filled = up._filled(load(given), tmp_path, {})

    assert [str(server) for server in filled.dns_servers] == ["192.0.2.1:53"]
    assert not filled.allow_private_mx
    assert filled.key_pepper == pepper


def test_a_pepper_that_was_set_aside_is_the_previous_one_of_a_new_one(tmp_path: Path) -> None:
    old = kept_pepper(tmp_path)
    (tmp_path / "pepper").rename(tmp_path / "pepper-previous")
    filled = up._filled(load({}), tmp_path, {})

    assert filled.key_pepper_previous == old != filled.key_pepper == kept_pepper(tmp_path)
    set_by_hand = up._filled(load({"WAYBILL_KEY_PEPPER": "0123456789abcdef"}), tmp_path, {})
    assert set_by_hand.key_pepper_previous is None


def test_live_mode_uses_the_systems_resolvers_and_refuses_private_mx(tmp_path: Path) -> None:
    filled = up._filled(load({"WAYBILL_DELIVERY": "live"}), tmp_path, {})

    assert filled.dns_servers == ()
    assert not filled.allow_private_mx


def test_an_operator_command_finds_the_running_servers(tmp_path: Path) -> None:
    running = {"pid": 1, "databaseUrl": "postgresql:///x", "redisUrl": "unix:///y"}
    write_private(tmp_path / "running.json", json.dumps(running))
    loaded = load({"WAYBILL_STATE": str(tmp_path)})
    with pytest.raises(NotRunning, match="ops up"):
        attach(loaded)
    with StateLock(tmp_path):
        found = attach(loaded)

    assert (found.database_url, found.redis_url) == ("postgresql:///x", "unix:///y")
    assert found.key_pepper == kept_pepper(tmp_path)
    assert stat.S_IMODE((tmp_path / "running.json").stat().st_mode) == 0o600


def test_given_urls_need_no_running_service(tmp_path: Path) -> None:
    found = attach(
        load(
            {
                "WAYBILL_STATE": str(tmp_path),
                "WAYBILL_DATABASE_URL": "postgresql://db/x",
                "WAYBILL_REDIS_URL": "redis://cache",
            }
        )
    )
    assert found.database_url == "postgresql://db/x"


@pytest.mark.parametrize(
    ("given", "url"),
    [({}, "http://127.0.0.1:8123"), ({"WAYBILL_PUBLIC_URL": "https://mail.example.com"}, "https://mail.example.com")],
)
def test_an_operator_command_makes_links_to_the_port_of_the_service(
    tmp_path: Path, given: dict[str, str], url: str
) -> None:
    urls = {"WAYBILL_DATABASE_URL": "postgresql://db/x", "WAYBILL_REDIS_URL": "redis://cache"}
    found = attach(load({"WAYBILL_STATE": str(tmp_path), "WAYBILL_API_PORT": "8123", **urls, **given}))

    assert found.public_url == url


def test_the_first_send_shows_the_key_on_a_terminal_only(tmp_path: Path) -> None:
    first_run = {"baseUrl": "http://127.0.0.1:1", "apiKey": "svc_live_secret", "domain": "d.test"}
    file = tmp_path / "first-run.json"
    file.write_text(json.dumps(first_run))
    logged = up._first_send_command(first_run, file, show_key=False)
    command = logged.split("\n\n", 1)[1].replace("curl", "printf '%s\\n'")
    pasted = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout

    assert "svc_live_secret" in up._first_send_command(first_run, file, show_key=True)
    assert "svc_live_secret" not in logged
    assert "Authorization: Bearer svc_live_secret\n" in pasted


def test_the_ready_line_names_every_door(tmp_path: Path) -> None:
    line = up._ready_line(Settings(state=tmp_path, api_port=8123), {"accountId": "acc_1"}, 1.26)

    assert "ready in 1.3 s" in line
    assert "\n" not in line
    for part in ("http://127.0.0.1:8123", ":9090/metrics", str(tmp_path / "sink"), "first-run.json"):
        assert part in line


async def test_a_redis_that_does_not_answer_is_told_with_what_it_means(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    warning = await prepare.redis_warning(Settings(redis_url=f"redis://127.0.0.1:{port}/0"))

    assert warning is not None
    assert "Redis does not answer" in warning
    assert "Mail is accepted and delivered without it, up to 5 s later" in warning
    assert await prepare.redis_warning(Settings(redis_url=redis_url)) is None


def test_a_state_folder_of_another_user_is_not_called_a_stopped_service(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may enter every folder")
    tmp_path.chmod(0)
    try:
        with pytest.raises(PermissionError, match=re.escape(str(tmp_path))):
            attach(load({"WAYBILL_STATE": str(tmp_path)}))
    finally:
        tmp_path.chmod(0o700)


class AskingConsole(UpConsole):
    """A console whose reader asks the supervisor for the log levels as soon as it reads that the service is ready."""

    def __init__(self, state: Path, stop: asyncio.Event) -> None:
        super().__init__()
        self._state, self._stop = state, stop
        self.answer: asyncio.Future[list[dict[str, Any]]] | None = None

    def ready(self, text: str) -> None:
        """Ask, and stop the service once the answer is there."""
        ask = partial(control.ask, self._state, {"do": "log level"}, 10.0)
        self.answer = asyncio.ensure_future(asyncio.to_thread(lambda: list(ask())))
        self.answer.add_done_callback(lambda _: self._stop.set())


async def test_who_reads_that_the_service_is_ready_may_ask_at_once(tmp_path: Path) -> None:
    stop = asyncio.Event()
    console = AskingConsole(tmp_path, stop)
    async with asyncio.timeout(60), Supervisor(console.say) as supervisor:
        roller = Roller(supervisor, console.say)
        async with up._answering(supervisor, tmp_path, roller):
            await up._run_until_signal(roller, console, stop, ["Waybill is ready"])
    assert console.answer is not None
    assert console.answer.exception() is None
