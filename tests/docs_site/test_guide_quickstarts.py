"""The quickstarts send what they say: each printed program runs with the real framework, or what of it is installed.

Express, FastAPI, Symfony Mailer (Laravel's), the gem mail (Action Mailer's) and Jackson are looked for where `.ci/run`
puts them; a test without its framework is left out and says so.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from email.utils import parseaddr
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from engine.events.webhooks.rules import signature
from loadtests.ports import reserve_port
from tests.harness import printed_programs
from tests.harness.accounts import TestAccount
from tests.harness.api import Api
from tests.harness.guides import guides
from tests.harness.patience import PATIENCE_S
from tests.mta.submission.test_clients import PHP, PYTHON_PACKAGES

JAVA_JARS = Path("/usr/share/java")
JACKSON = [JAVA_JARS / f"jackson-{name}.jar" for name in ("core", "annotations", "databind")]


def printed(slug: str, name: str, account: TestAccount) -> str:
    """Return the file of a guide with this label, with the account's sender."""
    [found] = [one.text for one in guides()[slug].samples if f"name={name}" in one.words]
    return found.replace("hello@hello.test", account.sender)


@pytest.fixture
def environ(api_url: str, account: TestAccount) -> dict[str, str]:
    return {"WAYBILL_URL": api_url, "WAYBILL_API_KEY": account.token, "WAYBILL_SIGNING_SECRET": "whsec_x"}


async def messages(api: Api, account: TestAccount) -> list[Any]:
    listed = (await api.get("/v1/messages", account.token)).json["data"]
    return [(await api.get(f"/v1/messages/{one['id']}", account.token)).json for one in reversed(listed)]


@contextlib.asynccontextmanager
async def server(words: list[str], port: int, folder: Path, environ: dict[str, str]) -> AsyncIterator[str]:
    """A program that listens on `port`; yields its base URL."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *words, cwd=folder, env={**os.environ, "NO_PROXY": "*", **environ}, stdout=out, stderr=out
        )
    try:
        async with asyncio.timeout(PATIENCE_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)  # a process says nowhere that it listens
        assert process.returncode is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def order_receipts(url: str) -> list[tuple[int, Any]]:
    """Post the form of the guides twice, then with an address that is suppressed, then with none."""
    orders = [*[("4711", "ann@people.test")] * 2, ("4712", "gone@people.test"), ("4713", "nobody")]
    found = []
    async with aiohttp.ClientSession() as session:
        for number, address in orders:
            async with session.post(f"{url}/orders/{number}/receipt", data={"email": address}) as response:
                found.append((response.status, await response.json()))
    return found


async def receipts_are_sent_once(url: str, api: Api, account: TestAccount) -> None:
    await api.post("/v1/suppressions", account.token, {"address": "gone@people.test"})
    first, again, *refused = await order_receipts(url)
    [message] = await messages(api, account)
    assert first == again == (202, {"message": message["id"]})
    assert (message["subject"], message["to"]) == ("Receipt 4711", ["ann@people.test"])
    assert [status for status, _ in refused] == [422, 422]


async def test_express(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    folders = [Path(one) for one in os.environ.get("NODE_PATH", "").split(":")]
    express = next((one for one in folders if (one / "express").is_dir()), None)
    if express is None:
        pytest.skip("the npm package express is not where Node looks (NODE_PATH)")
    (tmp_path / "node_modules").symlink_to(express)  # modules of ECMAScript don't look at NODE_PATH
    (tmp_path / "app.mjs").write_text(printed("express", "app.mjs", account))
    port = reserve_port()
    async with server(["node", "app.mjs"], port, tmp_path, environ | {"PORT": str(port)}) as url:
        await receipts_are_sent_once(url, api, account)


async def test_fastapi(
    api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path, package_folder: Path
) -> None:
    path = f"{package_folder}:{os.environ.get(PYTHON_PACKAGES, '')}"
    has = subprocess.run(
        [sys.executable, "-c", "import fastapi, uvicorn, multipart"], env={**os.environ, "PYTHONPATH": path},
        check=False, capture_output=True,
    )  # fmt: skip
    if has.returncode:
        pytest.skip(f"FastAPI is not installed in the folder {PYTHON_PACKAGES}")
    (tmp_path / "app.py").write_text(printed("fastapi", "app.py", account))
    port = reserve_port()
    words = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    async with server(words, port, tmp_path, environ | {"PYTHONPATH": path}) as url:
        await receipts_are_sent_once(url, api, account)


NEXT = """
const { POST } = await import(process.argv[2]);
const [body, headers] = JSON.parse(process.argv[3]);
const response = await POST(new Request("http://127.0.0.1/", { method: "POST", body, headers }));
console.log(response.status, await response.text());
"""


async def test_nextjs(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    """Route handlers are functions of a standard Request; Node calls them as Next.js does."""

    async def called(name: str, body: str, headers: dict[str, str]) -> str:
        file = tmp_path / "route.mjs"
        file.write_text(printed("nextjs", name, account))
        program = NEXT.replace("process.argv[2]", json.dumps(str(file)))
        program = program.replace("JSON.parse(process.argv[3])", json.dumps([body, headers]))
        return (await printed_programs.run("js", program, tmp_path, environ)).out

    form = json.dumps({"email": "ann@people.test", "message": "It works.", "id": "4711"})
    sent = await called("app/api/contact/route.js", form, {})
    [message] = await messages(api, account)
    assert sent.split() == ["202", f'{{"message":"{message["id"]}"}}']
    assert message["to"] == ["support@example.com"]
    event = '{"id":"evt_1","type":"delivered","data":{"messageId":"msg_1"}}'
    good = signature("whsec_x", event.encode(), int(time.time()))
    assert "204" in await called("app/api/hooks/waybill/route.js", event, {"Service-Signature": good})
    assert "400" in await called("app/api/hooks/waybill/route.js", event, {"Service-Signature": good + "0"})


async def test_go(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    text = printed("go", "main.go", account)
    ended = [await printed_programs.run("go", text, tmp_path, environ) for _ in range(2)]

    [message] = await messages(api, account)
    assert [one.out.strip() for one in ended] == [message["id"]] * 2
    refused = await printed_programs.run(
        "go", text.replace("ann@example.com", "nobody").replace("receipt-", "x-"), tmp_path, environ
    )
    assert "invalid_address" in refused.out


RAILS = r"""
require "mail"
require "socket"
mail = Mail.new(from: "Shop <SENDER>", to: "Ann Ünal <ann@people.test>", cc: "bob@people.test",
                reply_to: ["help@people.test", "Desk <desk@people.test>"], subject: "Receipt 4711")
