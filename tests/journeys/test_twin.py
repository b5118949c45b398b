"""The guide "Test your emails": its tests run in another project, with the clients as they are served."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import httpx
import orjson
import pytest

from api.routes import client_document
from api.sdk import javascript, npm_package, python_package, wheel
from engine.base.settings import Settings
from engine.base.version import version
from tests.harness.guides import guides

pytestmark = pytest.mark.journey

FURTHER = """
import pytest


def test_a_lost_response_sends_nothing_twice(twin):
    twin.fail_next(after_commit=True)
    twin.client.emails.send(from_=f"hello@{twin.domain}", to="ann@example.com", subject="Once", text="Hi")
    twin.settle()
    assert [mail.subject for mail in twin.mails("ann@example.com")] == ["Once"]


def test_mail_from_outside_is_received_and_answered(twin):
    twin.client.inbound_addresses.create(address=f"support@{twin.domain}")
    twin.inject(to=f"support@{twin.domain}", from_="ann@example.net", subject="Help")
    twin.settle()
    [row] = twin.client.inbound_messages.list()["data"]
    assert row["subject"] == "Help"


def test_posts_may_be_doubled_and_change_places(twin):
    hook = twin.webhooks
    twin.client.emails.send(from_=f"hello@{twin.domain}", to="ann@example.com", subject="Hi", text="Hi")
    twin.settle()
    seen = []
    hook.hand_to(lambda body, headers: seen.append(body), times=2, seed=1)
    assert len(seen) == 2 * len(hook.posts)
    assert len(set(seen)) == len(hook.posts)


def test_one_click_unsubscribes(twin):
    twin.client.streams.create(id="news")
    twin.client.emails.send(
        from_=f"hello@{twin.domain}", to="ann@example.com", subject="News", text="Hi", stream="news",
        list_unsubscribe="auto",
    )
    twin.unsubscribe(twin.wait_for_mail("ann@example.com"))
    assert [row["reason"] for row in twin.client.suppressions.list()["data"]] == ["unsubscribe"]


def test_a_mail_that_does_not_come_tells_what_happened(twin):
    twin.client.emails.send(from_=f"hello@{twin.domain}", to="unknown@gmail.sim", subject="Hi", text="Hi")
    with pytest.raises(AssertionError, match="to unknown@gmail.sim is bounced"):
        twin.wait_for_mail("unknown@gmail.sim", timeout=3)
"""


# Node runs beside a user in Python, and leaves the service to it. Both find the lock of a process that was killed.
SHARING = """
import os, pathlib, subprocess, sys, tempfile
from waybill_client.testing import running_service

def leave_a_lock():
    lock = pathlib.Path(tempfile.gettempdir(), f"waybill-twin-{os.getuid()}", "lock")
    lock.mkdir(parents=True)
    ended = subprocess.Popen(["true"])
    ended.wait()
    (lock / "pid").write_text(str(ended.pid))

leave_a_lock()
with running_service() as used:
    leave_a_lock()
    status = subprocess.run(sys.argv[1:]).returncode
    with running_service() as again:
        sys.exit(status or used != again)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty folder for tests; the folder above it has the temporary files of their service."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def environ(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("WAYBILL_", "PYTEST_"))}
    return kept | {"TMPDIR": str(folder), "WAYBILL_COMMAND": f"{sys.executable} -P -m ops"} | more


def printed(label: str) -> str:
    """Return the tests that the guide shows under a tab."""
    language = "python" if label == "Python" else "js"
    [found] = [one.text for one in guides()["test-your-emails"].samples if one.language == language]
    return found


def python_client(folder: Path) -> Path:
    packed = wheel.wheel(python_package.files(orjson.loads(client_document(Settings())), version()), version())
    zipfile.ZipFile(io.BytesIO(packed)).extractall(folder / "client")
    return folder / "client"


def javascript_client(project: Path) -> None:
    packed = npm_package.package(javascript.files(orjson.loads(client_document(Settings())), version()), version())
    folder = project / "node_modules" / "waybill-client"
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for name in archive.getnames():
            file = archive.extractfile(name)
            assert file is not None
            (folder / Path(name).name).write_bytes(file.read())


def test_the_examples_of_the_guide_pass_in_pytest(tmp_path: Path, project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_emails.py").write_text(printed("Python"))
    (project / "test_further.py").write_text(FURTHER)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=12"]
    own = environ(tmp_path, PYTHONPATH=str(python_client(tmp_path)))
    done = subprocess.run(words, cwd=project, env=own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


def test_the_examples_of_the_guide_pass_in_node_and_both_languages_share_a_service(
    tmp_path: Path, project: Path
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    javascript_client(project)
    (project / "emails.test.mjs").write_text(printed("JavaScript"))
    shutil.copy(Path(__file__).with_name("twin.test.mjs"), project)
    files = ["emails.test.mjs", "twin.test.mjs"]
    words = [sys.executable, "-c", SHARING, node, "--test", "--test-concurrency=1", *files]
    own = environ(tmp_path, PYTHONPATH=str(python_client(tmp_path)))
    done = subprocess.run(words, cwd=project, env=own, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 11" in done.stdout
    assert list(tmp_path.glob("waybill-twin-*/processes/*")) == []


def test_a_kept_service_is_used_again_and_the_next_run_stops_it(tmp_path: Path, project: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    javascript_client(project)
    (project / "use.mjs").write_text(
        'import { runningService } from "waybill-client/testing"; console.log((await runningService()).baseUrl);'
    )
    urls = []
    for kept in ("1", ""):
        own = environ(tmp_path, WAYBILL_TWIN_KEEP=kept)
        urls.append(subprocess.check_output([node, "use.mjs"], cwd=project, env=own, text=True, timeout=200))
    assert urls[0] == urls[1]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{urls[0].strip()}/readyz")
