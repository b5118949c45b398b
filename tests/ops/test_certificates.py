"""`ops certificate`: certificates are verified offline, and an operator rotates the key that signs them."""

import json
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner, Result

from engine.base.settings import Settings
from engine.store.postgres import open_pool
from ops.commands import certificate as certificates
from ops.commands.certificate import certificate
from tests.conftest import NewDatabase
from tests.harness.accounts import make_account
from tests.sdk.test_certificate_verifiers import GOOD, KEYS, MIME, encoded


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a certificate, its keys and its message."""
    (tmp_path / "certificate.json").write_text(json.dumps(GOOD))
    (tmp_path / "keys.json").write_text(json.dumps(KEYS))
    (tmp_path / "message.eml").write_bytes(b"Received: from a\r\n" + MIME)
    return tmp_path


def verify(files: Path, *options: str) -> Result:
    """Run `ops certificate verify` with the key set in the folder, so that it needs no service."""
    given = ["verify", str(files / "certificate.json"), "--keys", str(files / "keys.json"), *options]
    return CliRunner().invoke(certificate, given)


def test_a_certificate_is_verified_without_a_service(files: Path) -> None:
    done = verify(files, "--message", str(files / "message.eml"), "--recipient", "ann@people.test")

    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "Valid: https://mail.example.com signed it at 2026-11-29T12:00:00.000Z, about message msg_1.",
        "Recipient 1: delivered",
        "Recipient 2: delivered",
        "The address is that of recipient 1.",
        "The message is the certified one, octet for octet.",
        "No longer stored when it was signed: recipients[1].addressSha256.",
    ]


def test_it_prints_json(files: Path) -> None:
    found = json.loads(verify(files, "--json").output)

    assert (found["valid"], found["message"], found["statement"]["message"]) == (True, None, "msg_1")


def test_a_certificate_that_is_not_valid_ends_with_status_1(files: Path) -> None:
    (files / "certificate.json").write_text(json.dumps(GOOD | {"payload": encoded({"version": 1})}))
    done, as_json = verify(files), verify(files, "--json")

    assert (done.exit_code, as_json.exit_code) == (1, 1)
    assert "Not valid (signature_mismatch)" in done.output
    assert json.loads(as_json.output)["reason"] == "signature_mismatch"
    assert verify(files, "--recipient", "bob@people.test").exit_code == 1


def test_a_log_of_another_account_is_told_apart(files: Path) -> None:
    (files / "audit.ndjson").write_text('{"seq":7,"hash":"00","prevHash":"01","occurredAt":"x","payload":null}\n')
    done = verify(files, "--log", str(files / "audit.ndjson"))

    assert done.exit_code == 1
    assert "log_mismatch" in done.output


async def test_a_rotation_is_listed_and_written_into_the_log_of_the_platform(
    settings: Settings, new_database: NewDatabase
) -> None:
    pool = await open_pool(await new_database(), name="tests", largest=2)
    try:
        account = await make_account(pool)
        await pool.execute("INSERT INTO platform (account_id) VALUES ($1)", account.id)
        first = await certificates.rotated(pool, settings)
        second = await certificates.rotated(pool, settings)
        listed = (await certificates.key_set(pool))["keys"]
        details = await _changes(pool)
    finally:
        await pool.close()

    assert [one["kid"] for one in listed] == [second["kid"], first["kid"]]
    assert ["retiredAt" in one for one in listed] == [False, True]
    assert [one["action"] for one in details] == ["certificate_key.rotated"] * 2
    assert details[0]["retired"] is None
    assert (details[1]["key"], details[1]["retired"]) == (second["kid"], first["kid"])
    assert details[1]["actor"] == "operator"


async def _changes(pool: asyncpg.Pool) -> list[dict[str, object]]:
    rows = await pool.fetch("SELECT payload FROM events WHERE type = 'platform.changed' ORDER BY seq")
    return [json.loads(row["payload"])["detail"] for row in rows]
