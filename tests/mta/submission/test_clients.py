"""The common SMTP clients send with their defaults: told a host and a port, without TLS and login.

Each is the real program or library; a test whose client is not installed is left out and says which.
"""

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
from msgspec import Struct

from engine.base.local_mode import FIRST_RUN
from engine.base.settings import Settings
from ops.host.process_specs import ROOT
from ops.local import certificate
from tests.harness.accounts import TestAccount, make_account
from tests.harness.submission import TestRelay, relaying
from tests.mta.submission.stored import count

PROGRAMS: Final = ROOT / "tests" / "data" / "smtp_clients"
PHP: Final = Path("/usr/share/php")  # where Debian's packages put libraries, as the programs name them
JAVAMAIL: Final = Path("/usr/share/java/javax.mail.jar")
PYTHON_PACKAGES: Final = "TEST_CLIENTS_PYTHONPATH"  # a folder with Python packages that the tests' environment lacks
CLIENT_S: Final = 120.0  # Go and Java compile first, on a busy machine
MESSAGE: Final = "Subject: Hello\r\n\r\nIt works.\r\n"


class Sending(Struct, frozen=True):
    """The settings of a client: server, addresses, the certificate to trust, and a folder for its files."""

    host: str
    port: int
    sender: str
    recipient: str
    trusted: Path
    folder: Path

    @property
    def words(self) -> list[str]:
        return [self.host, str(self.port), self.sender, self.recipient]


class Command(Struct, frozen=True):
    """The command line of a client, and its standard input."""

    words: list[str]
    stdin: str = ""


