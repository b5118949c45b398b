"""`ops sendmail` takes the place of /usr/sbin/sendmail for cron, PHP and mail programs."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ops.commands.sendmail import read
from ops.host.process_specs import ROOT
from tests.harness.accounts import TestAccount, add_key, make_account
from tests.harness.api import Api
from tests.harness.sending import suppress

COMMAND_S = 60.0
CALL = "import sys; from ops.cli import main; sys.exit(main())"


@pytest.fixture
async def account(pool: asyncpg.Pool) -> TestAccount:
    return await make_account(pool)


class Sendmail:
    """The command with the key of an account, as a program that others can call."""

    def __init__(self, api: Api, account: TestAccount, folder: Path) -> None:
        self.program = folder / "sendmail"
        self.program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -c "{CALL}" sendmail "$@"\n')
        self.program.chmod(0o755)
        self.environ = os.environ | {
            "WAYBILL_API_KEY": account.token, "WAYBILL_URL": api.base_url, "HOME": str(folder),
            "WAYBILL_STATE": str(folder),
        }  # fmt: skip

    async def __call__(self, *words: str, given: str | bytes = "") -> "subprocess.CompletedProcess[bytes]":
        return await self.run([str(self.program), *words], given)

    async def run(self, words: list[str], given: str | bytes = "") -> "subprocess.CompletedProcess[bytes]":
        return await asyncio.to_thread(
            subprocess.run,
            words, input=given.encode() if isinstance(given, str) else given, env=self.environ,
            capture_output=True, check=False, timeout=COMMAND_S,
        )  # fmt: skip


@pytest.fixture
def sendmail(api: Api, account: TestAccount, tmp_path: Path) -> Sendmail:
    return Sendmail(api, account, tmp_path)


async def newest(api: Api, account: TestAccount) -> dict[str, Any]:
    """The newest message of the account, with its bodies."""
    listed = (await api.get("/v1/messages?limit=1", account.token)).json["data"]
    return dict((await api.get(f"/v1/messages/{listed[0]['id']}", account.token)).json)


async def raw(api: Api, account: TestAccount) -> bytes:
    found = await newest(api, account)
    return (await api.get(f"/v1/messages/{found['id']}/raw", account.token)).body


async def test_the_addresses_of_the_header_are_sent_to_and_bcc_is_not_shown(
    sendmail: Sendmail, api: Api, account: TestAccount
) -> None:
    mail = f"From: {account.sender}\nTo: ann@people.test\nBcc: eve@people.test\nSubject: Hi\n\nOne\n.\nTwo\n"
    done = await sendmail("-t", "-i", given=mail)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = await newest(api, account)
    assert (found["to"], found["bcc"]) == (["ann@people.test"], ["eve@people.test"])
    assert found["text"].splitlines() == ["One", ".", "Two"]
    assert b"eve@" not in await raw(api, account)


async def test_recipients_may_be_named_and_a_single_dot_ends_the_message_without_i(
    sendmail: Sendmail, api: Api, account: TestAccount
) -> None:
    mail = f"From: {account.sender}\nTo: ann@people.test\nSubject: Hi\n\nOne\n.\nTwo\n"
    assert (await sendmail("bob@people.test", given=mail)).returncode == 0
    found = await newest(api, account)
    assert [one["address"] for one in found["recipients"]] == ["bob@people.test"]
    assert found["text"].splitlines() == ["One"]

    assert (await sendmail("-ti", "bob@people.test", given=mail)).returncode == 0
    found = await newest(api, account)
    assert {one["address"] for one in found["recipients"]} == {"ann@people.test", "bob@people.test"}
    assert found["text"].splitlines() == ["One", ".", "Two"]


async def test_the_mail_of_cron_gets_the_sender_of_f(sendmail: Sendmail, api: Api, account: TestAccount) -> None:
    """Debian's cron calls its sendmail with these words; -f comes from the script that stands in for it."""
    mail = "From: root (Cron Daemon)\nTo: ops@people.test\nSubject: Cron <root@host> backup\n\nIt failed.\n"
    words = ("-i", "-FCronDaemon", "-B8BITMIME", "-oem", "ops@people.test")

    assert (await sendmail("-f", account.sender, *words, given=mail)).returncode == 0
    found = await newest(api, account)
    assert (found["from"], found["subject"]) == (f"CronDaemon <{account.sender}>", "Cron <root@host> backup")
    refused = await sendmail(*words, given=mail)
    assert refused.returncode == os.EX_DATAERR
    assert b"Give one with -f" in refused.stderr


