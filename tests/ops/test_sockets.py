"""Listening sockets belong to the supervisor: handed over as systemd does it, kept while processes come and go."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.base.settings import BadSetting, load
from engine.store import socket_activation
from engine.store.socket_activation import WrongSockets
from ops.host import launch, process_specs, sockets
from ops.host.sockets import ListeningSockets, PortTaken
from tests.harness.patience import PATIENCE_S
from tests.ops.test_up import environ

ROOT = Path(__file__).parents[2]
TAKE = """
from ops.host.sockets import ListeningSockets
doors = ListeningSockets()
try:
    doors.take()
except Exception as error:
    print(type(error).__name__, error)
else:
    print(sorted(doors.given), sorted(doors.fds(doors.given).values()))
"""
SERVE = """
import os
from engine.store import socket_activation
listener = socket_activation.take()["http"][0]
socket_activation.tell_ready()
connection, _ = listener.accept()
connection.sendall(os.environ.get("LISTEN_FDS", "taken out").encode())
"""
HOSTS = {"WAYBILL_DATABASE_URL": "postgresql://db.test/waybill", "WAYBILL_REDIS_URL": "redis://cache.test"}


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def child(
    code: str, given: Mapping[str, socket.socket], environ: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    fds = {name: one.fileno() for name, one in given.items()}
    return subprocess.Popen(
        launch.command([sys.executable, "-c", code], sockets=fds),
        pass_fds=tuple(fds.values()),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_process_gets_its_sockets_and_their_names_and_leaves_no_trace_for_children() -> None:
    with listening() as one, child(SERVE, {"http": one}) as process:
        with socket.create_connection(one.getsockname(), timeout=PATIENCE_S) as client:
            assert client.recv(64) == b"taken out"
        assert process.wait(PATIENCE_S) == 0


def test_a_connection_waits_for_a_process_that_is_yet_to_come() -> None:
    with (
        listening() as one,
        socket.create_connection(one.getsockname(), timeout=PATIENCE_S) as early,
        child(SERVE, {"http": one}) as process,
    ):
        assert early.recv(64) == b"taken out"
        assert process.wait(PATIENCE_S) == 0


def test_the_supervisor_takes_the_sockets_that_it_is_handed_by_name() -> None:
    with listening() as one, listening() as two, child(TAKE, {"http": one, "submission": two}) as process:
        assert process.communicate(timeout=PATIENCE_S)[0] == "['http', 'submission'] [3, 4]\n"


def test_a_socket_by_a_name_that_means_nothing_is_refused() -> None:
    with listening() as one, child(TAKE, {"https": one}) as process:
        said = process.communicate(timeout=PATIENCE_S)[0]

    assert said == (
        "WrongSockets systemd passed a socket named https."
        " Set FileDescriptorName= to one of http, submission, submissions, smtp.\n"
    )


def test_sockets_for_another_process_are_left_alone() -> None:
    assert socket_activation.described({"LISTEN_PID": "1", "LISTEN_FDS": "2"}) == []
    mine = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"}
    assert socket_activation.described(mine | {"LISTEN_FDNAMES": "http:smtp"}) == [(3, "http"), (4, "smtp")]
    with pytest.raises(WrongSockets, match="LISTEN_FDS is 2, but LISTEN_FDNAMES has 1"):
        socket_activation.described(mine | {"LISTEN_FDNAMES": "http"})


def test_doors_that_nobody_hands_over_are_bound_and_a_taken_one_is_named(tmp_path: Path) -> None:
    settings = load(environ(tmp_path)).settings
    with ListeningSockets() as doors:
        doors.open(settings, process_specs.socket_names(settings))
        with socket.create_connection(("127.0.0.1", settings.submission_port), timeout=PATIENCE_S):
            pass
        with ListeningSockets() as others, pytest.raises(PortTaken, match="WAYBILL_API_PORT"):
            others.open(settings, [sockets.HTTP])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", settings.api_port), timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("chosen", "names", "doors"),
    [
        ("api,relay", ["api", "relay-1", "metrics"], ["http", "submission", "submissions"]),
        ("mta", ["mta-1", "mta-2", "metrics"], []),
        ("api,worker", ["api", "worker"], ["http"]),
    ],
)
def test_a_host_runs_what_it_is_told_to_and_always_shows_its_figures(
    tmp_path: Path, chosen: str, names: list[str], doors: list[str]
) -> None:
    settings = load(environ(tmp_path, WAYBILL_PROCESSES=chosen, **HOSTS)).settings

    assert [spec.name for spec in process_specs.processes(settings)] == names
    assert process_specs.socket_names(settings) == doors


@pytest.mark.parametrize("chosen", ["api,mat", "api,api", ","])
def test_a_process_that_does_not_exist_is_refused(chosen: str) -> None:
    with pytest.raises(BadSetting, match=r"WAYBILL_PROCESSES is .* different ones of api, relay, mx, mta, worker"):
        load({"WAYBILL_PROCESSES": chosen, **HOSTS})


def test_a_host_with_a_part_of_the_service_must_not_start_servers_of_its_own() -> None:
    with pytest.raises(BadSetting, match="without WAYBILL_REDIS_URL this host uses an embedded database"):
        load({"WAYBILL_PROCESSES": "mta", "WAYBILL_DATABASE_URL": HOSTS["WAYBILL_DATABASE_URL"]})
