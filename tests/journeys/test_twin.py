"""The guide "Test your emails": its tests are run by pytest in another project, with the client as it is served."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import orjson
import pytest

from api.routes import client_document
from api.sdk import python_package, wheel
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
    hook.wait_for("delivered")
    seen = []
    hook.hand_to(lambda body, headers: seen.append(body), times=2, seed=1)
    assert len(seen) == 2 * len(hook.posts)
    assert len(set(seen)) == len(hook.posts)


def test_a_mail_that_does_not_come_tells_what_happened(twin):
    twin.client.emails.send(from_=f"hello@{twin.domain}", to="unknown@gmail.sim", subject="Hi", text="Hi")
    with pytest.raises(AssertionError, match="to unknown@gmail.sim is bounced"):
        twin.wait_for_mail("unknown@gmail.sim", timeout=3)
"""


def test_the_examples_of_the_guide_pass(tmp_path: Path) -> None:
    packed = wheel.wheel(python_package.files(orjson.loads(client_document(Settings())), version()), version())
    zipfile.ZipFile(io.BytesIO(packed)).extractall(tmp_path / "client")
    [printed] = [one.text for one in guides()["test-your-emails"].samples if "name=test_emails" in one.words]
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_emails.py").write_text(printed)
    (project / "test_further.py").write_text(FURTHER)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("WAYBILL_", "PYTEST_"))}
    environ = kept | {
        "PYTHONPATH": str(tmp_path / "client"), "TMPDIR": str(tmp_path),
        "WAYBILL_COMMAND": f"{sys.executable} -P -m ops",
    }  # fmt: skip
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=12"]
    done = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout
