"""API keys in the console: create with few scopes, see the secret once, rename, rotate, revoke; settings to copy."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, expect

from tests.harness.browser import ConsolePage, ConsoleUser


async def test_a_key_is_created_rotated_and_revoked(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/api-keys")
    await shown.get_by_role("button", name="Create key").first.click()
    await shown.get_by_label("Name").fill("Shop")
    await shown.get_by_role("button", name="Chosen scopes").click()
    await shown.get_by_role("checkbox", name="messages:read").check()
    await shown.get_by_role("dialog").get_by_role("button", name="Create key").click()
    made = shown.get_by_role("dialog", name="Key Shop")
    await expect(made.get_by_label("Secret", exact=True)).to_have_text(re.compile(r"^svc_live_[0-9A-Za-z]{44}$"))
    await made.get_by_role("button", name="I have stored it").click()
    await expect(shown.get_by_text(re.compile("svc_live_[0-9A-Za-z]{5}"))).to_have_count(0)
    row = shown.get_by_role("row").filter(has_text="Shop")
    await expect(row).to_contain_text("2 scopes")

    await row.get_by_role("button", name="Actions of Shop").click()
    await shown.get_by_role("menuitem", name="Rotate").click()
    await shown.get_by_role("button", name="Rotate key").click()
    await expect(shown.get_by_role("dialog", name="Key Shop")).to_contain_text("is valid until")
    await shown.get_by_role("button", name="I have stored it").click()
    await expect(row).to_have_count(2)

    await row.first.get_by_role("button", name="Actions of Shop").click()
    await shown.get_by_role("menuitem", name="Revoke").click()
    await expect(shown.get_by_role("dialog")).to_contain_text("It was never used.")
    await shown.get_by_role("button", name="Revoke key").click()
    await expect(row).to_have_count(1)
    await shown.get_by_role("tab", name="Revoked and expired").click()
    await expect(row).to_have_count(1)


async def test_samples_name_the_readers_domain(page: ConsolePage) -> None:
    await page.go("/smtp")
    await expect(page.page.get_by_role("figure", name="Sample for swaks")).to_contain_text("--auth-user apikey")
    await page.page.get_by_role("tab", name="Python requests").click()
    sample = page.page.get_by_role("figure", name="Sample for Python requests")
    await expect(sample).to_contain_text(re.compile(r'"from": "hello@browser\d+\.test"'))
    await expect(page.page).to_have_url(re.compile("http=requests"))


async def test_a_page_of_an_allowed_origin_reads_with_a_key_and_no_other_page(
    page: ConsolePage, browser: Browser, user: ConsoleUser
) -> None:
    async with page_server() as origin:
        token = await key_for(page, origin)
        context = await browser.new_context()
        visitor = await context.new_page()
        await visitor.goto(origin)
        read = await visitor.evaluate(READ, [user.base_url, token])
        refused = await visitor.evaluate(READ, [user.base_url, user.access.key])
        await context.close()

    assert read["status"] == 200
    assert read["requestId"]
    assert read["limit"].startswith('"key"')
    assert read["tail"].startswith("retry: ")
    assert refused == {"error": "TypeError"}


# In a page: read messages and the first event of the live tail, or the name of the error that the browser raises.
READ = """async ([base, token]) => {
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const answer = await fetch(`${base}/v1/messages`, { headers });
    const tail = await fetch(`${base}/v1/messages/tail`, { headers: { ...headers, "Last-Event-ID": "0" } });
    const first = await tail.body.getReader().read();
    return {
      status: answer.status,
      requestId: answer.headers.get("X-Request-Id"),
      limit: answer.headers.get("RateLimit"),
      tail: new TextDecoder().decode(first.value),
    };
  } catch (error) {
    return { error: error.name };
  }
}"""


async def key_for(page: ConsolePage, origin: str) -> str:
    """Create a key that pages of `origin` may read with, and look at its facts; return its token."""
    shown = page.page
    await page.go("/api-keys")
    await shown.get_by_role("button", name="Create key").first.click()
    await shown.get_by_label("Name").fill("Page")
    await expect(shown.get_by_label("Web pages that can read with it")).to_have_count(0)
    await shown.get_by_role("button", name="Read only").click()
    await shown.get_by_label("Web pages that can read with it").fill(f"{origin}/")
    await shown.get_by_role("dialog").get_by_role("button", name="Create key").click()
    await expect(shown.get_by_role("dialog")).to_contain_text("is not an origin as browsers send it")
    await shown.get_by_label("Web pages that can read with it").fill(origin)
    await shown.get_by_role("dialog").get_by_role("button", name="Create key").click()
    token = await shown.get_by_role("dialog").get_by_label("Secret", exact=True).text_content()
    await shown.get_by_role("button", name="I have stored it").click()
    await shown.get_by_role("row").filter(has_text="Page").get_by_role("button", name="of Page").first.click()
    await expect(shown.get_by_role("dialog")).to_contain_text(origin)
    assert token is not None
    return token


@asynccontextmanager
async def page_server() -> AsyncIterator[str]:
    """Serve an empty page at an origin of its own; yield the origin."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n")
        writer.write(b"<!doctype html>")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "localhost", 0, family=socket.AF_INET)
    async with server:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}"
