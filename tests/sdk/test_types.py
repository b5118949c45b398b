"""The types of both clients: the first examples of the guides pass strict checkers, and mistakes are found."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.guides import guides
from tests.sdk.node_tools import npm_tool

RIGHT = """
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from waybill_client import AsyncWaybill, Waybill, types, verify_certificate, webhooks

client = Waybill("svc_live_x", base_url="https://mail.test")
reply = client.emails.send(from_="a@b.test", to=["c@d.test"], subject="x", scheduled_at=datetime.now(UTC))
sent: str = reply["id"]
plain: types.SendReply = client.emails.send(from_="a@b.test", to="c@d.test", text="x", dry_run=False)
dry: types.DryRunReply = client.emails.send(from_="a@b.test", to="c@d.test", text="x", dry_run=True)
subject: str = client.emails.send_raw(b"", dry_run=True)["message"]["subject"]

def either(*, dry_run: bool) -> str:
    return client.emails.send(from_="a@b.test", to="c@d.test", text="x", dry_run=dry_run)["status"]

name: str = reply["status"]
page: types.MessagePage = client.messages.list(status="bounced", tag=["x"])
seen: list[str] = [one["id"] for one in client.messages.iterate(limit=100)]
event: webhooks.WebhookEvent = webhooks.verify(b"{}", "t=1,v1=x", "whsec")
if event["type"] == "bounced":
    bounced: bool = event["data"]["detail"]["suppressed"]
    order: str | None = event.get("metadata", {}).get("order")
    tags: list[str] = event.get("tags", [])
client.webhooks.create(url="https://a.test/hook", include_metadata=True)
for pulled in client.events.list(after="latest")["data"]:
    if pulled["type"] == "deferred":
        recipient: str = pulled["detail"]["recipient"]
for step in client.messages.get("msg_x")["waybill"]:
    if step["type"] == "attempted":
        host: str | None = step["detail"]["mx"]

def handle(event: types.WebhookEvent) -> None:
    if event["type"] == "inbound.received":
        print(event["data"]["detail"]["inbound_message_id"].upper())

certificate: types.DeliveryCertificate = client.messages.certificate("msg_x")
outcome: str = verify_certificate(certificate, b"{}", message=b"").statement["recipients"][0]["outcome"]
position: int = client.events.catch_up(0, handle, type=["inbound.received"])

async def follow(client: AsyncWaybill) -> AsyncIterator[str]:
    async for event in client.events.tail(type=["delivered"]):
        yield event["type"]
"""
WRONG = """
from waybill_client import Waybill

client = Waybill("svc_live_x", base_url="https://mail.test")
client.emails.send(from_="a@b.test")
client.messages.list(status="lost")
client.messages.get(7)
client.account.get()["nothing"]
client.emails.send(from_="a@b.test", to="c@d.test", text="x", dry_run=True)["id"]["x"]
for event in client.messages.get("msg_x")["waybill"]:
    if event["type"] == "attempted":
        event["detail"]["suppressed"]
"""
TYPED = """
import { ApiError, SuppressedError, Waybill } from "./waybill.mjs";
import type { DryRunReply, SendReply, WebhookEvent } from "./waybill.mjs";
import { openTwin } from "./testing.mjs";
import { verifyCertificate } from "./certificates.mjs";
import { verify } from "./webhooks.mjs";

const client = new Waybill();
const fields = { from: "a@b.test", to: "c@d.test", text: "x" };
const sent: SendReply = await client.emails.send(fields);
const subject: string = (await client.emails.send({ ...fields, dryRun: true })).message.subject;
const either: SendReply | DryRunReply = await client.emails.send({ ...fields, dryRun: Math.random() > 0.5 });
for await (const message of client.messages.iterate({ status: "bounced" })) console.log(message.id, subject, either);
const handle = (event: WebhookEvent) => {
  if (event.type === "bounced") console.log(event.data.detail.suppressed ? event.data.detail.recipient.trim() : "");
  if (event.type === "bounced") console.log(event.tags?.length, event.metadata?.order?.trim());
};
handle(await verify("{}", "t=1,v1=x", "whsec"));
const position: number = await client.events.catchUp(0, handle, { type: ["bounced"] });
for (const event of (await client.events.list({ after: position })).data)
  if (event.type === "deferred") console.log(event.detail.recipient.trim());
