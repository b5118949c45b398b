"""The recipes of the SMTP guide, run as they are printed: over TLS, with an API key, by the real client."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import asyncpg
import msgspec
import pytest

from api.http.service_addresses import filled
from engine.base.settings import Settings
from ops.local import certificate
from tests.harness.accounts import TestAccount, make_account
from tests.harness.guides import guides
from tests.harness.submission import TestRelay, relaying
from tests.mta.submission.stored import count

PHPMAILER: Final = Path("/usr/share/php/libphp-phpmailer/autoload.php")
CLIENT_S: Final = 60.0
TO: Final = "ann@people.test"
MESSAGE: Final = f"From: root\nTo: {TO}\nSubject: Disk\n\nAlmost full.\n"
WORDPRESS: Final = """<?php
define('WAYBILL_API_KEY', getenv('WAYBILL_API_KEY'));
require '%s';
$mailer = new PHPMailer\\PHPMailer\\PHPMailer(true);
function add_action($name, $change) { $change($GLOBALS['mailer']); }
function add_filter($name, $value) { $GLOBALS['mailer']->setFrom($value()); }
require 'waybill.php';
$mailer->addAddress('%s');
$mailer->Subject = 'Hello';
$mailer->Body = 'It works.';
$mailer->send();
"""
RAILS: Final = """require 'mail'
require 'ostruct'
config = OpenStruct.new(action_mailer: OpenStruct.new)
%s
settings = config.action_mailer.smtp_settings
Mail.defaults { delivery_method config.action_mailer.delivery_method, settings }
Mail.deliver { from ENV['SENDER']; to '%s'; subject 'Hello'; body 'It works.' }
"""


@pytest.fixture(scope="module")
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture(scope="module")
async def relay(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestRelay]:
    own = msgspec.structs.replace(settings, state=tmp_path_factory.mktemp("recipes"))
    async with relaying(own, certificate.folder_of(own.state, "relay")) as running:
        yield running


Recipe = Callable[[Callable[[str, str], str], Path], list[str]]  # writes files to a folder, returns the command line


def python(printed: Callable[[str, str], str], folder: Path) -> list[str]:
    (folder / "send.py").write_text(printed("python", "smtplib.SMTP"))
    return [sys.executable, "send.py"]


def nodemailer(printed: Callable[[str, str], str], folder: Path) -> list[str]:
    found = subprocess.run(
        ["node", "-p", "require.resolve('nodemailer')"], capture_output=True, text=True, check=False
    ) if shutil.which("node") else None  # fmt: skip
    if found is None or found.returncode:
        pytest.skip("the npm package nodemailer is not where Node looks (NODE_PATH)")
    package = Path(found.stdout.strip())
    (folder / "node_modules").symlink_to(next(one for one in package.parents if one.name == "nodemailer").parent)
    (folder / "send.mjs").write_text(printed("js", "createTransport"))
    return ["node", "send.mjs"]


def wordpress(printed: Callable[[str, str], str], folder: Path) -> list[str]:
    if not PHPMAILER.exists():
        pytest.skip("Debian's libphp-phpmailer is not installed")
    (folder / "waybill.php").write_text(printed("php", "phpmailer_init"))
    (folder / "send.php").write_text(WORDPRESS % (PHPMAILER, TO))
    return ["php", "send.php"]


def rails(printed: Callable[[str, str], str], folder: Path) -> list[str]:
    if shutil.which("ruby") is None or subprocess.run(["ruby", "-e", "require 'mail'"], check=False).returncode:
        pytest.skip("Debian's ruby-mail is not installed")
    (folder / "send.rb").write_text(RAILS % (printed("ruby", "action_mailer"), TO))
    return ["ruby", "send.rb"]


def msmtp(printed: Callable[[str, str], str], folder: Path) -> list[str]:
    if shutil.which("msmtp") is None:
        pytest.skip("msmtp is not installed")
    (folder / "msmtprc").write_text(printed("text", "passwordeval"))
    (folder / "msmtprc").chmod(0o600)
    return ["msmtp", "--file=msmtprc", "-t"]


@pytest.mark.parametrize("recipe", [python, nodemailer, wordpress, rails, msmtp])
async def test_a_recipe_of_the_guide_sends_with_a_login(
    recipe: Recipe, relay: TestRelay, pool: asyncpg.Pool, account: TestAccount, tmp_path: Path
) -> None:
    trusted = certificate.path_in(certificate.folder_of(relay.settings.state, "relay"))
    (tmp_path / "key").write_text(account.token)
    replaced = {
        "hello@example.com": account.sender, "server@example.com": account.sender, "ann@example.net": TO,
        "svc_live_…": account.token, "/etc/waybill-api-key": str(tmp_path / "key"),
        "tls_trust_file system": f"tls_trust_file {trusted}",
    }  # fmt: skip

    def printed(language: str, word: str) -> str:
        """Return the only sample of the guide in this language with this word, for this server and account."""
        [text] = [one.text for one in guides()["smtp"].samples if one.language == language and word in one.text]
        text = filled(text, relay.settings)
        for example, own in replaced.items():
            text = text.replace(example, own)
        return text

    command = recipe(printed, tmp_path)
    environ = os.environ | {
        "WAYBILL_API_KEY": account.token, "SENDER": account.sender, "SSL_CERT_FILE": str(trusted),
        "NODE_EXTRA_CA_CERTS": str(trusted), "HOME": str(tmp_path),
    }  # fmt: skip
    before = await count(pool, account)

    done = await asyncio.to_thread(
        subprocess.run, command, input=MESSAGE, env=environ, cwd=tmp_path,
        capture_output=True, check=False, text=True, timeout=CLIENT_S,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert await count(pool, account) == before + 1
