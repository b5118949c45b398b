"""Resend's and Postmark's own clients for Node.js, and django-anymail, pointed at the compatible endpoints."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Final

import asyncpg
import pytest

from ops.host.process_specs import ROOT
from tests.harness.accounts import TestAccount, make_account
from tests.harness.api import Api
from tests.harness.settling import settle

PROGRAMS: Final = ROOT / "tests" / "data" / "api_clients"
PYTHON_PACKAGES: Final = "TEST_CLIENTS_PYTHONPATH"  # a folder with packages that the tests' environment lacks
CLIENT_S: Final = 60.0


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


async def run(words: list[str], api: Api, account: TestAccount, environ: dict[str, str] | None = None) -> Any:
    """Run a program of PROGRAMS with the address, the key and the sender; return what it prints as JSON."""
    known = os.environ | {"BASE": api.base_url, "KEY": account.token, "SENDER": account.sender} | (environ or {})
    done = await asyncio.to_thread(
        subprocess.run, words, env=known, capture_output=True, check=False, text=True, timeout=CLIENT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def node(package: str) -> str:
    """Return the path of Node; skip the test if it or the package is missing."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not on PATH")
    if subprocess.run([found, "-e", f"require.resolve('{package}')"], capture_output=True, check=False).returncode:
        pytest.skip(f"the npm package {package} is not where Node looks (NODE_PATH)")
    return found


async def template(api: Api, account: TestAccount) -> None:
    content = {"id": "receipt", "subject": "For {{name}}", "text": "Hi {{name}}"}
    assert (await api.post("/v1/templates", account.token, content)).status == 201


async def test_resends_client_for_node_makes_each_call(api: Api, account: TestAccount) -> None:
    await template(api, account)
    found = await run([node("resend"), str(PROGRAMS / "resend.cjs")], api, account)

    assert found["got"]["last_event"] == "queued"
    assert [one["id"] for one in found["listed"]["data"]][-1] == found["sent"]["id"]
    assert found["moved"] == {"object": "email", "id": found["scheduled"]["id"]} == found["canceled"]
    assert len(found["batch"]["data"]) == 2
    assert found["templated"]["id"].startswith("msg_")
    assert (found["domains"]["data"][0]["name"], found["domain"]["name"]) == (account.domain, account.domain)
    assert found["again"]["id"] == found["keyed"]["id"]
    assert (found["refused"]["name"], found["missing"]["name"]) == ("validation_error", "not_found")
    assert "/v1/webhooks" in found["missing"]["message"]


async def test_postmarks_client_for_node_makes_each_call(api: Api, pool: asyncpg.Pool, account: TestAccount) -> None:
    await template(api, account)
    gone = (await api.post("/v1/emails", account.token, account.email(to=["gone@people.test"]))).json["id"]
    await settle(pool, gone, ("gone@people.test", 550, "5.1.1 no such user"))
    found = await run([node("postmark"), str(PROGRAMS / "postmark.cjs")], api, account)

    assert [one["ErrorCode"] for one in found["batch"]] == [0, 0]
    assert found["templated"]["ErrorCode"] == 0
    assert [one["ErrorCode"] for one in found["templates"]] == [0, 300]
    assert found["again"]["MessageID"] == found["sent"]["MessageID"]
    assert found["details"]["Subject"] == "Hi"
    assert "Subject: Hi" in found["dump"]["Body"]
    assert found["searched"]["TotalCount"] >= 5
    assert (found["bounces"]["TotalCount"], found["bounce"]["Email"]) == (1, "gone@people.test")
    assert found["bounceDump"]["Body"] == "550 5.1.1 no such user"
    assert [one["EmailAddress"] for one in found["suppressed"]["Suppressions"]] == ["gone@people.test"]
    assert (found["activated"]["Message"], found["activated"]["Bounce"]["Inactive"]) == ("OK", False)
    assert found["refused"]["code"] == 300
    assert "/v1/me" in found["missing"]["message"]


async def test_tags_and_metadata_of_anymail_are_found(api: Api, account: TestAccount) -> None:
    packages = os.environ.get(PYTHON_PACKAGES, "")
    environ = {"PYTHONPATH": packages}
    check = [sys.executable, "-c", "import anymail.backends"]
    if subprocess.run(check, env=os.environ | environ, capture_output=True, check=False).returncode:
        pytest.skip(f"the Python package django-anymail is not installed, nor in the folder {PYTHON_PACKAGES}")
    found = await run([sys.executable, str(PROGRAMS / "anymail_send.py")], api, account, environ)

    for service in ("resend", "postmark"):
        (shown,) = (await api.get(f"/v1/messages?tag={service}", account.token)).json["data"]
        assert (shown["id"], shown["metadata"]) == (found[service], {"order": "7"})