async def test_php_mails(sendmail: Sendmail, api: Api, account: TestAccount) -> None:
    php = shutil.which("php")
    if php is None:
        pytest.skip("php is not installed")
    call = "exit(mail('ann@people.test', 'Grüße', \"One\\nTwo\", ['Reply-To' => 'help@people.test']) ? 0 : 1);"
    path = f"{sendmail.program} -t -i -f {account.sender}"
    done = await sendmail.run([php, "-d", f"sendmail_path={path}", "-r", call])

    assert done.returncode == 0, done.stdout + done.stderr
    found = await newest(api, account)
    assert (found["from"], found["replyTo"], found["subject"]) == (account.sender, "help@people.test", "Grüße")
    assert found["text"].splitlines() == ["One", "Two"]


async def test_mutt_sends_with_its_default_words(sendmail: Sendmail, api: Api, account: TestAccount) -> None:
    mutt = shutil.which("mutt")
    if mutt is None:
        pytest.skip("mutt is not installed")
    own = sendmail.program.with_name("muttrc")
    own.write_text(f'set sendmail="{sendmail.program} -oem -oi"\nset from="{account.sender}"\nset copy=no\n')
    done = await sendmail.run([mutt, "-n", "-F", str(own), "-s", "Hello", "ann@people.test"], "It works.\n")

    assert done.returncode == 0, done.stdout + done.stderr
    assert (await newest(api, account))["subject"] == "Hello"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
async def test_a_text_without_header_is_sent_as_it_is(
    sendmail: Sendmail, api: Api, account: TestAccount, ending: str
) -> None:
    text = f"Disk full: /var{ending}{ending}Now."
    assert (await sendmail("-f", account.sender, "ann@people.test", given=text)).returncode == 0
    assert (await newest(api, account))["text"].splitlines() == ["Disk full: /var", "", "Now."]


async def test_a_refusal_says_why_in_the_statuses_of_sendmail(
    sendmail: Sendmail, api: Api, pool: asyncpg.Pool, account: TestAccount
) -> None:
    await suppress(pool, account, "gone@people.test")
    mail = f"From: {account.sender}\nSubject: Hi\n\nHi\n"
    refused = await sendmail("gone@people.test", given=mail)
    assert refused.returncode == os.EX_DATAERR
    assert b"[suppressed]" in refused.stderr

    local = await sendmail("root", given=mail)
    assert local.returncode == os.EX_NOUSER
    assert b"The recipient root has no domain" in local.stderr

    sendmail.environ["WAYBILL_API_KEY"] = await add_key(pool, account.id, scopes=["messages:read"])
    assert (await sendmail("ann@people.test", given=mail)).returncode == os.EX_NOPERM
    sendmail.environ["WAYBILL_URL"] = "http://127.0.0.1:9"
    away = await sendmail("ann@people.test", given=mail)
    assert away.returncode == os.EX_TEMPFAIL
    assert b"127.0.0.1:9 can't be reached" in away.stderr
    del sendmail.environ["WAYBILL_API_KEY"]
    without = await sendmail("ann@people.test", given=mail)
    assert without.returncode == os.EX_CONFIG
    assert b"Set WAYBILL_API_KEY" in without.stderr


async def test_options_that_write_files_or_read_settings_are_refused(
    sendmail: Sendmail, account: TestAccount, tmp_path: Path
) -> None:
    """A script that passes a visitor's text to mail() lets them add words; sendmail's -X and -C then do harm."""
    mail = f"From: {account.sender}\nSubject: Hi\n\n<?php phpinfo();\n"
    log = tmp_path / "shell.php"
    for words in (("-X", str(log)), (f"-X{log}",), ("-C", "/etc/passwd"), ("-bd",)):
        assert (await sendmail(*words, "ann@people.test", given=mail)).returncode == 2, words
    assert not log.exists()


@pytest.mark.parametrize(
    ("given", "fields", "body"),
    [
        (b"A: 1\nB: 2\n\nx\n", [b"A: 1", b"B: 2"], b"x\r\n"),
        (b"A: 1\r\n 2\r\n\r\nx", [b"A: 1\r\n 2"], b"x\r\n"),
        (b"From ann Sat Nov 28\nA: 1\n\nx\n", [b"A: 1"], b"x\r\n"),
        (b"A: 1\nno field\n", [b"A: 1"], b"no field\r\n"),
        (b"\nA: 1\n", [], b"A: 1\r\n"),
        (b"A: 1\n", [b"A: 1"], b""),
        (b"A: 1\n\n.\nx\n", [b"A: 1"], b""),
        (b"", [], b""),
    ],
)
def test_header_and_body_are_told_apart(given: bytes, fields: list[bytes], body: bytes) -> None:
    assert read(given, ends_at_dot=True) == (fields, body)