mail.text_part = Mail::Part.new { body "Thank you." }
mail.html_part = Mail::Part.new { content_type "text/html; charset=UTF-8"; body "<p>Thank you.</p>" }
mail.attachments["receipt.txt"] = "Total: 9.50"
mail.attachments.inline["logo.gif"] = "GIF89a"
mail.header["X-Waybill-Idempotency-Key"] = "receipt-4711"
mail.header["X-Waybill-Tag"] = "receipt, eu"
2.times { WaybillDelivery.new({ url: ENV["WAYBILL_URL"], api_key: ENV["WAYBILL_API_KEY"] }).deliver!(mail) }
cid = mail.attachments["logo.gif"].cid
mail.header["X-Waybill-Idempotency-Key"] = nil
mail.to = "gone@people.test"
begin
  WaybillDelivery.new({ url: ENV["WAYBILL_URL"], api_key: ENV["WAYBILL_API_KEY"] }).deliver!(mail)
rescue WaybillDelivery::Unavailable
  puts "to be retried"
rescue WaybillDelivery::Rejected => error
  puts error.message, [error.type, error.status].join(" ")
end
proxy = TCPServer.new("127.0.0.1", 0)
Thread.new do
  one = proxy.accept
  length = 0
  while (line = one.gets) != "\r\n"
    length = line[/\d+/].to_i if line.downcase.start_with?("content-length:")
  end
  one.read(length)
  one.write "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 11\r\nConnection: close\r\n\r\n<h1>502</h1"
  one.close
end
begin
  WaybillDelivery.new({ url: "http://127.0.0.1:#{proxy.addr[1]}", api_key: "x" }).deliver!(mail)
rescue WaybillDelivery::Unavailable => error
  puts error.message, error.status
end
puts cid
"""


async def test_rails(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    """Action Mailer hands a message of the gem mail to its delivery method."""
    if shutil.which("ruby") is None or subprocess.run(["ruby", "-e", "require 'mail'"], check=False).returncode:
        pytest.skip("Debian's ruby-mail is not installed")
    await api.post("/v1/suppressions", account.token, {"address": "gone@people.test"})
    text = printed("rails", "waybill_delivery.rb", account) + RAILS.replace("SENDER", account.sender)
    ended = await printed_programs.run("ruby", text, tmp_path, environ)

    refused, kind, *broken, cid = ended.out.splitlines()
    assert (refused.startswith("suppressed: "), kind) == (True, "suppressed 422"), ended.out
    assert broken == ["HTTP 502 (request )", "502"]
    message, raw = await is_the_receipt(api, account, "logo.gif")
    assert (message["to"], message["tags"]) == (["Ann Ünal <ann@people.test>"], ["receipt", "eu"])
    assert all(one in raw for one in (b"Desk <desk@people.test>", f"Content-ID: <{cid}>".encode(), b"=?utf-8?"))


async def is_the_receipt(api: Api, account: TestAccount, *inline: str) -> tuple[Any, bytes]:
    [message] = await messages(api, account)
    assert ([parseaddr(one)[1] for one in message["to"]], message["cc"]) == (["ann@people.test"], ["bob@people.test"])
    assert (message["text"].strip(), message["html"].strip()) == ("Thank you.", "<p>Thank you.</p>")
    assert [one["filename"] for one in message["attachments"]] == ["receipt.txt", *inline]
    raw = (await api.get(f"/v1/messages/{message['id']}/raw", account.token)).body
    assert b"Reply-To: help@people.test" in raw
    assert b"From: Shop <" in raw or b'From: "Shop" <' in raw
    return message, raw


LARAVEL = """
require '/usr/share/php/Symfony/Component/Mailer/autoload.php';
$transport = new App\\Mail\\WaybillTransport(getenv('WAYBILL_URL'), getenv('WAYBILL_API_KEY'));
$mailer = new Symfony\\Component\\Mailer\\Mailer($transport);
$email = (new Symfony\\Component\\Mime\\Email())->from('Shop <SENDER>')->to('ann@people.test')->cc('bob@people.test')
    ->replyTo('help@people.test', 'desk@people.test')->subject('Receipt 4711')->text('Thank you.')
    ->html('<p>Thank you.</p>')->attach('Total: 9.50', 'receipt.txt', 'text/plain')
    ->embed('GIF89a', 'logo', 'image/gif');