for (const event of (await client.messages.get(sent.id)).waybill)
  if (event.type === "attempted") console.log(event.detail.mx?.trim());
const proven = await verifyCertificate(await client.messages.certificate(sent.id), "{}", { recipient: "c@d.test" });
console.log(proven.recipient?.outcome.trim(), proven.statement.content?.headerSha256.from, proven.key.kid.trim());
try {
  await client.messages.get(sent.id);
} catch (error) {
  if (error instanceof SuppressedError) console.log(error.address, error.status.toFixed());
  else if (error instanceof ApiError) console.log(error.docs?.length);
}
const twin = await openTwin({ name: "types", after: (close) => close() });
const links: string[] = (await twin.waitForMail("c@d.test", { subject: "x" })).links;
await twin.at(new Date((await twin.now()).getTime() + 1000));
const recipient: string = (await (await twin.webhooks()).waitFor("bounced")).data.detail.recipient;
console.log(links, recipient, (await twin.events("complained"))[0]?.type, await twin.inject({ to: "c@d.test" }));
"""
MISTYPED = """
import { openTwin } from "./testing.mjs";
import { Waybill } from "./waybill.mjs";
const client = new Waybill();
await client.emails.send({ from: "a@b.test" });
await client.messages.list({ status: "lost" });
(await client.emails.send({ from: "a@b.test", to: "c@d.test", text: "x" })).message;
for (const event of (await client.messages.get("msg_x")).waybill)
  if (event.type === "attempted") event.detail.suppressed;
await (await openTwin()).advance("2 days");
"""


def first_example(guide: str, language: str) -> str:
    """Return the first code of a guide in a language."""
    return next(one.text for one in guides()[guide].samples if one.language == language)


def test_the_python_types_hold_under_mypy_strict(package_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT, "utf-8")
    (tmp_path / "guide.py").write_text(first_example("python-client", "python"), "utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, "utf-8")
    cache = Path(os.environ.get("MYPY_CACHE_DIR") or tmp_path / "cache")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", "right.py", "guide.py",
         "wrong.py", str(package_folder / "waybill_client")],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110,
        env={**os.environ, "MYPYPATH": str(package_folder)},
    )  # fmt: skip
    if "No module named mypy" in found.stderr:
        pytest.skip("mypy is not installed")
    lines = [line for line in found.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[:2] for line in lines] == [["wrong.py", str(number)] for number in (5, 6, 7, 8, 9, 12)], (
        found.stdout
    )


def test_the_python_types_hold_under_pyright_strict(package_folder: Path, tmp_path: Path) -> None:
    pyright = npm_tool("pyright")
    (tmp_path / "right.py").write_text(RIGHT, "utf-8")
    (tmp_path / "guide.py").write_text(first_example("python-client", "python"), "utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(package_folder)], "include": ["*.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    found = subprocess.run(
        [pyright, "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert found.returncode == 0, found.stdout


def test_the_typescript_types_hold_under_tsc_strict(modules: Path, tmp_path: Path) -> None:
    tsc = npm_tool("tsc")
    for file in modules.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    sources = {"guide.mts": first_example("javascript-client", "js"), "right.mts": TYPED, "wrong.mts": MISTYPED}
    for name, text in sources.items():
        (tmp_path / name).write_text(text, "utf-8")
    words = ["--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable"]
    found = subprocess.run(
        [tsc, *words, *sources], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110
    )  # fmt: skip
    lines = [one[1] for one in re.finditer(r"^(\S+)\(\d+,\d+\): error", found.stdout, re.MULTILINE)]
    assert lines == ["wrong.mts"] * 5, found.stdout