def program(name: str) -> str:
    """Return the path of a program; skip the test if it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def python(file: str, package: str | None = None) -> Callable[[Sending], Command]:
    def command(sending: Sending) -> Command:
        if package is not None and _run([sys.executable, "-c", f"import {package}"]).returncode:
            pytest.skip(f"the Python package {package} is not installed, nor in the folder {PYTHON_PACKAGES}")
        return Command([sys.executable, str(PROGRAMS / file), *sending.words])

    return command


def node(file: str) -> Callable[[Sending], Command]:
    def command(sending: Sending) -> Command:
        if _run([program("node"), "-e", "require.resolve('nodemailer')"]).returncode:
            pytest.skip("the npm package nodemailer is not where Node looks (NODE_PATH)")
        return Command(["node", str(PROGRAMS / file), *sending.words])

    return command


def php(file: str, library: str, package: str) -> Callable[[Sending], Command]:
    def command(sending: Sending) -> Command:
        if not (PHP / library).is_dir():
            pytest.skip(f"Debian's {package} is not installed")
        return Command([program("php"), str(PROGRAMS / file), *sending.words])

    return command


def go(sending: Sending) -> Command:
    return Command([program("go"), "run", str(PROGRAMS / "send.go"), *sending.words])


def ruby_mail(sending: Sending) -> Command:
    if _run([program("ruby"), "-e", "require 'mail'"]).returncode:
        pytest.skip("Debian's ruby-mail is not installed")
    return Command(["ruby", str(PROGRAMS / "ruby_mail_send.rb"), *sending.words])


def javamail(sending: Sending) -> Command:
    if not JAVAMAIL.exists():
        pytest.skip("Debian's libmail-java is not installed")
    return Command([program("java"), "-cp", str(JAVAMAIL), str(PROGRAMS / "Send.java"), *sending.words])


def curl(sending: Sending) -> Command:
    url = f"smtp://{sending.host}:{sending.port}"
    words = ["-sS", url, "--mail-from", sending.sender, "--mail-rcpt", sending.recipient, "--upload-file", "-"]
    return Command([program("curl"), *words], f"From: {sending.sender}\r\nTo: {sending.recipient}\r\n{MESSAGE}")


def msmtp(sending: Sending) -> Command:
    words = [f"--host={sending.host}", f"--port={sending.port}", f"--from={sending.sender}", sending.recipient]
    text = f"From: {sending.sender}\nTo: {sending.recipient}\n{MESSAGE}".replace("\r", "")
    return Command([program("msmtp"), "--file=/dev/null", *words], text)


def mutt(sending: Sending) -> Command:
    """Mutt uses STARTTLS although it is not offered (`ssl_force_tls`), so it is told the certificate to trust."""
    settings = {
        "smtp_url": f"smtp://{sending.host}:{sending.port}/", "from": sending.sender, "copy": "no",
        "ssl_ca_certificates_file": sending.trusted,
    }  # fmt: skip
    own = sending.folder / "muttrc"
    own.write_text("".join(f'set {name}="{value}"\n' for name, value in settings.items()))
    return Command([program("mutt"), "-n", "-F", str(own), "-s", "Hello", sending.recipient], "It works.\n")


def swaks(sending: Sending) -> Command:
    server = ["--server", f"{sending.host}:{sending.port}"]
    return Command([program("swaks"), *server, "--from", sending.sender, "--to", sending.recipient])


CLIENTS: Final[dict[str, Callable[[Sending], Command]]] = {
    "smtplib": python("smtplib_send.py"),
    "Django": python("django_send.py", "django"),
    "aiosmtplib": python("aiosmtplib_send.py", "aiosmtplib"),
    "Go": go,
    "nodemailer": node("nodemailer_send.cjs"),
    "PHPMailer": php("phpmailer_send.php", "libphp-phpmailer", "libphp-phpmailer"),
    "Symfony": php("symfony_send.php", "Symfony/Component/Mailer", "php-symfony-mailer"),
    "ruby-mail": ruby_mail,
    "JavaMail": javamail,
    "msmtp": msmtp,
    "mutt": mutt,
    "curl": curl,
    "swaks": swaks,
}


@pytest.fixture(scope="module")
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


@pytest.fixture(scope="module")
async def relay(
    settings: Settings, account: TestAccount, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TestRelay]:
    folder = tmp_path_factory.mktemp("clients")
    (folder / FIRST_RUN).write_bytes(msgspec.json.encode({"apiKey": account.token, "domain": account.domain}))
    own = msgspec.structs.replace(settings, state=folder)
    async with relaying(own, certificate.folder_of(folder, "relay"), submission_open=None) as running:
        yield running


def trusted(relay: TestRelay) -> Path:
    return certificate.path_in(certificate.folder_of(relay.settings.state, "relay"))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_sends_with_its_defaults(
    client: str, relay: TestRelay, pool: asyncpg.Pool, account: TestAccount, tmp_path: Path
) -> None:
    sending = Sending("localhost", relay.port, account.sender, "ann@people.test", trusted(relay), tmp_path)
    before = await count(pool, account)

    await _send(CLIENTS[client](sending), tmp_path)

    assert await count(pool, account) == before + 1


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("client", ["smtplib_tls_send.py", "nodemailer_tls_send.cjs", "curl"])
async def test_a_client_that_checks_certificates_trusts_the_file_that_is_printed(
    client: str, host: str, relay: TestRelay, pool: asyncpg.Pool, account: TestAccount, tmp_path: Path
) -> None:
    file = trusted(relay)
    trusting = {"SSL_CERT_FILE": str(file), "NODE_EXTRA_CA_CERTS": str(file), "KEY": account.token}
    sending = Sending(host, relay.tls_port, account.sender, "ann@people.test", file, tmp_path)
    ways = {"curl": _curl_with_tls, "nodemailer_tls_send.cjs": node(client), "smtplib_tls_send.py": python(client)}
    before = await count(pool, account)

    await _send(ways[client](sending), tmp_path, trusting)

    assert await count(pool, account) == before + 1


def _curl_with_tls(sending: Sending) -> Command:
    made = curl(sending)
    words = [word.replace("smtp://", "smtps://") for word in made.words]
    return Command(["sh", "-c", 'exec "$@" --cacert "$SSL_CERT_FILE" --user "apikey:$KEY"', "sh", *words], made.stdin)


async def _send(command: Command, folder: Path, environ: dict[str, str] | None = None) -> None:
    done = await asyncio.to_thread(_run, command.words, command.stdin, folder, environ)
    assert done.returncode == 0, done.stdout + done.stderr


def _run(
    words: list[str], stdin: str = "", folder: Path | None = None, environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a client in a home folder of its own, so that no settings of this user count."""
    home = {} if folder is None else {"HOME": str(folder), "GOFLAGS": "-modcacherw"}
    more = os.environ.get(PYTHON_PACKAGES)
    paths = {} if more is None else {"PYTHONPATH": more}
    return subprocess.run(
        words, input=stdin, env=os.environ | home | paths | (environ or {}),
        capture_output=True, check=False, text=True, timeout=CLIENT_S,
    )  # fmt: skip
