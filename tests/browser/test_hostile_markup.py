"""Markup in every text that a stranger can fill: no script runs, and nothing is asked of another host."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, expect

from loadtests.kit.service import Service
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser, opened
from tests.harness.hostile_markup import pieces

SUBJECT = 900  # characters; the limit is 998 with the name of the field
_HOST_PAGE = """async ([address, html]) => {
  const frame = document.createElement("iframe");
  frame.src = address;
  frame.setAttribute("sandbox", "allow-scripts");
  document.body.append(frame);
  const ready = (done) => addEventListener("message", (event) => event.data.kind === "ready" && done(), { once: true });
  await new Promise(ready);
  const shown = new Promise((done) => addEventListener("message", (event) => event.data.kind === "height" && done()));
  frame.contentWindow.postMessage({ html, dark: false }, "*");
  await shown;
  frame.remove();
}"""


class Canary:
    """A server that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.port = 0

    @property
    def address(self) -> str:
        """Return its base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note the first line of a request and close."""
        self.asked.append(await reader.readline())
        writer.close()


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    """Run a canary on a free port."""
    found = Canary()
    server = await asyncio.start_server(found.answer, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


def batches(texts: list[str], limit: int) -> list[str]:
    """Join texts to batches of at most `limit` characters."""
    joined, current = [], ""
    for text in texts:
        if len(current) + len(text) > limit and current:
            joined.append(current)
            current = ""
        current += text
    return [*joined, current]


async def hostile_frames(page: ConsolePage) -> list[str]:
    """Return the addresses of frames, the page included, in which a piece ran."""
    return [frame.url for frame in page.page.frames if await frame.evaluate("typeof hostile") != "undefined"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(8))
async def test_the_mail_frame_runs_and_asks_nothing(
    browser: Browser, service: Service, canary: Canary, part: int
) -> None:
    all_pieces = pieces(canary.address)
    assert len(all_pieces) > 7000
    async with opened(browser, service.base_url) as page:
        await page.page.goto(f"{service.base_url}/console/sign-in")
        for html in batches(all_pieces[part::8], 20_000):
            await page.page.evaluate(_HOST_PAGE, [f"{service.base_url}/console-frame", html])
        assert await hostile_frames(page) == []
        page.faults.clear()  # the policy reports what it refused
    assert canary.asked == []


@pytest.mark.exhaustive
async def test_subjects_names_and_tags_stay_text(
    page: ConsolePage, served: Api, user: ConsoleUser, canary: Canary
) -> None:
    texts = batches(
        [piece.translate({1: "", 10: " ", 13: " "}) for piece in pieces(canary.address)[::8]],
        SUBJECT,
    )
    for number in range(0, len(texts), 50):
        messages = [
            {"from": user.access.sender, "to": [f"ann{number + at}@people.test"], "subject": text, "html": text,
             "text": text, "metadata": {"note": text[:500]}}
            for at, text in enumerate(texts[number : number + 50])
        ]  # fmt: skip
        answer = await served.post("/v1/emails/batch", user.access.key, {"messages": messages})
        assert answer.status == 200, answer.body
    first = await served.get("/v1/messages?limit=5", user.access.key)
    await page.go("/messages")
    await page.settled()
    await expect(page.page.get_by_text("onerror").first).to_be_visible()
    for path in ("/", *(f"/messages/{row['id']}" for row in first.json["data"])):
        await page.go(path)
        await page.settled()
        assert await hostile_frames(page) == []
    page.forgive("violates the following Content Security Policy")  # previews are refused what they try
    assert canary.asked == []


async def test_a_mail_can_not_empty_or_leave_its_frame_and_its_links_are_shown_as_read(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    html = (
        '<meta http-equiv="refresh" content="0;url=https://elsewhere.test/"><base href="https://elsewhere.test/">'
        '<p>Still here</p><a href="https://example.com@\u0430pple.test/\u202egnp">example.com</a>'
        '<a href="javascript:alert(1)">run</a>'
        '<iframe srcdoc="inner"></iframe><object data="x"></object><embed src="x"><link rel="dns-prefetch" href="//x">'
        '<svg width="60" height="20"><a xlink:href="https://drawn.test/"><text y="15">drawn</text></a></svg>'
    )
    body = {"from": user.access.sender, "to": ["ann@people.test"], "subject": "Links", "html": html}
    answer = await served.post("/v1/emails", user.access.key, body)
    await page.go(f"/messages/{answer.json['id']}?tab=preview")
    frame = page.page.frame_locator("iframe")
    dialog = page.page.get_by_role("dialog", name="Open this link?")
    await expect(frame.get_by_text("Still here")).to_be_visible()
    await frame.get_by_text("example.com").click()
    await expect(dialog).to_contain_text("xn--pple-43d.test/%E2%80%AEgnp")  # the host and the direction, spelled out
    await expect(dialog).to_contain_text("text shows a different host")
    await page.page.keyboard.press("Escape")
    await frame.get_by_text("example.com").click(button="right")
    await expect(dialog).to_have_count(0)
    await frame.get_by_text("example.com").click(button="middle")
    await expect(dialog).to_contain_text("xn--pple-43d.test")
    assert len(page.page.context.pages) == 1
    await page.page.keyboard.press("Escape")
    await expect(frame.locator("iframe, object, embed, link")).to_have_count(0)
    await frame.get_by_text("drawn").click()
    await expect(dialog).to_contain_text("https://drawn.test/")
    await page.page.keyboard.press("Escape")
    await frame.get_by_text("run").click()
    await expect(dialog.get_by_role("link", name="Open")).to_have_count(0)


async def test_names_that_objects_have_of_their_own_are_names_like_others(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    text = "{{constructor}} {{__proto__}} {{toString}}"
    made = await served.post("/v1/templates", user.access.key, {"id": "names", "subject": text, "text": text})
    assert made.status == 201, made.body
    await page.go("/templates/names")
    await expect(page.page.get_by_text("[constructor] [__proto__] [toString]").first).to_be_visible()
    for path in ("/codes/constructor", "/operator/constructor", "/deliverability/toString"):
        await page.go(path)
        await page.settled()
    names = {"__proto__": "polluted", "constructor": "kept"}
    body = {"from": user.access.sender, "to": ["ann@people.test"], "subject": "Names", "text": "x", "metadata": names}
    sent = await served.post("/v1/emails", user.access.key, body)
    await page.go(f"/messages/{sent.json['id']}?tab=details")
    for name, value in names.items():
        await expect(page.page.get_by_text(name, exact=True)).to_be_visible()
        await expect(page.page.get_by_text(value, exact=True)).to_be_visible()
