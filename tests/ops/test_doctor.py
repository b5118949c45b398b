"""The doctor: what is wrong on this machine is found by name, with a sentence that mends it; nothing is changed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.host.state import StateLock, kept_pepper, make_state, write_private
from tests.harness.patience import PATIENCE_S
from tests.harness.service import run_ops
from tests.ops.installation import environ, examined

ROOT = Path(__file__).resolve().parents[2]


# -- a service that does not run --------------------------------------------------------------


async def test_before_the_first_start_it_says_how_to_start(tmp_path: Path) -> None:
    state = tmp_path / "none yet"
    found = await examined(environ(state))

    assert not found["service"].ok
    assert "python3 -m ops up" in (found["service"].mend or "")
    assert not found["servers"].ok
    assert all(found[name].ok for name in ("python", "packages", "state", "disk", "pepper", "ports"))
    assert "postgres" not in found
    assert not state.exists()  # looking makes nothing, least of all a pepper


async def test_a_stopped_service_is_told_from_a_running_one(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    kept_pepper(state)
    variables = environ(state)

    assert not (await examined(variables))["service"].ok
    with StateLock(state):
        running = await examined(variables)
    assert running["service"].ok
    assert str(os.getpid()) in running["service"].found


async def test_a_taken_port_is_told_before_the_start_fails(tmp_path: Path) -> None:
    variables = environ(tmp_path)
    with socket.create_server(("127.0.0.1", int(variables["WAYBILL_API_PORT"]))):
        found = await examined(variables)

    assert not found["ports"].ok
    assert "WAYBILL_API_PORT" in (found["ports"].mend or "")


async def test_a_stale_or_broken_record_of_the_servers_is_no_failure(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    kept_pepper(state)
    variables = environ(state)
    with StateLock(state):
        for text in ("", "[]", "{", json.dumps({"pid": 1})):
            write_private(state / "running.json", text)
            assert not (await examined(variables))["servers"].ok
        gone = {
            "pid": 1,
            "databaseUrl": f"postgresql://postgres@/x?host={tmp_path}",
            "redisUrl": f"unix://{tmp_path}/no",
        }
        write_private(state / "running.json", json.dumps(gone))
        found = await examined(variables)

    assert not found["postgres"].ok
    assert not found["redis"].ok


# -- the machine ------------------------------------------------------------------------------


async def test_an_open_pepper_is_found(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    kept_pepper(state)
    (state / "pepper").chmod(0o640)
    found = (await examined(environ(state)))["pepper"]

    assert "0640" in found.found
    assert f"chmod 600 {state / 'pepper'}" in (found.mend or "")
    (state / "pepper").chmod(0o600)
    assert (await examined(environ(state)))["pepper"].ok


async def test_a_lost_pepper_is_found_and_not_replaced(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    (state / "first-run.json").write_text("{}")
    found = (await examined(environ(state)))["pepper"]

    assert not found.ok
    assert "backup" in (found.mend or "")
    assert not (state / "pepper").exists()


async def test_a_pepper_that_was_set_aside_is_not_lost_and_has_to_be_private(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    kept_pepper(state)
    (state / "first-run.json").write_text("{}")
    (state / "pepper").rename(state / "pepper-previous")
    assert "the next start creates a new pepper" in (await examined(environ(state)))["pepper"].found
    kept_pepper(state)
    (state / "pepper-previous").chmod(0o644)
    found = (await examined(environ(state)))["pepper"]

    assert f"chmod 600 {state / 'pepper-previous'}" in (found.mend or "")


async def test_a_damaged_pepper_is_found(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    write_private(state / "pepper", "short\n")

    assert not (await examined(environ(state)))["pepper"].ok


async def test_a_state_folder_that_is_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    found = await examined(environ(tmp_path / "state"))

    assert not found["state"].ok
    assert "WAYBILL_STATE" in (found["state"].mend or "")


async def test_a_full_disk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.doctor.examination.MIN_FREE_BYTES", 2**60)

    assert not (await examined(environ(tmp_path)))["disk"].ok


async def test_an_environment_behind_its_lock_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert (await examined(environ(tmp_path)))["packages"].ok  # not of our making
    (tmp_path / "waybill.json").write_text(json.dumps({"root": "x", "locks": {"run": "an old digest"}}))
    found = (await examined(environ(tmp_path)))["packages"]

    assert not found.ok
    assert "ops bootstrap run" in (found.mend or "")


# -- the whole --------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a state folder; at the end, remove its data, which root keeps outside the folder."""
    yield tmp_path / "state"
    data = tmp_path / "state" / "embedded"
    if data.is_symlink():
        shutil.rmtree(data.resolve())


@pytest.mark.exhaustive
@pytest.mark.journey
def test_the_doctor_finds_nothing_wrong_with_a_fresh_installation_and_says_when_it_is_down(
    tmp_path: Path, state: Path
) -> None:
    variables = {name: text for name, text in os.environ.items() if not name.startswith("WAYBILL_")}
    variables |= environ(state, WAYBILL_SHARDS=16, WAYBILL_MTA_WORKERS=1, WAYBILL_LEASE_S=2)

    def doctor() -> tuple[int, dict[str, dict[str, object]]]:
        done = run_ops(variables, "doctor", "--json")
        assert done.out, done.err
        return done.status, {finding["check"]: finding for finding in done.json}

    with (tmp_path / "up.log").open("wb") as log:
        up = subprocess.Popen([sys.executable, "-m", "ops", "up"], env=variables, cwd=ROOT, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "is ready" not in (tmp_path / "up.log").read_text():
            assert up.poll() is None, (tmp_path / "up.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        status, found = doctor()
        while not found["shards"]["ok"] and time.monotonic() < deadline:  # the mta has just begun to take them
            status, found = doctor()
        assert {name: finding for name, finding in found.items() if not finding["ok"]} == {}
        assert status == 0
        assert {
            "service",
            "postgres",
            "durability",
            "redis",
            "api",
            "submission",
            "sink",
            "dns",
            "shards",
        } <= found.keys()
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(PATIENCE_S)

    status, found = doctor()
    assert status == 1
    assert [name for name, finding in found.items() if not finding["ok"]] == ["service", "servers"]