$email->getHeaders()->addTextHeader('X-Order', '4711')
    ->add(new Symfony\\Component\\Mailer\\Header\\TagHeader('receipt'))
    ->add(new Symfony\\Component\\Mailer\\Header\\MetadataHeader('order', '4711'));
$email->getHeaders()->addTextHeader('X-Waybill-Idempotency-Key', 'receipt-4711');
$mailer->send($email);
$mailer->send($email);
$email->getHeaders()->remove('X-Waybill-Idempotency-Key');
try {
    $mailer->send($email->to('gone@people.test'));
} catch (Symfony\\Component\\Mailer\\Exception\\TransportException $error) {
    echo $error->getMessage();
}
"""


async def test_laravel(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    """Laravel hands a message of Symfony to its transport."""
    if not (PHP / "Symfony/Component/Mailer").is_dir():
        pytest.skip("Debian's php-symfony-mailer is not installed")
    await api.post("/v1/suppressions", account.token, {"address": "gone@people.test"})
    (tmp_path / "WaybillTransport.php").write_text(printed("laravel", "WaybillTransport.php", account))
    setup = LARAVEL.replace("SENDER", account.sender).splitlines()
    text = "\n".join(["<?php", setup[1], "require 'WaybillTransport.php';", *setup[2:]])
    ended = await printed_programs.run("php", text, tmp_path, environ)

    assert ended.out.startswith("suppressed: "), ended.out
    message, raw = await is_the_receipt(api, account, "logo")
    assert (message["tags"], message["metadata"]) == (["receipt"], {"order": "4711"})
    assert all(one in raw for one in (b"X-Order: 4711", b"desk@people.test", b"Content-ID: <logo>"))


ANNOTATION = """package {package};
@java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
public @interface {name} {{ String value() default ""; }}
"""
ANNOTATIONS = (
    ("org.springframework.beans.factory.annotation", "Value"), ("org.springframework.stereotype", "Service"),
    ("org.springframework.stereotype", "Component"),
)  # fmt: skip
RUNNER = """package org.springframework.boot;
public interface CommandLineRunner { void run(String... args) throws Exception; }
"""
SPRING = """
import java.util.Map;

public class Main {
    public static void main(String[] words) throws Exception {
        var emails = new WaybillEmails(System.getenv("WAYBILL_URL"), System.getenv("WAYBILL_API_KEY"));
        for (int at = 0; at < 2; at++) {
            new SendReceipt(emails).run();
        }
        emails.send(Map.of("from", "nobody"));
    }
}
"""


async def test_spring(api: Api, account: TestAccount, environ: dict[str, str], tmp_path: Path) -> None:
    """Spring only makes the objects and passes their values: its names are declared here, and it is not run."""
    if shutil.which("javac") is None or not all(one.exists() for one in JACKSON):
        pytest.skip("a JDK or Debian's libjackson2-databind-java is not installed")
    for package, name in ANNOTATIONS:
        file = tmp_path / package.replace(".", "/") / f"{name}.java"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ANNOTATION.format(package=package, name=name))
    runner = tmp_path / "org/springframework/boot/CommandLineRunner.java"
    runner.parent.mkdir()
    runner.write_text(RUNNER)
    for name in ("WaybillEmails.java", "SendReceipt.java"):
        (tmp_path / name).write_text(printed("spring", name, account))
    (tmp_path / "Main.java").write_text(SPRING)
    path = ":".join(map(str, [tmp_path, *JACKSON]))
    made = await asyncio.to_thread(
        subprocess.run, ["javac", "-cp", path, "Main.java"], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    ended = await asyncio.to_thread(
        subprocess.run, ["java", "-cp", path, "Main"], cwd=tmp_path, check=False, capture_output=True, text=True,
        env={**os.environ, **environ},
    )  # fmt: skip

    [message] = await messages(api, account)
    assert ended.stdout.split() == [message["id"]] * 2, ended.stderr
    assert "java.io.IOException: invalid_" in ended.stderr
